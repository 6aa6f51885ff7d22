# SPDX-License-Identifier: Apache-2.0
"""Compares output with what a trace expects. See `docs/trace-format.md`, "Expectation"."""

from __future__ import annotations

import json
from typing import Any


def first_difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """Return in words where ``actual`` differs from ``expected``, or None if it matches.

    Objects compare key by key, ``null`` means absent, ``0`` and ``[]`` mean absent or that value, lists compare as a whole.
    The order of names in a list whose key ends with ``_set`` does not matter.
    """
    if isinstance(expected, dict):
        if actual is not None and not isinstance(actual, dict):
            return _difference(expected, actual, path)
        for key, value in expected.items():
            difference = first_difference(value, (actual or {}).get(key), f"{path}.{key}" if path else key)
            if difference is not None:
                return difference
        return None
    if actual is None and expected in (0, []) and expected is not False:
        return None
    if path.endswith("_set") and _are_names(expected) and _are_names(actual) and sorted(expected) == sorted(actual):
        return None
    return None if actual == expected else _difference(expected, actual, path)


def without_zeros(value: Any) -> Any:
    """Return a state key without what may as well be absent: members that are null, 0 or empty, and then None if nothing is left.

    Two states are equal if this is. An account with nothing in it, for example, may be listed or not.
    """
    if isinstance(value, dict):
        value = {name: left for name, member in value.items() if (left := without_zeros(member)) is not None}
    is_absent = value is None or (value in (0, [], {}) and value is not False)
    return None if is_absent else value


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def first_result_difference(expected: list[dict[str, Any]], actual: list[dict[str, Any]], path: str) -> str | None:
    """Return where results of inputs differ: each is compared as a whole; ``error_any_of`` lists kinds that are equally good."""
    if len(expected) != len(actual):
        return f"{path}: expected {len(expected)} results, got {len(actual)}"
    for at, (want, got) in enumerate(zip(expected, actual, strict=True)):
        kinds = want.get("error_any_of")
        if kinds is not None and not got["ok"] and got["error"]["kind"] in kinds:
            continue
        # an entry's other keys (a note, error_any_of) are not part of the result
        plain = {key: value for key, value in want.items() if key in ("ok", "error")}
        if plain != got:
            return _difference(plain, got, f"{path}[{at}]")
    return None


def _difference(expected: Any, actual: Any, path: str) -> str:
    return f"{path}: expected {json.dumps(expected)}, got {json.dumps(actual)}"
