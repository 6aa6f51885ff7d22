# SPDX-License-Identifier: Apache-2.0
"""Reads Avro binary in the one form in which it is written: what is read gives the same bytes when it is written again.

Avro allows several encodings of one value: integers with superfluous zero bits, arrays in several blocks, blocks that state their size.
Readers go further, and take any byte for true, a branch of -1 for the last one, and integers of more than 64 bits. Two records with equal
content could then have different bytes, and two readers could disagree. This reader accepts the shortest integers, at most one block for
each array or map, and bytes that every reader understands alike; the field and the byte of anything else are in the error.

A reader of each schema is made as source code, which handles what is usual. On anything else it raises an exception of `UNUSUAL`; then the
record is read again value by value, which decides and names the place.
An array item may take one byte on the wire and about two hundred in memory, so a few megabytes of hostile bytes could
become gigabytes. Items are therefore counted, all arrays of a record together, and a block that exceeds the limit is refused before
any of its items is built. Source: Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from validator.core.limits import RECORDS_PER_BLOCK_MAX

if TYPE_CHECKING:
    from validator.codec.schemas import Json, Schema


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


StrictReader: TypeAlias = Callable[[bytes, int], Any]
"""Takes bytes and the position at which a value starts, and returns the value. Raises `NotCanonical`."""


def strict_reader(schema: Json, *, name_records: bool = False) -> StrictReader:
    """Return the reader of a parsed schema, whose value extends to the last byte.

    A value has the form in which fastavro returns it; with ``name_records`` a record inside a union is the pair of its name and itself.
    Raises ``ValueError`` for a schema that we have no use for: a recursive one, or one with items that take no byte.
    """
    types = Named(schema)
    _takes_bytes(types, schema)
    quick = _compiled(types, name_records=name_records)

    def read(data: bytes, at: int) -> Any:
        try:
            return quick(data, at)
        except UNUSUAL:
            return _Careful(types, data, at, name_records=name_records).read()

    return read


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


def _takes_bytes(types: Named, schema: Json, inside: tuple[str, ...] = ()) -> bool:
    """Return whether each value takes a byte or more. Raises ``ValueError`` as `strict_reader` does."""
    if isinstance(schema, list):
        for branch in schema:
            _takes_bytes(types, branch, inside)
        return True
    kind, attributes = types.resolve(schema)
    match kind:
        case "record":
            name = attributes["name"]
            if name in inside:
                raise ValueError(f"record {name} contains itself")
            takes = [_takes_bytes(types, field["type"], (*inside, name)) for field in attributes["fields"]]
            return any(takes)
        case "array":
            if not _takes_bytes(types, attributes["items"], inside):
                raise ValueError("an array has items that take no byte")
        case "map":
            _takes_bytes(types, attributes["values"], inside)
        case "fixed":
            return bool(attributes["size"])
    return kind != "null"


# --- the careful way ----------------------------------------------------------------------------------------------------------------------


def _long(data: bytes, start: int) -> tuple[int, int]:
    """Return an integer and the position after it."""
    result = shift = 0
    for at in range(start, min(len(data), start + INTEGER_BYTES_MAX)):
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise NotCanonical(at, "the last byte of an integer in its shortest form", "zero")
            if result >> 64:
                raise NotCanonical(at, "the last byte of an integer of 64 bits", f"{byte:#04x}")
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
    if len(data) - start < INTEGER_BYTES_MAX:
        raise NotCanonical(len(data), "an integer", "the end of the record")
    raise NotCanonical(start + INTEGER_BYTES_MAX - 1, "the last byte of an integer of 64 bits", "another byte after it")


class _Careful:
    """Reads one record value by value; ``at`` is the position of the next byte, and ``items`` counts those of all arrays and maps."""

    def __init__(self, types: Named, data: bytes, at: int, *, name_records: bool) -> None:
        self.types = types
        self.data = data
        self.at = at
        self.name_records = name_records
        self.items = 0

    def read(self) -> Any:
        value = self.value(self.types.schema)
        more = len(self.data) - self.at
        if more:
            raise NotCanonical(self.at, "the end of the record", f"{more} more byte{'s' * (more > 1)}")
        return value

    def value(self, schema: Json) -> Any:
        if isinstance(schema, list):
            return self.union(schema)
        kind, attributes = self.types.resolve(schema)
        return getattr(self, f"read_{kind}")(attributes)

    def under(self, name: str, schema: Json) -> Any:
        """Return a value inside of another one; ``name`` is its part of the path."""
        try:
            return self.value(schema)
        except NotCanonical as error:
            raise error.under(name) from None

    def union(self, branches: list[Json]) -> Any:
        at, index = self.at, self.read_long()
        if not 0 <= index < len(branches):
            raise NotCanonical(at, f"a branch from 0 to {len(branches) - 1}", str(index))
        value = self.value(branches[index])
        kind, attributes = self.types.resolve(branches[index])
        return (attributes["name"], value) if self.name_records and kind == "record" else value

    def take(self, size: int) -> bytes:
        at, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise NotCanonical(at, f"{size} bytes", str(len(self.data) - at))
        return self.data[at : self.at]

    def read_null(self, _attributes: Json) -> None:
        return None

    def read_boolean(self, _attributes: Json) -> bool:
        if self.at >= len(self.data):
            raise NotCanonical(self.at, "a boolean", "the end of the record")
        (byte,) = self.take(1)
        if byte > 1:
            raise NotCanonical(self.at - 1, "a boolean, 0 or 1", str(byte))
        return byte == 1

    def read_long(self, _attributes: Json = None) -> int:
        value, self.at = _long(self.data, self.at)
        return value

    def read_int(self, _attributes: Json) -> int:
        at, value = self.at, self.read_long()
        if not -(2**31) <= value < 2**31:
            raise NotCanonical(at, "an integer of 32 bits", str(value))
        return value

    def floating(self, kind: str) -> float:
        at, packed = self.at, _FORMATS[kind]
        value: float = packed.unpack(self.take(packed.size))[0]
        if value != value:
            raise NotCanonical(at, "a number", "NaN")
        return value

    def read_float(self, _attributes: Json) -> float:
        return self.floating("float")

    def read_double(self, _attributes: Json) -> float:
        return self.floating("double")

    def read_bytes(self, _attributes: Json = None) -> bytes:
        at, size = self.at, self.read_long()
        left = len(self.data) - self.at
        if not 0 <= size <= left:
            raise NotCanonical(at, f"a length from 0 to {left}", str(size))
        return self.take(size)

    def read_string(self, _attributes: Json = None) -> str:
        text = self.read_bytes()
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            at = self.at - len(text) + error.start
            raise NotCanonical(at, "UTF-8", f"{text[error.start]:#04x}") from None

    def read_fixed(self, attributes: Json) -> bytes:
        return self.take(attributes["size"])

    def read_enum(self, attributes: Json) -> str:
        at, index = self.at, self.read_long()
        symbols: list[str] = attributes["symbols"]
        if not 0 <= index < len(symbols):
            raise NotCanonical(at, f"a symbol from 0 to {len(symbols) - 1}", str(index))
        return symbols[index]

    def read_record(self, attributes: Json) -> dict[str, Any]:
        return {field["name"]: self.under(field["name"], field["type"]) for field in attributes["fields"]}

    def read_array(self, attributes: Json) -> list[Any]:
        count = self.count()
        values = [self.under(f"[{at}]", attributes["items"]) for at in range(count)]
        self.end_blocks(count)
        return values

    def read_map(self, attributes: Json) -> dict[str, Any]:
        count = self.count()
        values: dict[str, Any] = {}
        for _ in range(count):
            at, name = self.at, self.read_string()
            if name in values:
                raise NotCanonical(at, "each key once", f"{name!r} again")
            values[name] = self.under(name, attributes["values"])
        self.end_blocks(count)
        return values

    def count(self) -> int:
        """Return the number of items of a block, each of which takes at least a byte."""
        at, count = self.at, self.read_long()
        left = len(self.data) - self.at
        if not 0 <= count <= left:
            raise NotCanonical(at, f"a count from 0 to {left}", str(count))
        self.items += count
        if self.items > ITEMS_MAX:
            raise TooManyItems(at, f"at most {ITEMS_MAX} items", str(self.items))
        return count

    def end_blocks(self, count: int) -> None:
        """Take the end after a block; an empty list has none."""
        if not count:
            return
        if self.at >= len(self.data):
            raise NotCanonical(self.at, "the end of a list, 0", "the end of the record")
        (byte,) = self.take(1)
        if byte:
            raise NotCanonical(self.at - 1, "the end of a list, 0", f"another block or {byte:#04x}")


# --- the quick way ------------------------------------------------------------------------------------------------------------------------


UNUSUAL: Final = (IndexError, ValueError, struct.error)
"""What a compiled reader raises on bytes that it does not accept."""

_ZIGZAG: Final = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))
_FORMATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_NAMES_MAX: Final = 64
"""Branches and symbols whose index takes one byte."""


def _compiled(types: Named, *, name_records: bool) -> StrictReader:
    """Return the reader of a schema; nothing of a record ends up in its source but names of fields, as literals."""
    source = _Reading(types, name_records=name_records)
    value = source.value(types.schema)
    lines = (
        "def read(data, at):",
        "    items = 0",
        *source.lines,
        "    if at != len(data): raise ValueError",
        f"    return {value}",
    )
    names = {**source.names, "zigzag": _ZIGZAG, "several": _long, "items_max": ITEMS_MAX}
    exec(compile("\n".join(lines), "<reader of a schema>", "exec"), names)  # noqa: S102 - the source is our own
    read: StrictReader = names["read"]
    return read


class SourceLines:
    """Lines of source about a schema, and what they refer to by name."""

    def __init__(self, types: Named) -> None:
        self.types = types
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 1
        self.count = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"


class _Reading(SourceLines):
    """Source that reads the values of a schema."""

    def __init__(self, types: Named, *, name_records: bool) -> None:
        super().__init__(types)
        self.name_records = name_records

    def value(self, schema: Any) -> str:
        """Add what reads a value, and return the expression that it is in."""
        into = self.name()
        if isinstance(schema, list):
            self.union(schema, into)
        else:
            kind, attributes = self.types.resolve(schema)
            getattr(self, f"read_{kind}")(attributes, into)
        return into

    def long(self, into: str) -> None:
        self.add(
            f"{into} = data[at]",
            f"if {into} < 128:",
            f"    {into} = zigzag[{into}]; at += 1",
            "elif 0 < (more := data[at + 1]) < 128:",
            f"    {into} = {into} & 127 | more << 7; {into} = ({into} >> 1) ^ -({into} & 1); at += 2",
            "else:",
            f"    {into}, at = several(data, at)",
        )

    def size(self, into: str) -> None:
        self.long(into)
        self.add(f"if {into} < 0: raise ValueError")

    def union(self, branches: list[Any], into: str) -> None:
        self.add("branch = data[at]; at += 1")
        for index, branch in enumerate(branches[:_NAMES_MAX]):
            self.add(f"{'el' if index else ''}if branch == {2 * index}:")
            self.depth += 1
            value, (kind, attributes) = self.value(branch), self.types.resolve(branch)
            is_named = self.name_records and kind == "record"
            self.add(f"{into} = ({attributes['name']!r}, {value})" if is_named else f"{into} = {value}")
            self.depth -= 1
        self.add("else: raise ValueError")

    def read_null(self, _schema: Any, into: str) -> None:
        self.add(f"{into} = None")

    def read_boolean(self, _schema: Any, into: str) -> None:
        self.add(f"{into} = (False, True)[data[at]]; at += 1")

    def read_long(self, _schema: Any, into: str) -> None:
        self.long(into)

    def read_int(self, _schema: Any, into: str) -> None:
        self.long(into)
        self.add(f"if not -{2**31} <= {into} < {2**31}: raise ValueError")

    def floating(self, kind: str, into: str) -> None:
        self.names[f"unpack_{kind}"] = _FORMATS[kind].unpack_from
        self.add(f"({into},) = unpack_{kind}(data, at); at += {_FORMATS[kind].size}")
        self.add(f"if {into} != {into}: raise ValueError")

    def read_float(self, _schema: Any, into: str) -> None:
        self.floating("float", into)

    def read_double(self, _schema: Any, into: str) -> None:
        self.floating("double", into)

    def read_bytes(self, _schema: Any, into: str) -> None:
        self.size(into)
        self.add(f"end = at + {into}; {into} = data[at:end]; at = end")

    def read_string(self, _schema: Any, into: str) -> None:
        self.size(into)
        self.add(f"end = at + {into}; {into} = data[at:end].decode(); at = end")

    def read_fixed(self, schema: Any, into: str) -> None:
        self.add(f"end = at + {schema['size']}; {into} = data[at:end]; at = end")

    def read_enum(self, schema: Any, into: str) -> None:
        symbols = f"symbols_{into}"
        self.names[symbols] = tuple(
            symbol for each in schema["symbols"][:_NAMES_MAX] for symbol in (each, None)
        )  # indices are even
        self.add(f"{into} = {symbols}[data[at]]; at += 1", f"if {into} is None: raise ValueError")

    def read_record(self, schema: Any, into: str) -> None:
        values = [f"{field['name']!r}: {self.value(field['type'])}" for field in schema["fields"]]
        self.add(f"{into} = {{{', '.join(values)}}}")

    def read_array(self, schema: Any, into: str) -> None:
        self.blocks(f"{into} = []", lambda: f"{into}.append({self.value(schema['items'])})")

    def read_map(self, schema: Any, into: str) -> None:
        def entry() -> str:
            key = self.value("string")
            self.add(f"if {key} in {into}: raise ValueError")
            return f"{into}[{key}] = {self.value(schema['values'])}"

        self.blocks(f"{into} = {{}}", entry)

    def blocks(self, empty: str, item: Callable[[], str]) -> None:
        """Add what reads at most one block of items. An item takes a byte or more, so that a false count ends with the bytes."""
        count = self.name()
        self.add(empty)
        self.size(count)
        self.add(f"if {count}:")
        self.depth += 1
        self.add(f"items += {count}", "if items > items_max: raise ValueError", f"for _ in range({count}):")
        self.depth += 1
        self.add(item())
        self.depth -= 1
        self.add("if data[at]: raise ValueError", "at += 1")
        self.depth -= 1


READERS_MAX: Final = 1_024
"""Readers that a process keeps: codecs of the same schemas share them."""


@lru_cache(maxsize=READERS_MAX)
def record_reader(schema: Schema, current: Schema, *, name_records: bool = False) -> StrictReader:
    """Return what reads the bytes of a record from a position on, up to the last one.

    ``schema`` is the writer's. With ``name_records``, a record inside a union is the pair of its name and itself. The reader raises
    `NotCanonical`. It is compiled when it is first used, since a codec has many that a process never needs.
    """

    @cache
    def compiled() -> StrictReader:
        return strict_reader(schema.parsed, name_records=name_records)

    def read(data: bytes, at: int) -> Any:
        return compiled()(data, at)

    def read_resolved(data: bytes, at: int) -> Any:
        compiled()(data, at)
        stream = BytesIO(data)
        stream.seek(at)
        try:
            return schemaless_reader(stream, schema.parsed, current.parsed, name_records)
        except SchemaResolutionError as error:
            raise NotCanonical(at, f"a value of the current {current.name}", str(error)) from error

    return read if schema.canonical == current.canonical else read_resolved
