# SPDX-License-Identifier: Apache-2.0
"""Records as JSON: what users write to `validator submit` and read from `validator watch --json`.

Names come from the schemas. Bytes and hashes are hex, read with or without ``0x``. `to_json` writes lower-case digits: bare ones inside
the product, with ``0x`` for people. Balances and weights are plain integers, absent optional fields null. Some forms differ from the Avro
ones. A channel request is flat, with a ``kind``, so none of its arguments may have the name of one of the record's own fields, such as
``index``. A verdict has ``ok``, and its error is ``{"kind", **fields, "clause"}``: that of the conformance traces with its clause. A record
whose schema has the attribute ``"json": "pair"`` is the array of its fields (a channel is ``[sender, recipient]``). One with
``"json": "sparse"`` is an object without its null fields.

A transport of a busy chain sends every record through here. So each schema also gets a separate function, whose source is made here, and
which converts what is usual at a fifth of the cost: a plain object with every field, and hex in lower case without ``0x``. On anything else
it raises an exception of `UNUSUAL`, and the careful way converts the record or says what is wrong with it. Nothing of a record or of a file
ends up in the source but names of fields and symbols, as literals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.codec.codec import Codec, shared_codec
from validator.codec.decode import check_ranges, decode_record
from validator.codec.encode import LONG_MAX, avro_long, write
from validator.codec.framing import described
from validator.codec.record_types import LONG_MAXIMA
from validator.codec.schemas import HEADER_SIZE, MARKER, short_name
from validator.codec.strict import ITEMS_MAX, Named, NotCanonical, SourceLines, record_reader
from validator.core.errors import LimitError
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.core.limits import RECORD_BYTES_MAX, U32_MAX
from validator.document import printable
from validator.errors import UserError
from validator.hexadecimal import from_hex, to_hex
from validator.names import closest
from validator.topics import INPUT_TOPICS
from validator.visible import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from validator.codec.schemas import Json, Schema


_NOWHERE: Final = Source("", 0, 0)
_CALL: Final = "request"
"""The field of a channel request that is a union of calls: JSON has the call's name as ``kind``, with its arguments next to it."""


def encode_input(codec: Codec, kind: RecordKind, record: Json, protocol: str) -> bytes:
    """Return the Kafka value of a protocol's input, given as JSON.

    Raises `UserError` that names the field, what was expected and what was found. A returned value always decodes.
    """
    schema = codec.input_schema(kind, protocol)
    quick = _quick(schema)
    if quick is not None:
        try:
            value, datum = quick(record)
            check_ranges(codec, value, datum)
            return value
        except (LimitError, *UNUSUAL):  # what follows says why
            pass
    value = _encoded(schema, record)
    decoded = decode_record(codec, kind, value, _NOWHERE)
    if isinstance(decoded, DeadLetter):
        raise UserError(decoded.detail.removeprefix(schema.name).lstrip("."))
    return value


def _calls(schema: Json) -> dict[str, str]:
    """Return the calls of a channel request's record, by kind; empty for any other record."""
    field = next((field for field in schema.get("fields", ()) if field["name"] == _CALL), None)
    if field is None or not isinstance(field["type"], list):
        return {}
    names = (branch if isinstance(branch, str) else branch["name"] for branch in field["type"])
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", short_name(name)).lower(): name for name in names}


def encode_json(schema: Schema, record: Json) -> bytes:
    """Return the Kafka value of a schema's record, given in the form that `to_json` returns. Raises `UserError`."""
    quick = _quick(schema)
    if quick is not None:
        try:
            return quick(record)[0]
        except UNUSUAL:
            pass
    return _encoded(schema, record)


def _encoded(schema: Schema, record: Json) -> bytes:
    return write(schema, _to_avro(schema).convert(record))


def shown_json(topic: str, value: bytes, codec: Codec | None = None) -> dict[str, Any]:
    """Return what `to_json` returns as people read it: hex begins with ``0x``, a session that never comes is null. Raises `UserError`."""
    return without_never(to_json(topic, value, codec, digits=to_hex))


def without_never(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record in JSON in which a session that no chain reaches is null."""
    session = record.get("expires_session")
    return record if session is None or session < U32_MAX else {**record, "expires_session": None}


def error_fields(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error's own fields from its JSON, without its kind, its clause and, as `watch --json` adds it, its ``rule``."""
    return {name: value for name, value in error.items() if name not in ("kind", "clause", "rule")}


def without_clause(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict in JSON with its error as a comparison takes it, and as conformance traces have it: kind and fields."""
    error = record.get("error")
    if not isinstance(error, dict):
        return dict(record)
    kind = {"kind": error["kind"]} if "kind" in error else {}
    return {**record, "error": kind | error_fields(error)}


def to_json(
    topic: str, value: bytes, codec: Codec | None = None, *, digits: Callable[[bytes], Any] = bytes.hex
) -> dict[str, Any]:
    """Return, as JSON, the record that a Kafka value of a topic (without the prefix) holds. Raises `UserError`.

    Without a ``codec``, the records of protocols are unknown; outputs do not need one. ``digits`` turns bytes into text, or leaves them.
    """
    codec = shared_codec() if codec is None else codec
    schema = _schema_of(topic, value, codec)
    return _read_as(topic, value, schema, codec.schemas[schema.name], digits)


def comparable_json(
    topic: str, one: bytes, other: bytes, *, digits: Callable[[bytes], Any] = bytes.hex
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two values of a topic as `to_json` does, without the fields that the writer of either did not know. Raises `UserError`."""
    first, second = (_schema_of(topic, value, shared_codec()) for value in (one, other))
    known = first if first.version <= second.version else second
    return _read_as(topic, one, first, known, digits), _read_as(topic, other, second, known, digits)


def _read_as(
    topic: str, value: bytes, schema: Schema, wanted: Schema, digits: Callable[[bytes], Any]
) -> dict[str, Any]:
    try:
        datum = record_reader(schema, wanted, name_records=True)(value, HEADER_SIZE)
    except NotCanonical as error:
        raise UserError(f"{topic}: {error.within(schema.name)}") from error
    record: dict[str, Any] = _to_json(wanted, digits).convert(datum)
    return record


def datum_to_json(
    schema: Schema, datum: dict[str, Any], *, digits: Callable[[bytes], Any] = bytes.hex
) -> dict[str, Any]:
    """Return, as JSON, a record that fastavro has read; none of its unions may have more than one kind of record."""
    record: dict[str, Any] = _to_json(schema, digits).convert(datum)
    return record


def _schema_of(topic: str, value: bytes, codec: Codec) -> Schema:
    expected = codec.names(topic)
    schema = codec.by_header.get(value[:HEADER_SIZE]) if len(value) <= RECORD_BYTES_MAX * 2 else None
    if schema is None or schema.name not in expected:
        header = value[:HEADER_SIZE]
        is_unknown = header.startswith(MARKER) and len(header) == HEADER_SIZE and header not in codec.by_header
        if is_unknown and topic not in INPUT_TOPICS:
            raise UserError(
                f"{topic}: expected a record of {' or '.join(expected)}, found one whose schema has the unknown fingerprint "
                f"{header[len(MARKER) :].hex()}: a newer version has written it; upgrade the package (`validator schemas list`)"
            )
        found = schema.name if schema else described(value)
        raise UserError(f"{topic}: expected a record of {' or '.join(expected)}, found {found}")
    return schema


class _ToAvro(Named):
    """Converts JSON to what fastavro writes, checking every value against the schema; a path names the field."""

    def convert(self, value: Json) -> Any:
        return self.value(self.schema, value, "")

    def value(self, schema: Json, value: Json, path: str) -> Any:
        if isinstance(schema, list):
            return self.union(schema, value, path)
        kind, attributes = self.resolve(schema)
        check: Callable[[dict[str, Any], Json, str], Any] = getattr(self, f"to_{kind}")
        return check(attributes, value, path)

    def union(self, branches: list[Json], value: Json, path: str) -> Any:
        if value is None and "null" in branches:
            return None
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.value(others[0], value, path)
        return self.detail(value, path)

    def detail(self, value: Json, path: str) -> Any:
        """Convert a value of an error's details, the only union of several types besides a request's."""
        if isinstance(value, list):
            return [
                [self.to_long({}, number, path) for number in each]
                if isinstance(each, list)
                else self.to_long({}, each, path)
                for each in value
            ]
        if isinstance(value, bool) or not isinstance(value, int | str | dict):
            raise self.error(path, "an integer, a string, an object of integers or an array of them", value)
        if isinstance(value, int) and value > LONG_MAX:
            return self.to_fixed({"size": 16, "logicalType": "u128"}, value, path)
        if isinstance(value, dict):
            return {name: self.to_long({}, number, self.join(path, name)) for name, number in value.items()}
        return value

    def to_record(self, attributes: dict[str, Any], value: Json, path: str) -> Any:
        if attributes.get("json") == "pair":
            names = [field["name"] for field in attributes["fields"]]
            if not isinstance(value, list) or len(value) != len(names):
                raise self.error(path, f"[{', '.join(names)}]", value)
            value = dict(zip(names, value, strict=True))
        if not isinstance(value, dict):
            raise self.error(path, "an object", value)
        calls = _calls(attributes)
        if calls:
            value = self.request(value, path, calls)
        elif attributes["name"] == "validator.Verdict":
            value = self.verdict(value, path)
        fields = {field["name"]: field for field in attributes["fields"]}
        for key in value:
            if key not in fields:
                close = closest(str(key), fields)
                hint = f"; did you mean {close!r}?" if close else f"; known are {', '.join(fields)}"
                if key == "kind":
                    hint = "; only channel requests have a kind"
                raise UserError(f"{self.join(path, str(key))}: no such field{hint}")
        converted = {}
        for key, field in fields.items():
            there = self.join(path, key)
            if calls and key == _CALL:
                converted[key] = self.call(value[key])
            elif key in value:
                converted[key] = self.value(field["type"], value[key], there)
            elif "default" in field:
                converted[key] = self.default(field)
            else:
                raise UserError(f"{there}: expected a value, found none")
        return converted

    def default(self, field: dict[str, Any]) -> Any:
        default = field["default"]
        kind = None if isinstance(field["type"], list) else self.resolve(field["type"])[0]
        return default.encode("latin-1") if kind in ("fixed", "bytes") else default

    def request(self, value: dict[str, Any], path: str, calls: dict[str, str]) -> dict[str, Any]:
        """Nest a flat request's arguments in its call."""
        if "kind" not in value:
            raise UserError(f"{self.join(path, 'kind')}: expected one of {', '.join(calls)}, found none")
        kind = value["kind"]
        if not isinstance(kind, str) or kind not in calls:
            close = closest(str(kind), calls)
            hint = f"; did you mean {close!r}?" if close else ""
            refused = self.error(self.join(path, "kind"), f"one of {', '.join(calls)}", kind)
            raise UserError(f"{refused}{hint}")
        outer: dict[str, Any] = {key: value[key] for key in ("lane", "block", "index") if key in value}
        inner = {key: value[key] for key in value if key not in ("lane", "block", "index", "kind")}
        return {**outer, _CALL: (calls[kind], inner)}

    def call(self, value: tuple[str, dict[str, Any]]) -> Any:
        name, arguments = value
        return name, self.to_record(self.types[name], arguments, "")

    def verdict(self, value: dict[str, Any], path: str) -> dict[str, Any]:
        """Turn ``ok`` and ``error`` into the record's outcome and error."""
        value = dict(value)
        ok, error = value.pop("ok", None), value.pop("error", None)
        if not isinstance(ok, bool):
            raise self.error(self.join(path, "ok"), "true or false", ok)
        value["outcome"] = "accepted" if ok else "rejected"
        value["error"] = None
        if error is not None:
            if not isinstance(error, dict) or "kind" not in error:
                raise self.error(self.join(path, "error"), "an object with a kind", error)
            details = [{"name": name, "value": field} for name, field in error_fields(error).items()]
            value["error"] = {"kind": error["kind"], "clause": error.get("clause", ""), "details": details}
        return value

    def to_boolean(self, _attributes: dict[str, Any], value: Json, path: str) -> bool:
        if not isinstance(value, bool):
            raise self.error(path, "true or false", value)
        return value

    def to_long(self, attributes: dict[str, Any], value: Json, path: str) -> int:
        low, high = LONG_RANGES[attributes.get("logicalType")]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(path, f"an integer from {low} to {high}", value)
        return value

    def to_string(self, _attributes: dict[str, Any], value: Json, path: str) -> str:
        if not isinstance(value, str):
            raise self.error(path, "a string", value)
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.error(path, "Unicode text", value) from error
        return value

    def to_bytes(self, _attributes: dict[str, Any], value: Json, path: str) -> bytes:
        try:
            return from_hex(value)
        except (AttributeError, ValueError):
            is_odd = isinstance(value, str) and re.fullmatch("(0x)?[0-9a-f]([0-9a-f]{2})*", value)
            raise self.error(path, "an even number of hex digits" if is_odd else "hex", value) from None

    def to_fixed(self, attributes: dict[str, Any], value: Json, path: str) -> bytes:
        size: int = attributes["size"]
        if attributes.get("logicalType") in UNSIGNED:
            greatest = 2 ** (8 * size) - 1
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= greatest:
                raise self.error(path, f"an integer from 0 to {greatest}", value)
            return value.to_bytes(size)
        converted = self.to_bytes({}, value, path)
        if len(converted) != size:
            raise self.error(path, f"{size} bytes in hex", value)
        return converted

    def to_enum(self, attributes: dict[str, Any], value: Json, path: str) -> str:
        if value not in attributes["symbols"]:
            raise self.error(path, f"one of {', '.join(attributes['symbols'])}", value)
        symbol: str = value
        return symbol

    def to_array(self, attributes: dict[str, Any], value: Json, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise self.error(path, "a list", value)
        return [self.value(attributes["items"], item, f"{path}[{position}]") for position, item in enumerate(value)]

    def to_map(self, attributes: dict[str, Any], value: Json, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.error(path, "an object", value)
        return {
            self.to_string({}, name, f"{path} key"): self.value(attributes["values"], member, self.join(path, name))
            for name, member in value.items()
        }

    @staticmethod
    def join(path: str, name: str) -> str:
        return f"{path}.{printable(name)}" if path else printable(name)

    @staticmethod
    def error(path: str, expected: str, value: Json) -> UserError:
        return UserError(f"{path or 'record'}: expected {expected}, found {shown(value)}")


class _ToJson(Named):
    """Converts what fastavro reads (records inside unions as (name, record)) to JSON."""

    def __init__(self, schema: Json, digits: Callable[[bytes], Any]) -> None:
        super().__init__(schema)
        self.digits = digits

    def convert(self, datum: Any) -> Any:
        return self.value(self.schema, datum)

    def value(self, schema: Json, datum: Any) -> Any:
        if datum is None:
            return None
        if isinstance(schema, list):
            if isinstance(datum, tuple):
                return self.value(datum[0], datum[1])
            others = [branch for branch in schema if branch != "null"]
            if len(others) > 1:
                return int.from_bytes(datum) if isinstance(datum, bytes) else datum
            return self.value(others[0], datum)
        kind, attributes = self.resolve(schema)
        match kind:
            case "bytes":
                return self.digits(datum)
            case "fixed":
                return int.from_bytes(datum) if attributes.get("logicalType") in UNSIGNED else self.digits(datum)
            case "array":
                return [self.value(attributes["items"], item) for item in datum]
            case "map":
                return {name: self.value(attributes["values"], member) for name, member in datum.items()}
            case "record":
                return self.record(attributes, datum)
            case _:
                return datum

    def record(self, attributes: dict[str, Any], datum: dict[str, Any]) -> Any:
        if calls := _calls(attributes):
            call, _ = datum[_CALL]
            outer: dict[str, Any] = {key: datum[key] for key in ("lane", "block", "index")}
            arguments: dict[str, Any] = self.value([call], datum[_CALL])
            return {**outer, "kind": next(kind for kind, each in calls.items() if each == call), **arguments}
        record = {field["name"]: self.value(field["type"], datum[field["name"]]) for field in attributes["fields"]}
        match attributes.get("json"):
            case "sparse":
                return {key: value for key, value in record.items() if value is not None}
            case "pair":
                return list(record.values())
        return self.verdict(record) if attributes["name"] == "validator.Verdict" else record

    @staticmethod
    def verdict(record: dict[str, Any]) -> dict[str, Any]:
        shaped: dict[str, Any] = {}
        for key, value in record.items():
            if key == "outcome":
                shaped["ok"] = value == "accepted"
            elif key != "error":
                shaped[key] = value
            elif value is not None:
                details = {each["name"]: each["value"] for each in value["details"]}
                shaped["error"] = {"kind": value["kind"], **details, "clause": value["clause"]}
        return shaped


@lru_cache(maxsize=256)
def _quick(schema: Schema) -> QuickWriter | None:
    return quick_writer(schema.source, schema.header, _is_plain)


def _is_plain(record: dict[str, Any]) -> bool:
    """Return whether a record's JSON is an object of its fields; one that is read back may lack those that are null."""
    return record["name"] != "validator.Verdict" and record.get("json") != "pair" and not _calls(record)


@lru_cache(maxsize=256)
def _to_avro(schema: Schema) -> _ToAvro:
    return _ToAvro(schema.source)


@lru_cache(maxsize=256)
def _to_json(schema: Schema, digits: Callable[[bytes], Any]) -> _ToJson:
    return _ToJson(schema.source, digits)


QuickWriter: TypeAlias = Callable[[Any], tuple[bytes, dict[str, Any]]]
"""Takes a record in JSON form, and returns its Kafka value and what a reader of the value returns."""

UNUSUAL: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a quick writer raises on JSON that it does not convert."""
LONG_RANGES: Final[dict[str | None, tuple[int, int]]] = {
    None: (-LONG_MAX - 1, LONG_MAX),
    **{name: (0, greatest) for name, greatest in LONG_MAXIMA.items()},
}
UNSIGNED: Final = frozenset({"u64", "u128"})
"""Logical types of big-endian integers of a fixed size."""


def quick_writer(schema: Any, header: bytes, is_plain: Callable[[dict[str, Any]], bool]) -> QuickWriter | None:
    """Return the writer of a record's schema, or None if part of it is unusual.

    ``header`` is what every value begins with. ``is_plain`` says, by a record's attributes, whether its JSON is an object of its fields.
    """
    source = _Writing(Named(schema), is_plain)
    try:
        value = source.value(schema, "given")
    except NotImplementedError:
        return None
    source.flush()
    lines = (
        "def write(given):",
        "    items = 0",
        "    parts = [header]",
        *source.lines,
        "    if items > items_max: raise ValueError",
        f"    return b''.join(parts), {value}",
    )
    names = {**source.names, "header": header, "long": avro_long, "items_max": ITEMS_MAX, "from_hex": bytes.fromhex}
    exec(compile("\n".join(lines), "<writer of a schema>", "exec"), names)  # noqa: S102 - the source is our own
    write: QuickWriter = names["write"]
    return write


class _Writing(SourceLines):
    """Source that writes the values of a schema, and the parts of the value that the next line adds."""

    def __init__(self, types: Named, is_plain: Callable[[dict[str, Any]], bool]) -> None:
        super().__init__(types)
        self.is_plain = is_plain
        self.inside: list[str] = []
        self.parts: list[str] = []

    def flush(self) -> None:
        """Add what appends the parts so far: before a line that is not always run, or run several times."""
        if self.parts:
            self.add(f"parts += ({', '.join(self.parts)},)")
        self.parts = []

    def expect(self, condition: str) -> None:
        self.add(f"if not ({condition}): raise ValueError")

    def value(self, schema: Any, given: str) -> str:
        """Add what writes the value in a variable, and return the expression of what a reader returns."""
        if isinstance(schema, list):
            return self.optional(schema, given)
        kind, attributes = self.types.resolve(schema)
        write = getattr(self, f"write_{kind}", None)
        if write is None:
            raise NotImplementedError(kind)
        found: str = write(attributes, given)
        return found

    def optional(self, branches: list[Any], given: str) -> str:
        others = [branch for branch in branches if branch != "null"]
        if len(branches) != 2 or len(others) != 1:
            raise NotImplementedError("a union of several types")
        into, null = self.name(), branches.index("null")
        self.flush()
        self.add(f"{into} = None", f"if {given} is None: parts.append({bytes((2 * null,))!r})", "else:")
        self.depth += 1
        self.parts.append(repr(bytes((2 - 2 * null,))))
        value = self.value(others[0], given)
        self.flush()
        self.add(f"{into} = {value}")
        self.depth -= 1
        return into

    def write_boolean(self, _attributes: dict[str, Any], given: str) -> str:
        self.expect(f"type({given}) is bool")
        self.parts.append(f"b'\\x01' if {given} else b'\\x00'")
        return given

    def write_long(self, attributes: dict[str, Any], given: str) -> str:
        low, high = LONG_RANGES[attributes.get("logicalType")]
        self.expect(f"type({given}) is int and {low} <= {given} <= {high}")
        self.parts.append(f"long({given})")
        return given

    def write_string(self, _attributes: dict[str, Any], given: str) -> str:
        encoded = self.name()
        self.expect(f"type({given}) is str")
        self.add(f"{encoded} = {given}.encode()")
        self.parts += (f"long(len({encoded}))", encoded)
        return given

    def hexadecimal(self, given: str) -> str:
        into = self.name()
        self.add(f"{into} = from_hex({given})")
        self.expect(f"{into}.hex() == {given}")
        return into

    def write_bytes(self, _attributes: dict[str, Any], given: str) -> str:
        into = self.hexadecimal(given)
        self.parts += (f"long(len({into}))", into)
        return into

    def write_fixed(self, attributes: dict[str, Any], given: str) -> str:
        size = attributes["size"]
        if attributes.get("logicalType") in UNSIGNED:
            into = self.name()
            self.expect(f"type({given}) is int")
            self.add(f"{into} = {given}.to_bytes({size}, 'big')")
        else:
            into = self.hexadecimal(given)
            self.expect(f"len({into}) == {size}")
        self.parts.append(into)
        return into

    def write_enum(self, attributes: dict[str, Any], given: str) -> str:
        symbols = f"symbols_{self.name()}"
        self.names[symbols] = {symbol: avro_long(at) for at, symbol in enumerate(attributes["symbols"])}
        self.parts.append(f"{symbols}[{given}]")
        return given

    def write_record(self, attributes: dict[str, Any], given: str) -> str:
        name = attributes["name"]
        if name in self.inside or not self.is_plain(attributes):
            raise NotImplementedError(f"{name} contains itself, or its JSON is not an object of its fields")
        self.inside.append(name)
        fields = attributes["fields"]
        self.expect(f"type({given}) is dict and len({given}) == {len(fields)}")
        values = []
        for field in fields:
            member = self.name()
            self.add(f"{member} = {given}[{field['name']!r}]")
            values.append(f"{field['name']!r}: {self.value(field['type'], member)}")
        self.inside.pop()
        return f"{{{', '.join(values)}}}"

    def write_array(self, attributes: dict[str, Any], given: str) -> str:
        into, item = self.name(), self.name()
        self.expect(f"type({given}) is list")
        self.begin_block(given, f"{into} = []", f"for {item} in {given}:")
        value = self.value(attributes["items"], item)
        self.end_block(f"{into}.append({value})")
        return into

    def write_map(self, attributes: dict[str, Any], given: str) -> str:
        into, key, member = self.name(), self.name(), self.name()
        self.expect(f"type({given}) is dict")
        self.begin_block(given, f"{into} = {{}}", f"for {key}, {member} in {given}.items():")
        self.write_string({}, key)
        value = self.value(attributes["values"], member)
        self.end_block(f"{into}[{key}] = {value}")
        return into

    def begin_block(self, given: str, empty: str, loop: str) -> None:
        """Add what begins an array or map, which has a block only if it has items."""
        self.flush()
        self.add(empty, f"if {given}:")
        self.depth += 1
        self.add(f"items += len({given})", f"parts.append(long(len({given})))", loop)
        self.depth += 1

    def end_block(self, keep: str) -> None:
        self.flush()
        self.add(keep)
        self.depth -= 2
        self.parts.append(repr(b"\x00"))
