# SPDX-License-Identifier: Apache-2.0
"""The parameters of a query: which a list takes, what each may be, and their values; also how OpenAPI describes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.names import closest
from validator.record_filter import RecordFilter
from validator.serve.limits import CURSOR_MAX, HASH_BYTES_MAX, HASH_BYTES_MIN, PAGE_DEFAULT, PAGE_MAX, TEXT_MAX
from validator.visible import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from validator.client.topics import ReadableTopic

Json = dict[str, Any]

HASH: Final = re.compile(rf"(?:0x)?((?:[0-9a-fA-F]{{2}}){{{HASH_BYTES_MIN},{HASH_BYTES_MAX}}})")
_NUMBER: Final[Json] = {"type": "integer", "minimum": 0, "maximum": U32_MAX}
_TEXT: Final[Json] = {"type": "string", "minLength": 1, "maxLength": TEXT_MAX}
_ORDER: Final[Json] = {"type": "string", "enum": ["oldest", "newest"]}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its JSON schema, and a sentence. A list takes it if its records have one of the ``fields``, or in any case."""

    name: str
    schema: Json
    says: str
    fields: tuple[str, ...] = ()


FILTERS: Final = (
    Parameter("lane", _TEXT, "Only this lane.", ("lane",)),
    Parameter("para", _NUMBER, "Only records about this para.", ("para_id", "sender", "recipient")),
    Parameter("sender", _NUMBER, "Only records with this sender.", ("sender", "messages")),
    Parameter("recipient", _NUMBER, "Only records with this recipient.", ("recipient", "messages")),
    Parameter("kind", _TEXT, "Only this kind of input, or this event of a channel.", ("kind", "event")),
    Parameter(
        "outcome",
        _TEXT,
        "Only this outcome; of a verdict: accepted or rejected; of a message: its status.",
        ("outcome", "status"),
    ),
    Parameter("rejected", {"type": "boolean"}, "Only what was rejected, or not handled.", ("outcome",)),
    Parameter("error", _TEXT, "Only verdicts with this error, or with one of a kind below it.", ("error",)),
    Parameter("from_block", _NUMBER, "Only this block and later ones.", ("block",)),
    Parameter("to_block", _NUMBER, "Only this block and earlier ones.", ("block",)),
)
HASHED: Final = Parameter(
    "hash",
    {"type": "string", "pattern": f"^{HASH.pattern}$".replace("?:", "?:")},
    f"Only records that hold these bytes, {HASH_BYTES_MIN} to {HASH_BYTES_MAX} in hex: an id, a candidate's hash, an MQC head.",
)
CURSOR: Final = Parameter(
    "cursor",
    {"type": "string", "minLength": 1, "maxLength": CURSOR_MAX},
    "Continue where an earlier answer ended, whatever its filters were; without `start`.",
)
PAGE: Final = (
    Parameter(
        "start", _ORDER | {"default": "oldest"}, "Which records come first. Each partition of the topic has an order."
    ),
    CURSOR,
    Parameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE_DEFAULT},
        "Records of a page, at most. A page may have fewer, also none, before the end: `at_end` says which.",
    ),
)
STREAM: Final = (
    Parameter(
        "start",
        _ORDER | {"default": "newest"},
        "`oldest` begins with the first record, `newest` with what arrives from now on.",
    ),
    CURSOR,
)


def filters_of(topic: ReadableTopic) -> tuple[Parameter, ...]:
    """Return the filters that a topic's records can answer."""
    return (*(each for each in FILTERS if not topic.fields.isdisjoint(each.fields)), HASHED)


@dataclass(frozen=True, slots=True)
class Asked:
    """The values of a query."""

    values: Json = field(default_factory=dict)

    @property
    def filter(self) -> RecordFilter:
        """What is wanted of a record in JSON."""
        names = {each.name for each in FILTERS}
        return RecordFilter(**{name: value for name, value in self.values.items() if name in names})

    @property
    def hash(self) -> bytes:
        """Bytes that a record has to hold; none if any will do."""
        return hash_of(self.values["hash"]) if "hash" in self.values else b""


def read_query(
    pairs: Iterable[tuple[str, str]], known: Sequence[Parameter], lanes: Sequence[str] = (), cursor: str | None = None
) -> Asked:
    """Return the values of a query; ``cursor`` replaces the one that it has.

    Raises `UserError` with the parameter's name: it is unknown or there twice, its value is none of its schema, the lane is none of
    ``lanes``, or a cursor has a ``start`` besides.
    """
    by_name = {each.name: each for each in known}
    values: Json = {}
    for name, text in pairs:
        if name not in by_name:
            close = closest(name, by_name)
            hint = f"did you mean {close!r}?" if close else f"known are {', '.join(by_name)}"
            raise UserError(f"{shown(name)}: this list has no such parameter; {hint}")
        if name in values:
            raise UserError(f"{name}: expected one value, found two")
        values[name] = _value(by_name[name], text)
    if lanes and "lane" in values and values["lane"] not in lanes:
        close = closest(values["lane"], lanes)
        hint = f"; did you mean {close!r}?" if close else ""
        raise UserError(f"lane: expected {' or '.join(lanes)}, found {shown(values['lane'])}{hint}")
    if cursor is not None:
        values["cursor"] = cursor
        values.pop("start", None)
    if "cursor" in values and "start" in values:
        raise UserError("start: expected none besides a cursor, which has an order already")
    return Asked(values)


def hash_of(text: str) -> bytes:
    """Return the bytes of a hash. Raises `UserError`."""
    found = HASH.fullmatch(text)
    if found is None:
        raise UserError(f"hash: expected {HASH_BYTES_MIN} to {HASH_BYTES_MAX} bytes in hex, found {shown(text)}")
    return bytes.fromhex(found[1])


def _value(parameter: Parameter, text: str) -> Any:
    schema, name = parameter.schema, parameter.name
    if "enum" in schema and text not in schema["enum"]:
        raise UserError(f"{name}: expected {' or '.join(schema['enum'])}, found {shown(text)}")
    match schema["type"]:
        case "boolean":
            if text not in ("true", "false"):
                raise UserError(f"{name}: expected true or false, found {shown(text)}")
            return text == "true"
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            if not (text.isascii() and text.isdecimal() and len(text) <= len(str(high)) and low <= int(text) <= high):
                raise UserError(f"{name}: expected an integer from {low} to {high}, found {shown(text)}")
            return int(text)
    if parameter is HASHED:
        hash_of(text)
    elif not 1 <= len(text) <= schema.get("maxLength", TEXT_MAX) and parameter is not CURSOR:
        raise UserError(f"{name}: expected 1 to {schema['maxLength']} characters, found {len(text)}")
    return text
