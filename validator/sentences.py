# SPDX-License-Identifier: Apache-2.0
"""Says in a sentence why an input was rejected: the words of the error's entry, with the error's fields in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.codec.json_form import error_fields
from validator.core.limits import UNREACHED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.plugin.rule_pages import RuleEntry

Json: TypeAlias = dict[str, Any]

KIB: Final = 1024
NOTHING: Final = "\u2013"
"""A number that is not known."""


def count(value: int | None) -> str:
    """Return an integer with separators, all digits shown."""
    return NOTHING if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Return a number of bytes: exact below 10 KiB, then in KiB or MiB."""
    if value is None:
        return NOTHING
    if value > UNREACHED:
        return "any number of bytes"
    if value < 10 * KIB:
        return f"{value:,} B"
    if value < 10 * KIB * KIB:
        return f"{value / KIB:,.1f} KiB"
    return f"{value / KIB / KIB:,.1f} MiB"


def sizes(values: Iterable[int]) -> dict[int, str]:
    """Return numbers of bytes as texts that can be compared: all in one unit, and exact if two of them would look the same."""
    rounded = {value: size(value) for value in values}
    reached = [text for value, text in rounded.items() if value <= UNREACHED]
    if len({text.rpartition(" ")[2] for text in reached}) <= 1 and len(set(reached)) == len(reached):
        return rounded
    return {value: text if value > UNREACHED else f"{value:,} B" for value, text in rounded.items()}


def plural(value: int, what: str) -> str:
    """Return a count of things, such as ``1 block`` and ``2 blocks``."""
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def plain(value: Any) -> str:
    """Return the value of a field as a person writes it: a channel as ``sender → recipient``."""
    if isinstance(value, dict):
        return " → ".join(map(plain, value.values()))
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


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


def why_of(words: RuleEntry | None, record: Json) -> Why:
    """Return why a rejected verdict, as JSON, was rejected; ``words`` is the entry of its error, if it has a sentence."""
    kind, error = record["error"]["kind"], error_fields(record["error"])
    if words is not None:
        try:
            fields = _fields(record["para_id"], error, _sizes(words, error))
            text = words.says.format_map(fields)
        except (KeyError, IndexError, ValueError):
            words = None
    if words is None:
        listed = ", ".join(f"{name} {plain(value)}" for name, value in error.items())
        return Why(f"Rejected by the rule {kind}{': ' + listed if listed else ''}.")
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


def _sizes(words: RuleEntry, error: Json) -> dict[str, str]:
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
        fields["at"] = count(error["idx"])
    return fields


def _shown(name: str, value: Any) -> str | _Count:
    return plain(value) if not _is_number(value) or name in _ENDS or name.endswith("para_id") else _Count(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
