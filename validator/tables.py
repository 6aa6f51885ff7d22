# SPDX-License-Identifier: Apache-2.0
"""Nested tables, as TOML reads dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dotted(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as dotted keys: TOML reads ``bootstrap.servers = ...`` without quotes as a nested table."""
    leaves: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            leaves |= dotted(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves
