# SPDX-License-Identifier: Apache-2.0
"""Explains configuration errors, in one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from validator.config.table import ARTEFACT_PATTERN, LANE_PATTERN, MEMORY_PATTERN, PLUGIN_PATTERN, PREFIX_PATTERN
from validator.document import printable
from validator.errors import UserError
from validator.visible import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


UNKNOWN_KEY: Final = "unknown_key"
"""Error type of an unknown key; ``known`` in its context lists the table's keys."""


_NAME: Final = "a name of at most 64 lower-case letters, digits, '.', '_' and '-' that begins"

PATTERNS: Final = {
    MEMORY_PATTERN: "a size such as 512m or 4g",
    PREFIX_PATTERN: "at most 100 letters, digits, '.', '_' and '-'",
    ARTEFACT_PATTERN: "a file whose name ends with .zip",
    LANE_PATTERN: f"{_NAME} with a letter or digit",
    PLUGIN_PATTERN: f"{_NAME} and ends with a letter or digit",
}
"""What values of a pattern are, in words."""


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
        close = closest(str(location[-1]), known)
        hint = f"; did you mean {close!r}?" if close else f"; known are {', '.join(known)}" if known else ""
        return f"{path}: no such key{hint}"
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
    elif error["type"] == "string_too_short":
        expected = "text that is not empty"
    elif error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        expected = PATTERNS.get(pattern) or f"{'a name' if location[-1] == '[key]' else 'text'} that matches {pattern}"
    elif expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    return f"{path}: expected {expected}, found {shown(error['input'])}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known key that somebody may have meant, None if no one is close.

    A key that has the same words in their order, some of them abbreviated, goes before one that merely looks alike: ``hrmp_max_msg`` is
    ``hrmp_max_message_num_per_candidate`` rather than ``hrmp_channel_max_size``.
    """
    known = list(known)
    same_words = [key for key in known if _has_words(key, name.split("_"))]
    if same_words:
        return max(same_words, key=lambda key: (_same_start(key, name), -len(key)))
    return next(iter(get_close_matches(name, known, 1)), None)


def _same_start(one: str, other: str) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _has_words(key: str, words: list[str]) -> bool:
    left = iter(key.split("_"))
    return all(any(_is_short_for(word, full) for full in left) for word in words)


def _is_short_for(word: str, full: str) -> bool:
    """Return whether a word begins as another one does, and has letters of it in their order."""
    letters = iter(full)
    return word[:1] == full[:1] and all(letter in letters for letter in word)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{printable(part)}" if path else printable(part)
    return path


T = TypeVar("T")


def chain_of(chains: Mapping[str, T], lane: str, begins: str = "--lane: ") -> T:
    """Return the chain of a lane. Raises `UserError`, whose line ``begins`` so, if it is not configured."""
    chain = chains.get(lane)
    if chain is None:
        raise UserError(f"{begins}{no_chain(lane, chains)}")
    return chain


def no_chain(lane: str, configured: Collection[str]) -> str:
    """Return the words for a lane that is not one of the configured ones."""
    close = closest(lane, configured)
    hint = f"did you mean {close!r}?" if close else f"configured are {', '.join(sorted(configured)) or 'none'}"
    return f"no chain {lane!r} is configured; {hint}"
