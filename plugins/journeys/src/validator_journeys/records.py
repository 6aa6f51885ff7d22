# SPDX-License-Identifier: Apache-2.0
"""The records of a lane as facts, and the steps of messages as records of the topic `journeys`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from validator.plugin.job_api import (
    DAY_MS,
    OutputRecord,
    RecordFormat,
    RecordUnreadable,
    SchemaSet,
    Topic,
    TopicForm,
    schemas,
)
from validator.plugin.protocol_api import LimitError, RecordType, installed_protocol
from validator_journeys.content import content_from, content_of
from validator_journeys.facts import (
    BlockFact,
    CandidateFact,
    DispatchFact,
    EventFact,
    Fact,
    Pending,
    Place,
    Range,
    Ref,
    Source,
    VerdictFact,
)
from validator_journeys.identity import parse
from validator_journeys.parts import SCHEMA, encode_journey, own_schemas
from validator_journeys.waiting import (
    CHUNK_MESSAGES,
    CLOSED,
    OPENED,
    By,
    Channels,
    Queue,
    Queued,
    QueueName,
    Step,
    Waiting,
    pack,
)

JOURNEYS: Final = "journeys"
BLOCKS: Final = "blocks"
CANDIDATES: Final = "candidates"
DOWNWARD: Final = "downward-messages"
VERDICTS: Final = "verdicts"
DISPATCHES: Final = "dispatches"
EVENTS: Final = "channel-events"
RECEIPTS: Final = "receipts"

RECORD_BYTES_MAX: Final = 64 * 1024
"""Maximum bytes of a record of `journeys`."""

_OF_LANES: Final = {
    BLOCKS: "validator.Block",
    DOWNWARD: "validator.DownwardMessage",
    VERDICTS: "validator.Verdict",
    DISPATCHES: "validator.Dispatch",
    EVENTS: "validator.ChannelEvent",
    RECEIPTS: "validator.Receipt",
}
_SOURCES: Final = {
    "inclusion": Source.VERDICT_OF_INCLUSION,
    "timeout": Source.VERDICT_OF_TIMEOUT,
    "request": Source.VERDICT_OF_REQUEST,
    "downward": Source.VERDICT_OF_DOWNWARD,
    "candidate": Source.VERDICT_OF_CANDIDATE,
}
_DROPPED: Final = "messages_dropped"


@cache
def formats() -> dict[str, RecordFormat]:
    """Return the format of each topic's records; candidates have one for each protocol (`candidate_reader`)."""
    return {
        JOURNEYS: RecordFormat(own_schemas(), SCHEMA),
        **{topic: RecordFormat(schemas(), name) for topic, name in _OF_LANES.items()},
    }


def journeys_topic(retention_days: int) -> Topic:
    """Return the topic of messages."""
    purpose = "where each message is, and what became of it"
    return Topic(JOURNEYS, None, "compact,delete", retention_days * DAY_MS, purpose)


def forms() -> dict[str, TopicForm]:
    """Return the forms of the job's topics."""
    columns = ("id", "status", "size", "waits_blocks")
    return {JOURNEYS: TopicForm(formats()[JOURNEYS], key_of, RECORD_BYTES_MAX, columns)}


def key_of(value: bytes) -> bytes:
    """Return the key of a record of `journeys`. Raises ``ValueError``."""
    identity: str = formats()[JOURNEYS].decode(value)["id"]
    parse(identity)
    return identity.encode()


# --- what the lanes read and emit ---


def channels_of(protocol: str) -> Channels:
    """Return where the horizontal messages of a protocol wait, by the fields of its candidates."""
    fields = _candidate_fields(protocol)
    if "horizontal_messages" in fields:
        return Channels.OWN_QUEUES
    return Channels.RECIPIENTS_QUEUE if "hrmp_messages" in fields else Channels.ELSEWHERE


def decode(topic: str, value: bytes) -> dict[str, Any]:
    """Return a record of a topic other than `candidates`. Raises `RecordUnreadable`."""
    return formats()[topic].decode(value)


def fact_of(topic: str, protocols: tuple[str, ...], value: bytes) -> tuple[str, Place, Fact] | None:
    """Return the lane, the place and the content of a record's fact; None for a record that is none, or says nothing about messages.

    ``protocols`` are those whose candidates may be among the records.
    """
    try:
        record = decode_candidate(protocols, value) if topic == CANDIDATES else decode(topic, value)
    except (RecordUnreadable, LimitError):
        return None  # a dead letter of its lane
    if record is None:
        return None
    found = _FACTS[topic](record)
    if found is None:
        return None
    source, fact = found
    return record["lane"], Place(record["block"], source, record.get("index", 0)), fact


def _block(record: Mapping[str, Any]) -> tuple[Source, Fact] | None:
    lists = tuple(
        tuple(Pending(each["para_id"], each["backed_at"]) for each in record[name])
        for name in ("included", "timed_out")
    )
    return (Source.BLOCK, BlockFact(*lists)) if any(lists) else None


def _candidate(record: Mapping[str, Any]) -> tuple[Source, Fact] | None:
    upward = tuple(content_of("upward", payload) for payload in record.get("upward_messages", ()))
    horizontal = [
        *((each["recipient"], each["data"]) for each in record.get("horizontal_messages", ())),
        *((each["recipient"], each["payload"]) for each in record.get("hrmp_messages", ())),
    ]
    fact = CandidateFact(
        upward, tuple((recipient, content_of("horizontal", payload)) for recipient, payload in horizontal)
    )
    return (Source.CANDIDATE, fact) if upward or horizontal else None


def _downward(record: Mapping[str, Any]) -> tuple[Source, Fact]:
    return Source.DOWNWARD, content_of("downward", record["msg"])


def _verdict(record: Mapping[str, Any]) -> tuple[Source, Fact] | None:
    source = _SOURCES.get(record["kind"])
    fact = VerdictFact(
        record["para_id"],
        record["enacted"],
        _refs(record),
        _ranges(record["received"]),
        record["candidate_hash"],
        bool(record["signals"]),
    )
    if source is None or record["outcome"] != "accepted":
        return None
    says_nothing = source in (Source.VERDICT_OF_REQUEST, Source.VERDICT_OF_DOWNWARD) and not fact.messages
    return None if says_nothing else (source, fact)


def _dispatch(record: Mapping[str, Any]) -> tuple[Source, Fact]:
    content = content_of("upward", record["payload"])
    return Source.DISPATCH, DispatchFact(record["para_id"], content, record["outcome"], _refs(record))


def _event(record: Mapping[str, Any]) -> tuple[Source, Fact] | None:
    if record["event"] not in (OPENED, CLOSED, _DROPPED):
        return None
    names = record["event"], record["sender"], record["recipient"], record["reason"]
    return Source.CHANNEL_EVENT, EventFact(*names, _ranges(record["dropped"]))


def _refs(record: Mapping[str, Any]) -> tuple[Ref, ...]:
    return tuple(Ref(each["recipient"], each["sequence_number"], each["mqc_head"]) for each in record["messages"])


def _ranges(listed: list[dict[str, Any]]) -> tuple[Range, ...]:
    return tuple(Range(each["sender"], each["first"], each["last"], each["bytes"]) for each in listed)


_FACTS: Final[dict[str, Callable[[Mapping[str, Any]], tuple[Source, Fact] | None]]] = {
    BLOCKS: _block,
    CANDIDATES: _candidate,
    DOWNWARD: _downward,
    VERDICTS: _verdict,
    DISPATCHES: _dispatch,
    EVENTS: _event,
}


# --- candidates, which are records of protocols ---


@cache
def _candidate_record(protocol: str) -> tuple[RecordFormat, RecordType] | None:
    """Return the format and the type of a protocol's candidates; None if it has none, or is not installed."""
    definition = installed_protocol(protocol)
    if definition is None:
        return None
    record = next((each for each in definition.records if each.topic == CANDIDATES), None)
    return None if record is None else (RecordFormat(SchemaSet.read(definition.schemas), record.schema), record)


def _candidate_fields(protocol: str) -> set[str]:
    found = _candidate_record(protocol)
    return set() if found is None else {each["name"] for each in found[0].schema.source["fields"]}


def decode_candidate(protocols: tuple[str, ...], value: bytes) -> dict[str, Any] | None:
    """Return a candidate whose fields are in range, as its lane checks them. Raises `RecordUnreadable`, `LimitError`."""
    for protocol in protocols:
        found = _candidate_record(protocol)
        if found is None:
            continue
        try:
            record = found[0].decode(value)
        except RecordUnreadable:
            continue
        found[1].shape(record)
        return record
    return None


# --- output ---


def encode_step(step: Step) -> OutputRecord:
    """Return the record of a message after a step."""
    identity, queued, end, content = step
    if queued is not None and queued.content is not None:
        content = queued.content
    lane, kind, sender, recipient, opened_at, number = identity
    text = str(identity)
    legs, status = [], "waiting"
    if queued is not None:
        legs.append(_leg("queued", queued.block, queued.by, None))
    if end is not None:
        status = end.fate.value
        legs.append(_leg(status, end.block, end.by, end.detail))
    summary, journey = b"", None
    if content is not None:
        summary, journey = content.summary, content.topic
    head = {
        "id": text,
        "lane": lane,
        "kind": kind.value,
        "sender": sender,
        "recipient": recipient,
        "opened_at": opened_at or None,
        "number": number,
        "status": status,
        "payload_hash": content and content.hash,
        "size": content and content.size,
        "mqc_head": queued and queued.mqc_head,
    }
    tail = {
        "legs": legs,
        "waits_blocks": None if queued is None or end is None else end.block - queued.block,
        "journey": journey and journey.hex(),
    }
    return OutputRecord(JOURNEYS, text.encode(), encode_journey(head, summary, tail))


def remembered(lane: str, channels: Channels, values: Iterable[bytes]) -> Waiting:
    """Return what waits in a lane's queues, and how they are numbered, according to records of `journeys`."""
    newest: dict[str, dict[str, Any]] = {}
    found = Waiting(lane, channels)
    for value in values:
        record = decode(JOURNEYS, value)
        if record["lane"] != lane:
            continue
        queue = found.queues.setdefault(_queue_of(record, channels), Queue())
        queue.opened_at = max(queue.opened_at, record["opened_at"] or 0)
        if record["kind"] == "upward":
            queue.numbered = max(queue.numbered, record["number"])
            queue.unseen = max(queue.unseen, 1 - record["number"])
        if record["status"] == "waiting":
            newest[record["id"]] = record
        else:
            newest.pop(record["id"], None)
    for record in sorted(newest.values(), key=lambda each: each["number"]):
        name = _queue_of(record, channels)
        (leg,) = record["legs"]
        by = By(leg["by"], leg["index"], leg["candidate_hash"])
        queued = Queued(leg["block"], by, record["sender"], record["mqc_head"], content_from(record))
        found.queues[name].waiting[record["number"]] = pack(queued)
        found.touched_chunks[name].add(record["number"] // CHUNK_MESSAGES)
    for name in found.queues:
        found.touched_chunks.setdefault(name, set())
    return found


def _queue_of(record: Mapping[str, Any], channels: Channels) -> QueueName:
    own = channels is Channels.OWN_QUEUES or record["kind"] == "upward"
    return (record["sender"] if own else None), record["recipient"]


def _leg(step: str, block: int, by: By | None, detail: str | None) -> dict[str, Any]:
    kind, index, candidate_hash = by or (None, None, None)
    return {
        "step": step,
        "block": block,
        "by": kind,
        "index": index,
        "candidate_hash": candidate_hash,
        "detail": detail,
    }
