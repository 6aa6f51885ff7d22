# SPDX-License-Identifier: Apache-2.0
"""Says in one sentence why an input was rejected, as its error's entry on the page of rules has it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from validator.console.kept import Json
from validator.console.shown import count, plain, plural, sizes
from validator.plugin.rule_pages import Entry, installed_pages

_ENDS: Final = ("sender", "recipient")


@dataclass(frozen=True, slots=True)
class Why:
    """Why an input was rejected. ``observed`` and ``limit`` are the two numbers that disagree, None if the error has no such pair."""

    text: str
    then: str = ""
    observed: int | None = None
    limit: int | None = None
    numbers: tuple[str, str] = ("", "")
    """Both as a page writes them."""


@cache
def sentences() -> dict[str, Entry]:
    """Return the entries of errors with a sentence, by kind; a kind of several protocols has the first one's."""
    found = [entry for page in installed_pages()[0] for entry in page.entries if entry.says]
    return {entry.name: entry for entry in reversed(found)}


def why(record: Json) -> Why:
    """Return why a rejected verdict, as JSON, was rejected."""
    error = record["error"]
    words = sentences().get(error["kind"])
    if words is not None:
        try:
            fields = _fields(record["para_id"], error, _sizes(words, error))
            text = words.says.format_map(fields)
        except (KeyError, IndexError, ValueError):
            words = None
    if words is None:
        listed = ", ".join(f"{name} {plain(value)}" for name, value in error.items() if name != "kind")
        return Why(f"Rejected by the rule {error['kind']}{': ' + listed if listed else ''}.")
    then = words.then.format_map(_Lenient(fields))
    found = [error.get(name) for name in words.numbers]
    if len(found) != 2 or not all(isinstance(each, int) for each in found):
        return Why(text, then)
    first, second = words.numbers
    return Why(text, then, error[first], error[second], (str(fields[first]), str(fields[second])))


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"the {key}"


class _Count(int):
    """A count; ``{sent:message}`` writes it with what it counts, such as ``1 message`` and ``2 messages``."""

    def __str__(self) -> str:
        return count(int(self))

    def __format__(self, what: str) -> str:
        return plural(int(self), what) if what else str(self)


def _sizes(words: Entry, error: Json) -> dict[str, str]:
    """Return an error's numbers of bytes by field: its name says size, or it is the limit of one whose name does."""
    names = {name for name in error if "size" in name}
    if words.numbers and words.numbers[0] in names:
        names.add(words.numbers[1])
    values = {name: error[name] for name in names if _is_number(error.get(name))}
    texts = sizes(values.values())
    return {name: texts[value] for name, value in values.items()}


def _fields(para: int, error: Json, of_size: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"para": str(para)}
    for name, value in error.items():
        fields[name] = of_size.get(name) or _shown(name, value)
        if isinstance(value, dict):
            fields |= {end: str(value[end]) for end in _ENDS if end in value}
    if isinstance(error.get("idx"), int):
        fields["at"] = count(error["idx"] + 1)
    return fields


def _shown(name: str, value: Any) -> str | _Count:
    return plain(value) if not _is_number(value) or name in _ENDS or name.endswith("para_id") else _Count(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
