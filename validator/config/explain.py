# SPDX-License-Identifier: Apache-2.0
"""Explains configuration errors, in one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final

from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from validator.document import printable

UNKNOWN_KEY: Final = "unknown_key"
"""Error type of an unknown key; ``known`` in its context lists the table's keys."""


def as_input(error: ErrorDetails, *place: str) -> InitErrorDetails:
    """Return an error as one of the enclosing model, found at ``place``, with its message unchanged."""
    # pydantic would reword its own errors, and write the bound of a large number as a float
    kind = PydanticCustomError(error["type"], "{words}", {**error.get("ctx", {}), "words": error["msg"]})
    return InitErrorDetails(type=kind, loc=(*place, *error["loc"]), input=error["input"])


def explain(error: ErrorDetails, names_at: Callable[[tuple[int | str, ...]], Iterable[str]] = lambda _: ()) -> str:
    """Return where a value is wrong, what was expected and what was found; ``names_at`` returns the keys of the table at a location."""
    location = error["loc"]
    path = _path(location[:-1] if location[-1] == "[key]" else location)
    if error["type"] in ("extra_forbidden", UNKNOWN_KEY):
        known = error["ctx"]["known"] if error["type"] == UNKNOWN_KEY else sorted(names_at(location[:-1]))
        close = get_close_matches(str(location[-1]), known, 1)
        return f"{path}: no such key; " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}")
    if error["type"] == "missing":
        return f"{path}: expected a value, found none"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{path}: {message}"
    expected = (
        message.removeprefix("Input should be ").replace("a valid integer", "an integer").replace("a valid ", "a ")
    )
    expected = expected.partition(", unable to parse")[0]
    if error["type"] in ("model_type", "dict_type"):
        expected = "a table"
    elif error["type"] == "string_pattern_mismatch":
        expected = f"{'a name' if location[-1] == '[key]' else 'text'} that matches {error['ctx']['pattern']}"
    elif expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    found = repr(error["input"])
    return f"{path}: expected {expected}, found {found if len(found) <= 60 else found[:57] + '...'}"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{printable(part)}" if path else printable(part)
    return path
