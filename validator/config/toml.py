# SPDX-License-Identifier: Apache-2.0
"""Writes a configuration as readable TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w


def to_toml(table: Mapping[str, Any]) -> str:
    """Return nested tables, lists of tables and plain values as TOML; None is omitted, since TOML has no null."""
    return tomli_w.dumps(_without_none(table))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(each) for name, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list | tuple) else value
