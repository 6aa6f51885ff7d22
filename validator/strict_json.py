# SPDX-License-Identifier: Apache-2.0
"""JSON of which every parser reads the same value: RFC 8259 without what parsers disagree on, as RFC 7493 (I-JSON) asks for.

Refused with their place: member names that occur twice, NaN and infinities, the integer -0, surrogates without their other half, text that
is not UTF-8 or begins with a byte order mark, and more than `DEPTH_MAX` levels. The standard parser does the work; a second look at what it
returned finds the place of an error, so that good input costs little more.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from validator.visible import cut

DEPTH_MAX: Final = 64
"""Levels of arrays and objects in a document."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_MINUS_ZERO: Final = re.compile(r"-0(?![.\deE])")


class JsonRefused(ValueError):
    """A text is not JSON of this kind. ``place`` is ``:line:column``, a path as in ``.a[0].b``, or empty; the error's text says why."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(why)
        self.place = place


class _Wrong:
    """Stands for a value that is refused, until its place is known."""

    def __init__(self, why: str) -> None:
        self.why = why


def read_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises `JsonRefused`: for bytes that are not UTF-8; for anything but one JSON text; for numbers of more digits than Python converts; for
    too many levels; then for the first wrong value in the order of the text.
    """
    parser = _Parser()
    try:
        text = data.decode()
        value = parser.parse(text)
    except UnicodeDecodeError as error:
        raise JsonRefused("", f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise JsonRefused(f":{error.lineno}:{error.colno}", f"not JSON: {error.msg}") from None
    except RecursionError:
        raise JsonRefused("", f"nested more than {DEPTH_MAX} levels deep") from None
    except ValueError:
        raise JsonRefused("", f"expected numbers of at most {sys.get_int_max_str_digits()} digits") from None
    if text.count("[") + text.count("{") > DEPTH_MAX and _is_deeper(value, DEPTH_MAX):
        raise JsonRefused("", f"nested more than {DEPTH_MAX} levels deep")
    if parser.found_wrong or _ESCAPED_SURROGATE.search(text):
        for path, why in _refused(value, ""):
            raise JsonRefused(path, why)
    return value


class _Parser:
    """The standard parser, which notes what is refused in its place."""

    def __init__(self) -> None:
        self.found_wrong = False

    def parse(self, text: str) -> Any:
        integer = self._integer if _MINUS_ZERO.search(text) else int
        return json.loads(text, object_pairs_hook=self._members, parse_constant=self._constant, parse_int=integer)

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.found_wrong = True
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        return _Members(members, twice)

    def _constant(self, name: str) -> _Wrong:
        self.found_wrong = True
        return _Wrong(f"expected a JSON value, found {name}")

    def _integer(self, digits: str) -> int | _Wrong:
        if digits != "-0":
            return int(digits)
        self.found_wrong = True
        return _Wrong("expected 0, found -0")


class _Members(dict[str, Any]):
    """An object that names a member twice."""

    def __init__(self, members: dict[str, Any], twice: str) -> None:
        super().__init__(members)
        self.twice = twice


def _refused(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each wrong value, with what is wrong."""
    if isinstance(value, _Wrong):
        yield path, value.why
    elif isinstance(value, str):
        if _SURROGATE.search(value):
            yield path, "expected Unicode text, found a surrogate without its other half"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _refused(item, f"{path}[{at}]")
    elif isinstance(value, dict):
        if isinstance(value, _Members):
            yield path, f"expected each member once, found {_quoted(value.twice)} twice"
        for name, item in value.items():
            if _SURROGATE.search(name):
                yield path, f"expected Unicode text, found the member name {_quoted(name)}"
            yield from _refused(item, f"{path}.{name}")


def _is_deeper(value: Any, depth_max: int) -> bool:
    level = [value]
    for _ in range(depth_max + 1):
        level = [
            item
            for value in level
            if isinstance(value, (dict, list))
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return False
    return True


def _quoted(name: str) -> str:
    return cut(json.dumps(name))
