# SPDX-License-Identifier: Apache-2.0
"""Encodes the core's outcomes as Kafka records.

A record's topic is given without the prefix. Its key is what the topic is partitioned (and, for headroom and lanes, compacted) by. The same
outcome gives the same bytes: except for dead letters, no record depends on the time, the process or Kafka offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from io import BytesIO
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from fastavro import schemaless_writer

from validator.codec.dead_letters import fitted
from validator.codec.schemas import schemas, short_name
from validator.codec.strict import Named
from validator.core.inputs import DeadReason, Source
from validator.core.limits import U128_MAX
from validator.core.outcomes import (
    ChannelEvent,
    ChannelHeadroom,
    Dispatch,
    IngressEvent,
    InputKind,
    ParaHeadroom,
    Verdict,
)
from validator.core.types import maker

if TYPE_CHECKING:
    from validator.codec.schemas import Schema
    from validator.core.counters import Counters
    from validator.core.errors import FieldValue, Violation
    from validator.core.inputs import DeadLetter
    from validator.core.outcomes import Executed, Receipt

LONG_MAX: Final = 2**63 - 1
"""The greatest Avro long."""
RUNTIME_DIGEST_BYTES: Final = 32


class OutputRecord(NamedTuple):
    """A record for Kafka; ``topic`` is without the prefix."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


_record = maker(OutputRecord)
_VALUE = attrgetter("value")


def values_size(records: Iterable[OutputRecord]) -> int:
    """Return the bytes of the values of some records."""
    return sum(map(len, map(_VALUE, records)))


class BlockOutput(NamedTuple):
    """Records that are emitted together: those of ``block``, or if that is None, a batch's records that belong to no block."""

    block: int | None
    records: list[OutputRecord]


class LaneStatus(NamedTuple):
    """The status of a lane.

    ``waiting_blocks`` counts blocks, ``waiting_bytes`` raw bytes, ``waiting_resident_bytes`` and ``window_bytes`` bytes of memory
    (`core.resident`); ``waiting_for`` is in words.
    """

    executed_block: int | None
    waiting_blocks: int
    waiting_bytes: int
    waiting_for: str | None
    counters: Counters
    last_receipt: Receipt | None = None
    waiting_resident_bytes: int = 0
    window_bytes: int = 0


def verdict_id(lane: str, block: int, kind: str, index: int) -> bytes:
    """Return a verdict's id: 16 bytes of BLAKE2b over the text ``lane/block/kind/index``, numbers in decimal."""
    return blake2b(f"{lane}/{block}/{kind}/{index}".encode(), digest_size=16).digest()


def write(schema: Schema, datum: dict[str, Any]) -> bytes:
    """Return a record in single-object encoding under a schema; ``datum`` is in the form that fastavro takes."""
    stream = BytesIO()
    stream.write(schema.header)
    schemaless_writer(stream, schema.parsed, datum)
    return stream.getvalue()


def encode_dead_letter(dead: DeadLetter) -> OutputRecord:
    """Encode a dead letter, `fitted` to the limits; its key is its lane, which may be empty.

    Its headers hold the reason and the record's source, so that a copy made by another tool keeps them.
    """
    dead = fitted(dead)
    datum = {
        "lane": dead.lane,
        "reason": dead.reason.name,
        "detail": dead.detail,
        "topic": dead.source.topic,
        "partition": dead.source.partition,
        "offset": dead.source.offset,
        "block": dead.block,
        "index": dead.index,
        "raw": dead.raw,
        "whole_bytes": dead.whole and dead.whole.size,
        "whole_hash": dead.whole and dead.whole.hash,
    }
    headers = (("reason", dead.reason.name.encode()), ("source", source_header(dead.source)))
    return OutputRecord("dead-letters", dead.lane.encode(), write(schemas()["validator.DeadLetter"], datum), headers)


def source_header(source: Source) -> bytes:
    """Return a record's source as text: ``topic/partition/offset``."""
    return f"{source.topic}/{source.partition}/{source.offset}".encode()


def source_of(dead_letter: OutputRecord) -> Source:
    """Return the source of the record in an encoded dead letter."""
    topic, partition, offset = dict(dead_letter.headers)["source"].decode().rsplit("/", 2)
    return Source(topic, int(partition), int(offset))


def reason_of(dead_letter: OutputRecord) -> DeadReason:
    """Return the reason of an encoded dead letter."""
    return DeadReason[dict(dead_letter.headers)["reason"].decode()]


class Encoder:
    """Encodes what one lane emits under one runtime.

    ``runtime_digest`` is 32 bytes over plugins with their versions, and the chain's configuration.
    """

    def __init__(self, lane: str, runtime_digest: bytes) -> None:
        if len(runtime_digest) != RUNTIME_DIGEST_BYTES:
            raise ValueError(f"runtime digest: expected {RUNTIME_DIGEST_BYTES} bytes, found {len(runtime_digest)}")
        self.lane = lane
        self.key = lane.encode()
        self.runtime_digest = runtime_digest
        self._id_start = blake2b(self.key + b"/", digest_size=16)
        bound = {kind: bind(avro_text(lane)) for kind, bind in _writers().items()}
        self._verdict, self._dispatch = bound[Verdict], bound[Dispatch]
        self._channel_event, self._ingress_event = bound[ChannelEvent], bound[IngressEvent]
        self._para_headroom, self._channel_headroom = bound[ParaHeadroom], bound[ChannelHeadroom]

    def executed(self, executed: Executed) -> list[OutputRecord]:
        """Encode everything that a block emits, its receipt last."""
        key, block = self.key, executed.receipt.block
        records = [_record(("verdicts", key, self.verdict(verdict), ())) for verdict in executed.verdicts]
        records += [OutputRecord("dispatches", key, self.dispatch(dispatch)) for dispatch in executed.dispatches]
        records += [OutputRecord("channel-events", key, self.channel_event(event)) for event in executed.channel_events]
        records += [OutputRecord("ingress-events", key, self.ingress_event(event)) for event in executed.ingress_events]
        records += [self.headroom(block, headroom) for headroom in executed.headroom]
        records.append(self.receipt(executed.receipt))
        return records

    def verdict(self, verdict: Verdict) -> bytes:
        """Encode a verdict."""
        identity = self._id_start.copy()
        identity.update(b"%d/%b/%d" % (verdict[1], _KINDS[verdict[0]], verdict[2]))
        return self._verdict(verdict, self.runtime_digest, identity.digest())

    def dispatch(self, dispatch: Dispatch) -> bytes:
        """Encode an upward message's dispatch."""
        return self._dispatch(dispatch, self.runtime_digest)

    def channel_event(self, event: ChannelEvent) -> bytes:
        """Encode a channel event; a positive deposit is reserved, a negative one returned."""
        return self._channel_event(event, self.runtime_digest)

    def ingress_event(self, event: IngressEvent) -> bytes:
        """Encode an ingress event."""
        return self._ingress_event(event, self.runtime_digest)

    def headroom(self, block: int, headroom: ParaHeadroom | ChannelHeadroom) -> OutputRecord:
        """Encode the headroom of a para or a channel after ``block``; the topic keeps the last record per para and channel."""
        if isinstance(headroom, ParaHeadroom):
            value = self._para_headroom(headroom, avro_long(block))
            return _record(("headroom", b"%b/%d" % (self.key, headroom.para_id), value, ()))
        value = self._channel_headroom(headroom, avro_long(block))
        return _record(("headroom", b"%b/%d/%d" % (self.key, headroom.sender, headroom.recipient), value, ()))

    def receipt(self, receipt: Receipt) -> OutputRecord:
        """Encode a block's receipt."""
        return OutputRecord("receipts", self.key, write(schemas()["validator.Receipt"], self._receipt(receipt)))

    def lane_status(self, status: LaneStatus) -> OutputRecord:
        """Encode the lane's status."""
        counters = status.counters
        datum = {
            "lane": self.lane,
            **status._asdict(),
            "consumed": counters.consumed,
            "accepted": counters.accepted,
            "rejected": counters.rejected,
            "duplicate": counters.duplicate,
            "dead": counters.dead,
            "waiting": counters.waiting,
            "last_receipt": None if status.last_receipt is None else self._receipt(status.last_receipt),
        }
        return OutputRecord("lanes", self.key, write(schemas()["validator.LaneStatus"], datum))

    def _receipt(self, receipt: Receipt) -> dict[str, Any]:
        # a block's weights may add up to more than an Avro long holds: the sum is capped
        weight = min(receipt.weight_used, LONG_MAX)
        return {"lane": self.lane, **receipt._asdict(), "weight_used": weight, "runtime_digest": self.runtime_digest}


# --- writers that are made of the schemas -------------------------------------------------------------------------------------------------


_BoundWriter: TypeAlias = Callable[[bytes], Callable[..., bytes]]


class _Source(Named):
    """Source code that writes records of one schema from named tuples of the core, in a quarter of fastavro's time.

    What the core gives is not checked again. Nothing ends up in the source but names of fields, and the expressions of `_writers`.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema.source)
        self.names: dict[str, Any] = {"_header": schema.header, **_IN_EXPRESSIONS}
        self.lines: list[str] = []

    def writer(self, fields: Sequence[str], given: dict[str, str], arguments: Sequence[str]) -> _BoundWriter:
        """Return what takes a lane's bytes, and returns the writer of the lane's tuples with these fields.

        ``given`` are expressions by field; ``arguments`` are fields whose bytes the writer takes besides a tuple.
        """
        given = {name: name for name in arguments} | given
        _, *others = self.schema["fields"]  # the first is the lane
        parts = [given.get(each["name"]) or self.value(each["type"], each["name"]) for each in others]
        lines = (f"{', '.join(fields)} = item", *self.lines, f"return _join((start, {', '.join(parts)}))")
        source = "\n        ".join((f"def write({', '.join(('item', *arguments))}):", *lines))
        bind = f"def bind(lane):\n    start = _header + lane\n    {source}\n    return write"
        exec(compile(bind, "<writer of a tuple>", "exec"), self.names)  # noqa: S102 - the source is our own
        bound: _BoundWriter = self.names["bind"]
        return bound

    def value(self, schema: Any, given: str) -> str:
        """Return the expression of a value's bytes."""
        if isinstance(schema, list):
            _, other = schema  # null and another type
            return f"(b'\\x00' if {given} is None else b'\\x02' + {self.value(other, given)})"
        kind, attributes = self.resolve(schema)
        match kind:
            case "boolean":
                return f"(b'\\x01' if {given} else b'\\x00')"
            case "bytes":
                return f"(_long(len({given})) + {given})"
            case "fixed":
                return given
            case "enum":
                symbols = f"_symbols_{len(self.names)}"
                self.names[symbols] = {symbol: avro_long(at) for at, symbol in enumerate(attributes["symbols"])}
                return f"{symbols}[{given}]"
            case "array":
                return self.array(attributes["items"], given)
            case _:
                return f"_{kind}({given})"

    def array(self, schema: Any, given: str) -> str:
        """Add what writes an array, and return the name of its bytes; items that are records are named tuples."""
        into = f"_array_{given}"
        kind, attributes = self.resolve(schema)
        fields = attributes["fields"] if kind == "record" else [{"name": "item", "type": schema}]
        names = ", ".join(f"_{each['name']}" for each in fields)
        parts = " + ".join(self.value(each["type"], f"_{each['name']}") for each in fields)
        self.lines += [
            f"{into} = b'\\x00'",
            f"if {given}:",
            f"    {into} = [_long(len({given}))]",
            f"    for {names} in {given}: {into}.append({parts})",
            f"    {into}.append(b'\\x00')",
            f"    {into} = _join({into})",
        ]
        return into


@cache
def _writers() -> dict[type, _BoundWriter]:
    """Return what writes each kind of outcome that a block may have many of."""
    known = schemas()
    headroom = {short_name(schema.name): schema for schema in known.of_topic("headroom")}
    error = {
        "kind": "_kinds[kind]",
        "outcome": "(b'\\x00' if violation is None else b'\\x02')",
        "error": "(b'\\x00' if violation is None else b'\\x02' + _violation(violation))",
    }
    deposits = {
        f"{side}_{verb}": f"max({sign}{side}_deposit, 0).to_bytes(16)"
        for side in ("sender", "recipient")
        for verb, sign in (("reserved", ""), ("returned", "-"))
    }
    kinds: tuple[tuple[Any, Schema, dict[str, str], tuple[str, ...]], ...] = (
        (Verdict, known["validator.Verdict"], error, ("runtime_digest", "id")),
        (Dispatch, known["validator.Dispatch"], {"weight": "_long(min(weight, _long_max))"}, ("runtime_digest",)),
        (ChannelEvent, known["validator.ChannelEvent"], deposits, ("runtime_digest",)),
        (IngressEvent, known["validator.IngressEvent"], {}, ("runtime_digest",)),
        (ParaHeadroom, headroom["ParaHeadroom"], {}, ("block",)),
        (ChannelHeadroom, headroom["ChannelHeadroom"], {}, ("block",)),
    )
    return {kind: _Source(schema).writer(kind._fields, given, arguments) for kind, schema, given, arguments in kinds}


# --- Avro binary: Avro 1.12 specification, "Binary encoding" -----------------------------------------------------------------------------


@lru_cache(maxsize=65_536)  # block numbers, indexes and para ids recur
def avro_long(value: int) -> bytes:
    """Return an Avro long: zig-zag, then seven bits a byte, the lowest first."""
    if not -LONG_MAX - 1 <= value <= LONG_MAX:
        raise OverflowError(f"expected an Avro long, found {value}")
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


@lru_cache(maxsize=4096)  # names of errors and of their fields
def avro_text(value: str) -> bytes:
    """Return an Avro string."""
    return _text(value)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return avro_long(len(encoded)) + encoded


def _violation(violation: Violation) -> bytes:
    details = violation.details()
    parts = [avro_text(violation.kind), avro_text(violation.clause)]
    if details:
        parts.append(avro_long(len(details)))
        for name, value in details.items():
            parts += (avro_text(name), _detail(value))
    parts.append(b"\x00")
    return b"".join(parts)


def _detail(value: FieldValue) -> bytes:
    """Encode a value of the union ``long, U128, string, map of long, array of long or array of long``."""
    if isinstance(value, str):
        return b"\x04" + avro_text(value)
    if isinstance(value, Sequence):
        return b"\x08" + _array(
            b"\x00" + avro_long(each) if isinstance(each, int) else b"\x02" + _array(map(avro_long, each))
            for each in value
        )
    if isinstance(value, int):
        if value <= LONG_MAX:
            return b"\x00" + avro_long(value)
        if value <= U128_MAX:
            return b"\x02" + value.to_bytes(16)
        raise OverflowError(f"expected at most a u128, found {value}")
    entries = b"".join(avro_text(name) + avro_long(number) for name, number in value.items())
    return b"\x06" + (avro_long(len(value)) + entries if value else b"") + b"\x00"


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return (avro_long(len(encoded)) + b"".join(encoded) if encoded else b"") + b"\x00"


_KINDS: Final = {kind: kind.value.encode() for kind in InputKind}
_IN_EXPRESSIONS: Final = {
    "_join": b"".join,
    "_long": avro_long,
    "_string": _text,
    "_kinds": {kind: avro_text(kind.value) for kind in InputKind},
    "_violation": _violation,
    "_long_max": LONG_MAX,
}
"""What the expressions of `_writers` name besides a tuple's fields."""
