# SPDX-License-Identifier: Apache-2.0
"""Reads Avro binary in the one form in which it is written: what is read gives the same bytes when it is written again.

Avro allows several encodings of one value: integers with superfluous zero bits, arrays in several blocks, blocks that state their size.
Readers go further, and take any byte for true, a branch of -1 for the last one, and integers of more than 64 bits. Two records with equal
content could then have different bytes, and two readers could disagree. This reader accepts the shortest integers, at most one block for
each array or map, and bytes that every reader understands alike; the field and the byte of anything else are in the error.

Two readers are made of each schema. The one in `compiled` is quick and handles what is usual. Here are nested functions, each of which
takes the bytes and a position, and returns a value and the position after it; they decide on all other records and name the place.
An array item may take one byte on the wire and about two hundred in memory, so a few megabytes of hostile bytes could
become gigabytes. Items are therefore counted, all arrays of a record together, and a block that exceeds the limit is refused before
any of its items is built. Source: Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.codec.compiled import UNUSUAL, compiled
from validator.core.limits import RECORDS_PER_BLOCK_MAX

if TYPE_CHECKING:
    from validator.codec.schemas import Json

ITEMS_MAX: Final = 4 * RECORDS_PER_BLOCK_MAX
"""Maximum array and map items of one record, all its arrays together."""
INTEGER_BYTES_MAX: Final = 10
"""Bytes of the longest integer, which has 64 bits."""


class NotCanonical(ValueError):
    """Bytes are not what a writer of the schema writes; ``field`` is the path of the value, ``at`` the position of its first wrong byte."""

    def __init__(self, at: int, expected: str, found: str) -> None:
        super().__init__(at, expected, found)
        self.at = at
        self.expected = expected
        self.found = found
        self.field = ""

    def under(self, name: str) -> NotCanonical:
        """Put the name of an outer field, or an index in brackets, in front of the path."""
        separator = "." if self.field and not self.field.startswith("[") else ""
        self.field = f"{name}{separator}{self.field}"
        return self

    def within(self, record: str) -> str:
        """Return the whole line, with the name of the record that the bytes should be."""
        return f"{record}{'.' if self.field else ''}{self.field}: {self}"

    def __str__(self) -> str:
        return f"expected {self.expected} at byte {self.at}, found {self.found}"


class TooManyItems(NotCanonical):
    """A record has more items than any of our records may have."""


class _Items:
    """Counts the items of one record."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int, at: int) -> None:
        self.count += count
        if self.count > ITEMS_MAX:
            raise TooManyItems(at, f"at most {ITEMS_MAX} items", str(self.count))


_Read: TypeAlias = Callable[[bytes, int, _Items], tuple[Any, int]]
StrictReader: TypeAlias = Callable[[bytes, int], Any]
"""Takes bytes and the position at which a value starts, and returns the value. Raises `NotCanonical`."""


def strict_reader(schema: Json, *, name_records: bool = False) -> StrictReader:
    """Return the reader of a parsed schema, whose value extends to the last byte.

    A value has the form in which fastavro returns it; with ``name_records`` a record inside a union is the pair of its name and itself.
    Raises ``ValueError`` for a schema that we have no use for: a recursive one, or one with items that take no byte.
    """
    compiler = _Compiler(schema, name_records=name_records)
    read = compiler.compile(schema)
    quick = compiled(schema, compiler.resolved, _several_bytes, ITEMS_MAX, name_records=name_records)

    def read_all(data: bytes, at: int) -> Any:
        try:
            return quick(data, at)
        except UNUSUAL:
            pass
        value, end = read(data, at, _Items())
        if end != len(data):
            raise NotCanonical(
                end, "the end of the record", f"{len(data) - end} more byte{'s' * (len(data) - end > 1)}"
            )
        return value

    return read_all


def named_types(schema: Json) -> dict[str, Json]:
    """Return every named type of a schema, at any depth, by name."""
    named: dict[str, Json] = {}
    if isinstance(schema, list):
        for branch in schema:
            named |= named_types(branch)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for field in schema.get("fields", ()):
            named |= named_types(field["type"])
        for part in ("items", "values"):
            named |= named_types(schema.get(part))
    return named


class Named:
    """A schema and its named types."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.types = named_types(schema)

    def resolve(self, schema: Any) -> tuple[str, dict[str, Any]]:
        """Return a type's name and its attributes."""
        while True:
            if isinstance(schema, dict):
                if isinstance(schema["type"], str):
                    return schema["type"], schema
                schema = schema["type"]
            elif schema in self.types:
                schema = self.types[schema]
            else:
                return schema, {}


# --- values of one type -------------------------------------------------------------------------------------------------------------------


def _ended(data: bytes, expected: str) -> NotCanonical:
    return NotCanonical(len(data), expected, "the end of the record")


def _null(_data: bytes, at: int, _items: _Items) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int, _items: _Items) -> tuple[bool, int]:
    if at >= len(data):
        raise _ended(data, "a boolean")
    if data[at] > 1:
        raise NotCanonical(at, "a boolean, 0 or 1", str(data[at]))
    return data[at] == 1, at + 1


def _long(data: bytes, at: int, _items: _Items) -> tuple[int, int]:
    if at < len(data):
        byte = data[at]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
    return _several_bytes(data, at)


def _several_bytes(data: bytes, start: int) -> tuple[int, int]:
    result = shift = 0
    for at in range(start, min(len(data), start + INTEGER_BYTES_MAX)):
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0:
                raise NotCanonical(at, "the last byte of an integer in its shortest form", "zero")
            if result >> 64:
                raise NotCanonical(at, "the last byte of an integer of 64 bits", f"{byte:#04x}")
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
    if len(data) - start < INTEGER_BYTES_MAX:
        raise _ended(data, "an integer")
    raise NotCanonical(start + INTEGER_BYTES_MAX - 1, "the last byte of an integer of 64 bits", "another byte after it")


def _int(data: bytes, at: int, items: _Items) -> tuple[int, int]:
    value, end = _long(data, at, items)
    if not -(2**31) <= value < 2**31:
        raise NotCanonical(at, "an integer of 32 bits", str(value))
    return value, end


def _bytes(data: bytes, at: int, items: _Items) -> tuple[bytes, int]:
    size, start = _long(data, at, items)
    end = start + size
    if size < 0 or end > len(data):
        raise NotCanonical(at, f"a length from 0 to {len(data) - start}", str(size))
    return data[start:end], end


def _string(data: bytes, at: int, items: _Items) -> tuple[str, int]:
    text, end = _bytes(data, at, items)
    try:
        return text.decode(), end
    except UnicodeDecodeError as error:
        raise NotCanonical(end - len(text) + error.start, "UTF-8", f"{text[error.start]:#04x}") from None


def _fixed(size: int) -> _Read:
    def fixed(data: bytes, at: int, _items: _Items) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise NotCanonical(at, f"{size} bytes", str(len(data) - at))
        return data[at:end], end

    return fixed


def _floating(code: str) -> _Read:
    packed = struct.Struct(code)

    def floating(data: bytes, at: int, _items: _Items) -> tuple[float, int]:
        end = at + packed.size
        if end > len(data):
            raise NotCanonical(at, f"{packed.size} bytes", str(len(data) - at))
        value: float = packed.unpack_from(data, at)[0]
        if value != value:
            raise NotCanonical(at, "a number", "NaN")
        return value, end

    return floating


def _enum(symbols: list[str]) -> _Read:
    def enum(data: bytes, at: int, items: _Items) -> tuple[str, int]:
        index, end = _long(data, at, items)
        if not 0 <= index < len(symbols):
            raise NotCanonical(at, f"a symbol from 0 to {len(symbols) - 1}", str(index))
        return symbols[index], end

    return enum


# --- values made of others ----------------------------------------------------------------------------------------------------------------


def _record(fields: tuple[tuple[str, _Read], ...]) -> _Read:
    def record(data: bytes, at: int, items: _Items) -> tuple[dict[str, Any], int]:
        datum = {}
        name = ""
        try:
            for name, read in fields:
                datum[name], at = read(data, at, items)
        except NotCanonical as error:
            raise error.under(name) from None
        return datum, at

    return record


def _union(branches: tuple[tuple[str | None, _Read], ...]) -> _Read:
    def union(data: bytes, at: int, items: _Items) -> tuple[Any, int]:
        index, start = _long(data, at, items)
        if not 0 <= index < len(branches):
            raise NotCanonical(at, f"a branch from 0 to {len(branches) - 1}", str(index))
        name, read = branches[index]
        value, end = read(data, start, items)
        return (value if name is None else (name, value)), end

    return union


def _count(data: bytes, at: int, items: _Items) -> tuple[int, int]:
    """Return the number of items of a block, each of which takes at least a byte."""
    count, start = _long(data, at, items)
    if not 0 <= count <= len(data) - start:
        raise NotCanonical(at, f"a count from 0 to {len(data) - start}", str(count))
    items.add(count, at)
    return count, start


def _end_of_blocks(data: bytes, at: int) -> int:
    if at >= len(data):
        raise _ended(data, "the end of a list, 0")
    if data[at]:
        raise NotCanonical(at, "the end of a list, 0", f"another block or {data[at]:#04x}")
    return at + 1


def _array(read: _Read) -> _Read:
    def array(data: bytes, at: int, items: _Items) -> tuple[list[Any], int]:
        count, at = _count(data, at, items)
        values: list[Any] = []
        if not count:
            return values, at
        try:
            for _ in range(count):
                value, at = read(data, at, items)
                values.append(value)
        except NotCanonical as error:
            raise error.under(f"[{len(values)}]") from None
        return values, _end_of_blocks(data, at)

    return array


def _map(read: _Read) -> _Read:
    def mapping(data: bytes, at: int, items: _Items) -> tuple[dict[str, Any], int]:
        count, at = _count(data, at, items)
        values: dict[str, Any] = {}
        if not count:
            return values, at
        for _ in range(count):
            name, start = _string(data, at, items)
            if name in values:
                raise NotCanonical(at, "each key once", f"{name!r} again")
            try:
                values[name], at = read(data, start, items)
            except NotCanonical as error:
                raise error.under(name) from None
        return values, _end_of_blocks(data, at)

    return mapping


_PLAIN: Final[dict[str, _Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": _bytes,
    "string": _string,
}


class _Compiler:
    def __init__(self, schema: Json, *, name_records: bool) -> None:
        self.named = named_types(schema)
        self.name_records = name_records
        self.inside: list[str] = []

    def compile(self, schema: Json) -> _Read:
        if isinstance(schema, list):
            return _union(tuple((self._name(branch), self.compile(branch)) for branch in schema))
        schema = self.resolved(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record":
                return self._record(schema)
            case "array":
                return _array(self._item(schema["items"]))
            case "map":
                return _map(self.compile(schema["values"]))
            case "fixed":
                return _fixed(schema["size"])
            case "enum":
                return _enum(schema["symbols"])
            case _:
                return _PLAIN[kind]

    def resolved(self, schema: Json) -> Json:
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        return self.named.get(schema, schema) if isinstance(schema, str) else schema

    def _name(self, branch: Json) -> str | None:
        resolved = self.resolved(branch)
        is_record = self.name_records and isinstance(resolved, dict) and resolved["type"] == "record"
        return resolved["name"] if is_record else None

    def _record(self, schema: Json) -> _Read:
        if schema["name"] in self.inside:
            raise ValueError(f"record {schema['name']} contains itself")
        self.inside.append(schema["name"])
        fields = tuple((field["name"], self.compile(field["type"])) for field in schema["fields"])
        self.inside.pop()
        return _record(fields)

    def _item(self, schema: Json) -> _Read:
        if not self._size_min(schema):
            raise ValueError("an array has items that take no byte")
        return self.compile(schema)

    def _size_min(self, schema: Json) -> int:
        """Return the fewest bytes of a value, or 1 if it takes more."""
        schema = self.resolved(schema)
        if isinstance(schema, dict) and schema["type"] == "record":
            return int(any(self._size_min(field["type"]) for field in schema["fields"]))
        if isinstance(schema, dict) and schema["type"] == "fixed":
            return int(schema["size"] > 0)
        return int(schema != "null")
