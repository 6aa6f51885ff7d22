# SPDX-License-Identifier: Apache-2.0
"""Encodes the core's outcomes as Kafka records.

A record's topic is given without the prefix. Its key is what the topic is partitioned (and, for headroom and lanes, compacted) by. The same
outcome gives the same bytes: except for dead letters, no record depends on the time, the process or Kafka offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from io import BytesIO
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastavro import schemaless_writer

from validator.codec.dead_letters import fitted
from validator.codec.schemas import schemas, short_name
from validator.core.inputs import DeadReason, Source
from validator.core.limits import U128_MAX
from validator.core.outcomes import InputKind, ParaHeadroom, Signal
from validator.core.types import maker

if TYPE_CHECKING:
    from validator.codec.schemas import Schema
    from validator.core.counters import Counters
    from validator.core.errors import FieldValue, Violation
    from validator.core.inputs import DeadLetter
    from validator.core.outcomes import (
        ChannelEvent,
        ChannelHeadroom,
        Dispatch,
        Executed,
        IngressEvent,
        Receipt,
        Verdict,
    )

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


def _signals(signals: Sequence[Signal]) -> bytes:
    """Encode the signals of a candidate as an Avro array."""
    parts = [avro_long(len(signals))]
    for kind, selector, offset, peer in signals:
        parts.append(avro_text(kind))
        parts += (b"\x00" if number is None else b"\x02" + avro_long(number) for number in (selector, offset))
        parts.append(b"\x00" if peer is None else b"\x02" + avro_long(len(peer)) + peer)
    return b"".join((*parts, b"\x00"))


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
        self._schemas = schemas()
        headroom = {short_name(schema.name): schema.header for schema in self._schemas.of_topic("headroom")}
        self._verdict_start = self._schemas["validator.Verdict"].header + avro_text(lane)
        self._para_headroom_start = headroom["ParaHeadroom"] + avro_text(lane)
        self._channel_headroom_start = headroom["ChannelHeadroom"] + avro_text(lane)
        self._id_start = blake2b(self.key + b"/", digest_size=16)

    def executed(self, executed: Executed) -> list[OutputRecord]:
        """Encode everything that a block emits, its receipt last."""
        key, block = self.key, executed.receipt.block
        records = [_record(("verdicts", key, self.verdict(verdict), ())) for verdict in executed.verdicts]
        records += [OutputRecord("dispatches", key, self.dispatch(dispatch)) for dispatch in executed.dispatches]
        records += [OutputRecord("channel-events", key, self.channel_event(event)) for event in executed.channel_events]
        records += [OutputRecord("ingress-events", key, self.ingress_event(event)) for event in executed.ingress_events]
        records += [self.headroom(block, headroom) for headroom in executed.headroom]
        records.append(
            OutputRecord("receipts", key, write(self._schemas["validator.Receipt"], self._receipt(executed.receipt)))
        )
        return records

    def verdict(self, verdict: Verdict) -> bytes:
        """Encode a verdict.

        Hand-written, but byte for byte what fastavro writes (a test compares them). There is one verdict per input, and building the dict
        and passing it to fastavro took four times as long. What is the same in every verdict of a lane is encoded once.
        """
        kind, block, index, para_id, violation, enacted, messages, effective, expires, candidate_hash, signals = verdict
        kind_text, encoded_kind = _KINDS[kind]
        place = f"{block}/{kind_text}/{index}".encode()
        identity = self._id_start.copy()
        identity.update(place)
        parts = [self._verdict_start, avro_long(block), encoded_kind, avro_long(index), avro_long(para_id)]
        if violation is None:
            parts.append(b"\x00\x00\x01" if enacted else b"\x00\x00\x00")
        else:
            parts += (b"\x02\x02", _violation(violation), b"\x01" if enacted else b"\x00")
        if messages:
            parts.append(avro_long(len(messages)))
            for recipient, sequence_number, mqc_head in messages:
                parts += (avro_long(recipient), avro_long(sequence_number), mqc_head)
        parts.append(b"\x00")
        parts.append(b"\x00" if effective is None else b"\x02" + avro_long(effective))
        parts.append(b"\x00" if expires is None else b"\x02" + avro_long(expires))
        parts.append(b"\x00" if candidate_hash is None else b"\x02" + candidate_hash)
        parts.append(_signals(signals) if signals else b"\x00")
        parts += (self.runtime_digest, identity.digest())
        return b"".join(parts)

    def dispatch(self, dispatch: Dispatch) -> bytes:
        """Encode an upward message's dispatch."""
        datum = {
            **self._common(dispatch),
            "outcome": dispatch.outcome.value,
            "weight": min(dispatch.weight, LONG_MAX),
            "events": [event._asdict() for event in dispatch.events],
        }
        return write(self._schemas["validator.Dispatch"], datum)

    def channel_event(self, event: ChannelEvent) -> bytes:
        """Encode a channel event; a positive deposit is reserved, a negative one returned."""
        datum = {
            **self._common(event),
            "event": event.event.value,
            "sender_reserved": _u128(max(event.sender_deposit, 0)),
            "sender_returned": _u128(max(-event.sender_deposit, 0)),
            "recipient_reserved": _u128(max(event.recipient_deposit, 0)),
            "recipient_returned": _u128(max(-event.recipient_deposit, 0)),
        }
        return write(self._schemas["validator.ChannelEvent"], datum)

    def ingress_event(self, event: IngressEvent) -> bytes:
        """Encode an ingress event."""
        return write(self._schemas["validator.IngressEvent"], {**self._common(event), "event": event.event.value})

    def headroom(self, block: int, headroom: ParaHeadroom | ChannelHeadroom) -> OutputRecord:
        """Encode the headroom of a para or a channel after ``block``; the topic keeps the last record per para and channel.

        Hand-written like verdicts: a chain that is busy everywhere has one for each candidate.
        """
        if isinstance(headroom, ParaHeadroom):
            para_id, valid, count_left, bytes_left, pending, watermark, watermarks = headroom
            parts = [self._para_headroom_start, avro_long(block), avro_long(para_id), b"\x01" if valid else b"\x00"]
            parts += (avro_long(count_left), avro_long(bytes_left), avro_long(pending))
            parts.append(b"\x00" if watermark is None else b"\x02" + avro_long(watermark))
            if watermarks:
                parts.append(avro_long(len(watermarks)))
                parts += map(avro_long, watermarks)
            parts.append(b"\x00")
            return _record(("headroom", b"%b/%d" % (self.key, para_id), b"".join(parts), ()))
        sender, recipient, is_open, places_left, bytes_left, message_size_max = headroom
        parts = [
            self._channel_headroom_start,
            avro_long(block),
            avro_long(sender),
            avro_long(recipient),
            b"\x01" if is_open else b"\x00",
        ]
        parts += (avro_long(places_left), avro_long(bytes_left), avro_long(message_size_max))
        return _record(("headroom", b"%b/%d/%d" % (self.key, sender, recipient), b"".join(parts), ()))

    def receipt(self, receipt: Receipt) -> OutputRecord:
        """Encode a block's receipt."""
        return OutputRecord("receipts", self.key, write(self._schemas["validator.Receipt"], self._receipt(receipt)))

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
        return OutputRecord("lanes", self.key, write(self._schemas["validator.LaneStatus"], datum))

    def _common(self, outcome: Dispatch | ChannelEvent | IngressEvent | Receipt) -> dict[str, Any]:
        return {"lane": self.lane, **outcome._asdict(), "runtime_digest": self.runtime_digest}

    def _receipt(self, receipt: Receipt) -> dict[str, Any]:
        # a block's weights may add up to more than an Avro long holds: the sum is capped
        return {**self._common(receipt), "weight_used": min(receipt.weight_used, LONG_MAX)}


# --- Avro binary by hand: Avro 1.12 specification, "Binary encoding" ---------------------------------------------------------------------


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
    encoded = value.encode()
    return avro_long(len(encoded)) + encoded


def _u128(value: int) -> bytes:
    return value.to_bytes(16)


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
            return b"\x02" + _u128(value)
        raise OverflowError(f"expected at most a u128, found {value}")
    entries = b"".join(avro_text(name) + avro_long(number) for name, number in value.items())
    return b"\x06" + (avro_long(len(value)) + entries if value else b"") + b"\x00"


def _array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return (avro_long(len(encoded)) + b"".join(encoded) if encoded else b"") + b"\x00"


_KINDS: Final = {kind: (kind.value, avro_text(kind.value)) for kind in InputKind}
