# SPDX-License-Identifier: Apache-2.0
"""Random changes to JSON values."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from xcmp_world import Json

ODD = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        3,
        -1,
        2**32,
        10**40,
        1.5,
        "",
        "0",
        "00",
        "zz",
        "00" * 32,
        "ff" * 32,
        [],
        [[]],
        {},
        {"0": []},
        {"": {}},
    ]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return all members of all objects and arrays inside a value, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def change_somewhere(proof: Json, data: st.DataObject) -> None:
    """Change one part of a proof: remove, replace, duplicate or swap it, or replace it with a malformed value."""
    found = places(proof)
    assume(found)
    container, key = data.draw(st.sampled_from(found), label="where")
    other, other_key = data.draw(st.sampled_from(found), label="from where")
    how = data.draw(st.sampled_from(("remove", "odd", "odd", "copy", "copy", "number", "flip", "add")), label="how")
    value = container[key]
    if how == "remove":
        del container[key]
    elif how == "copy":
        container[key] = deepcopy(other[other_key])
    elif how == "number" and type(value) is int:
        container[key] = value + data.draw(st.sampled_from((-1, 1, 2)))
    elif how == "flip" and isinstance(value, str) and value:
        at = data.draw(st.integers(0, len(value) - 1))
        container[key] = value[:at] + ("1" if value[at] == "0" else "0") + value[at + 1 :]
    elif how == "add" and isinstance(container, list):
        container.insert(key, deepcopy(value))
    elif how == "add":
        container[data.draw(st.sampled_from(("7", "07", "3", "x", "")))] = deepcopy(value)
    else:
        container[key] = deepcopy(data.draw(ODD))
