# SPDX-License-Identifier: Apache-2.0
"""Configuration keys in environment variables."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from validator.errors import UserError
from validator.tables import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

PREFIX: Final = "VALIDATOR_"
DELIMITER: Final = "__"


def environment_tables(
    keys: Collection[str], takes_text: Callable[[Sequence[str]], bool] = lambda _: False
) -> dict[str, Any]:
    """Return the nested tables that the environment sets; ``keys`` are the names of all tables.

    ``VALIDATOR_<table>__<key>=<value>``, likewise for nested tables; a variable named after a whole table takes JSON. Unknown names are
    passed on, so that a typing error in a variable is reported like one in the file. A variable with the prefix but neither a table's name
    nor ``__`` is not a configuration key. A number is text where ``takes_text`` says that a key, by its path, takes text. In Kafka's
    dotted keys, ``__`` stands for the dot: ``VALIDATOR_KAFKA__BOOTSTRAP__SERVERS``.

    Raises `UserError` if VALIDATOR_KAFKA is no JSON object.
    """
    found: dict[str, Any] = {}
    for variable in sorted(os.environ):
        if not variable.upper().startswith(PREFIX):
            continue
        path = variable[len(PREFIX) :].lower().split(DELIMITER)
        if len(path) == 1 and path[0] not in keys:
            continue
        value = _value(os.environ[variable])
        if path == ["kafka"]:
            if not isinstance(value, dict):
                # without what was found, which may have a password
                raise UserError(f"{variable}: expected a JSON object of Kafka's options")
            value = dotted(value)
        elif path[0] == "kafka":
            # librdkafka takes text, and a password may look like a number
            path, value = ["kafka", ".".join(path[1:])], os.environ[variable]
        elif path[0] == "schema_registry" and len(path) > 1:
            value = os.environ[variable]  # all its values are text
        elif value is not None and takes_text(path):
            value = value if isinstance(value, str) else os.environ[variable]
        table = found
        for name in path[:-1]:
            below = table.setdefault(name, {})
            table[name] = table = below if isinstance(below, dict) else {}
        table[path[-1]] = value
    return found


def overridden(tables: Mapping[str, Any], by: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with the values of others in their places."""
    merged = dict(tables)
    for key, value in by.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = overridden(below, value) if both else value  # type: ignore[arg-type]
    return merged


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
