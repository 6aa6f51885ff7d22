# SPDX-License-Identifier: Apache-2.0
"""Writes a configuration as readable TOML, since the standard library only reads TOML."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """Return nested tables, lists of tables and plain values as TOML; None is omitted, since TOML has no null."""
    return "\n".join(_table(table, "")).lstrip("\n") + "\n"


def _table(table: Mapping[str, Any], path: str) -> Iterator[str]:
    below: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict) or _is_list_of_tables(value):
            below.append((name, value))
        elif value is not None:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in below:
        full = f"{path}.{_key(name)}" if path else _key(name)
        if isinstance(value, dict):
            if not value or any(not isinstance(each, dict) for each in value.values()):
                yield f"\n[{full}]"
            yield from _table(value, full)
        else:
            for each in value:
                yield f"\n[[{full}]]"
                yield from _table(each, full)


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    # JSON strings, numbers, booleans and lists are valid TOML, except that TOML requires DEL to be escaped
    # (and TOML has no surrogate pairs, which json writes with ensure_ascii)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
