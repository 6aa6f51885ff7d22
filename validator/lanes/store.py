# SPDX-License-Identifier: Apache-2.0
"""Keeps lanes across restarts: their pages, and a journal of the inputs since the pages were saved.

The live lane is plain Python objects in a worker's memory; the store is its durable copy. One call to Spark's state takes about a
millisecond from Python, whatever its size. So a batch makes three: read the head, append the batch's inputs to the journal, write the head.
Each part of a large batch has an entry in the journal. From time to time the changed pages are saved and the journal is truncated.

The head carries a token that chains over the journal. A worker uses its cached lane directly only if the lane's token is the head's. A
cached lane at an earlier point of the journal catches up. One that a failed or speculative attempt has moved on is at no point of the
journal, and is rebuilt. A rebuilt lane must match the head: the slots by their hash, the journal by its token, the result by the hash of
all its output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import NamedTuple, Protocol

from validator.codec.codec import Codec
from validator.codec.encode import BlockOutput, encode_dead_letter
from validator.core.execute import execute
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.scale import DecodeError, Encoding, decoding
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.lanes.auditing import Auditor
from validator.lanes.definition import (
    JournalUnreadable,
    LaneDefinition,
    decode_again,
    journal_under_others,
)
from validator.lanes.parked import stored_parts
from validator.lanes.processor import LaneProcessor, Observer
from validator.lanes.slots import Slots, load_lane
from validator.plugin.registry import PluginError
from validator.plugin.runtime import RulesOutdated

HEAD = Encoding("state head")
TOKEN_BYTES = 16

JOURNAL_BYTES_MIN = 16 * 1024 * 1024
JOURNAL_BYTES_MAX = 64 * 1024 * 1024
"""Bounds of the journal, in bytes. Between them it grows to half the size of the pages: a rebuild reads both, and the cost of saving pages
that almost every batch touches is spread over as many inputs."""

UNSAVED_BYTES_MAX = 64 * 1024 * 1024
"""Estimated bytes of changed pages after which they are saved, whatever the journal's length. This bounds the pause of a save to a second
or two, plus the time for what a single batch touched."""

SKIPPED_DETAIL = "an operator ordered the lane to continue without this record"


class StateBackend(Protocol):
    """The state of one lane, in a store that commits a batch completely or not at all."""

    def load_head(self) -> bytes | None:
        """Return the head, or None if the lane is new."""

    def save_head(self, head: bytes) -> None:
        """Replace the head."""

    def load_slots(self) -> dict[int, bytes]:
        """Return every slot."""

    def save_slot(self, number: int, data: bytes) -> None:
        """Write a slot."""

    def remove_slot(self, number: int) -> None:
        """Remove an existing slot."""

    def load_journal(self) -> Iterable[bytes]:
        """Return the journal's entries in order."""

    def append_journal(self, entry: bytes) -> None:
        """Append an entry to the journal."""

    def clear_journal(self) -> None:
        """Remove every entry."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a stored lane without reading it."""

    token: bytes
    saved_token: bytes
    """The token when the slots were saved: the start of the journal."""
    slots_hash: bytes
    summary: bytes
    """`LaneProcessor.summary` at the journal's end."""
    runtime_digest: bytes
    rules: bytes
    """The rules that the journal was written under (`LaneDefinition.encode_rules`)."""
    para_slots: int
    """Slots for the pages of paras (`lanes.slots`)."""
    slots_bytes: int = 0
    journal_bytes: int = 0
    journal_entries: int = 0

    def encode(self) -> bytes:
        out = HEAD.begin()
        for part in (self.token, self.saved_token, self.slots_hash, self.summary, self.runtime_digest, self.rules):
            out.bytes(part)
        out.u32(self.para_slots)
        for number in (self.slots_bytes, self.journal_bytes, self.journal_entries):
            out.u64(number)
        return bytes(out.buffer)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return the head that the bytes encode. Raises `core.scale.DecodeError`."""
        reader = HEAD.read(data)
        token, saved_token, slots_hash, summary, runtime_digest, rules = (reader.bytes() for _ in range(6))
        para_slots = reader.u32()
        numbers = (reader.u64() for _ in range(3))
        head = cls(token, saved_token, slots_hash, summary, runtime_digest, rules, para_slots, *numbers)
        reader.end()
        if not para_slots:
            raise DecodeError("the head names no slots for paras")
        return head


class StoredSizes(NamedTuple):
    """What the store holds of a lane: bytes of pages, bytes of the journal, and its entries."""

    pages_bytes: int
    journal_bytes: int
    journal_entries: int


NOTHING_STORED = StoredSizes(0, 0, 0)


@dataclass(slots=True)
class LiveLane:
    """A lane in memory, with what is known of its slots in the store.

    In a cache, the tokens name the lane's state and the last save that it knows of. Both are needed: two attempts at one batch may lead to
    the same state although only one of them saved.
    """

    processor: LaneProcessor
    slots: Slots
    token: bytes = b""
    saved_token: bytes = b""
    sizes: StoredSizes = NOTHING_STORED


class Recovery(NamedTuple):
    """How a lane was brought back into memory."""

    lane: str
    rebuilt: bool
    """Whether it was rebuilt from its slots; otherwise a cached lane caught up with the journal."""
    slots_bytes: int
    journal_entries: int
    """Entries that were executed again."""
    seconds: float


class LaneCache:
    """The live lanes of one process."""

    def __init__(self, recovered: Callable[[Recovery], None] = lambda _: None) -> None:
        self._lanes: dict[str, LiveLane] = {}
        self.recovered = recovered
        self.hits = 0
        self.catch_ups = 0
        self.rebuilds = 0

    def take(self, name: str) -> LiveLane | None:
        """Remove a lane from the cache, and return it."""
        return self._lanes.pop(name, None)

    def put(self, name: str, head: Head, lane: LiveLane) -> None:
        """Put a lane back, in the state that the head names."""
        lane.token, lane.saved_token = head.token, head.saved_token
        lane.sizes = StoredSizes(head.slots_bytes, head.journal_bytes, head.journal_entries)
        self._lanes[name] = lane

    def look(self, name: str) -> LiveLane | None:
        """Return a lane, which stays in the cache."""
        return self._lanes.get(name)


class StateUnusable(UserError):
    """A lane's state is damaged, or was written under what is no longer there."""


class JournalDiffers(StateUnusable):
    """The lane's journal leads to another state than it did before."""


class Skipped(NamedTuple):
    """Inputs that an operator has ordered a lane to leave out; those of blocks up to ``executed_block`` have had their effect already."""

    sources: frozenset[Source] = frozenset()
    executed_block: BlockNumber | None = None

    def has(self, item: Input) -> bool:
        return item.source in self.sources and (self.executed_block is None or item.block > self.executed_block)


NONE_SKIPPED = Skipped()


def process_batch(
    definition: LaneDefinition,
    backend: StateBackend,
    cache: LaneCache,
    parts: Iterable[list[Input | DeadLetter]],
    skipped: Skipped = NONE_SKIPPED,
    observe: Observer | None = None,
    audit: Auditor | None = None,
) -> Iterator[BlockOutput]:
    """Process one batch of a lane against its store, and yield its output (`LaneProcessor.process`), its status last.

    The batch comes in parts; each is processed, and noted in the journal, as if it were a batch by itself.
    ``observe`` is given each executed block, ``audit`` executes them. The store is complete only when the iterator has been exhausted;
    until then the lane is in no cache. Raises `WaitingOverflow`, `AuditFailed`, `StateUnusable`, and another `UserError` if the
    configuration does not fit the state.
    """
    head, lane = _open(definition, backend, cache)
    evicted: list[DeadLetter] = []
    if skipped.sources:
        evicted = lane.processor.lane.evict(skipped.has, SKIPPED_DETAIL)
    if evicted:
        yield BlockOutput(None, list(map(encode_dead_letter, evicted)))
    token, entries = head.token, []
    lane.processor.observe = observe
    for part in parts:
        items = [_unless_skipped(item, definition.name, skipped) for item in part] if skipped.sources else part
        entries.append(encode_entry(items))
        token = _next_token(token, entries[-1])
        yield from lane.processor.process(items, execute if audit is None else audit.execute)
    if audit is not None:
        yield from audit.said()
    yield lane.processor.status()

    entries_bytes = sum(map(len, entries))
    if evicted or _wants_saving(head, lane, entries_bytes):  # the journal does not say what was evicted
        head = _save(head, token, lane, backend)
    else:
        for entry in entries:
            backend.append_journal(entry)
        head = replace(
            head,
            token=token,
            summary=lane.processor.summary(),
            journal_bytes=head.journal_bytes + entries_bytes,
            journal_entries=head.journal_entries + len(entries),
        )
    backend.save_head(head.encode())
    cache.put(definition.name, head, lane)


def restore_lane(definition: LaneDefinition, backend: StateBackend) -> LaneProcessor | None:
    """Return a stored lane under the rules that it was written under, or None if it is not in the store.

    Raises `UserError`.
    """
    stored = backend.load_head()
    if stored is None:
        return None
    with _explained(definition.name):
        head = Head.decode(stored_parts(stored)[1] or b"")
        return _bring_up(definition.under(head.rules), head, backend, LaneCache()).processor


def _unless_skipped(item: Input | DeadLetter, lane: str, skipped: Skipped) -> Input | DeadLetter:
    return skipped_letter(lane, item) if isinstance(item, Input) and skipped.has(item) else item


def skipped_letter(lane: str, item: Input) -> DeadLetter:
    """Return what a lane takes instead of an input that it leaves out."""
    return DeadLetter(lane, DeadReason.SKIPPED, SKIPPED_DETAIL, item.source, item.raw, item.block, item.index)


def _open(definition: LaneDefinition, backend: StateBackend, cache: LaneCache) -> tuple[Head, LiveLane]:
    rules = definition.encode_rules()
    stored = backend.load_head()
    if stored is None:
        lane = LiveLane(LaneProcessor.create(definition), Slots())
        token = _next_token(b"", definition.runtime_digest + rules)
        head = Head(token, token, b"", b"", definition.runtime_digest, rules, lane.slots.para_slots)
        # a later start may have another genesis; the one that this lane started from is part of its state
        return _save(head, token, lane, backend, everything=True), lane
    with _explained(definition.name):
        head = Head.decode(stored)
        if (head.runtime_digest, head.rules) == (definition.runtime_digest, rules):
            return head, _bring_up(definition, head, backend, cache)
        # the journal was written under the earlier runtime and must lead to the same result again; from here on the new one applies
        under = definition.under(head.rules)
        before = _bring_up(under, head, backend, LaneCache())
        definition.refuse_to_change_the_past(under, before.processor.lane.executed_block)
        cache.take(definition.name)
        token = _next_token(head.token, definition.runtime_digest + rules)
        head = replace(head, runtime_digest=definition.runtime_digest, rules=rules)
        lane = LiveLane(LaneProcessor.restore(definition, before.processor.snapshot()), before.slots)
        return _save(head, token, lane, backend, everything=True), lane


def _bring_up(definition: LaneDefinition, head: Head, backend: StateBackend, cache: LaneCache) -> LiveLane:
    """Return the lane at the journal's end: the cached one if it is at any point of the journal, else one rebuilt from the store."""
    cached = cache.take(definition.name)
    if cached is not None and (
        cached.saved_token != head.saved_token or cached.processor.lane.settings != definition.settings
    ):
        cached = None
    if cached is not None and cached.token == head.token:
        cache.hits += 1
        return cached
    began = time.monotonic()
    entries = list(backend.load_journal())
    tokens = [head.saved_token]
    for entry in entries:
        tokens.append(_next_token(tokens[-1], entry))
    # what the store holds is compared with the head before anything is made of it
    if tokens[-1] != head.token:
        raise DecodeError("the journal is not the one that the head names")
    if cached is not None and cached.token in tokens:
        here, to_execute = cached, entries[tokens.index(cached.token) :]
        cache.catch_ups += 1
    else:
        slots = backend.load_slots()
        if Slots.of(slots, 0, head.para_slots).hash() != head.slots_hash:
            raise DecodeError("the saved pages are not those that the head names")
        cached, here, to_execute = None, LiveLane(*load_lane(definition, slots, head.para_slots)), entries
        cache.rebuilds += 1
    since = here.processor.lane.executed_block
    ran: dict[str, BlockNumber] = {}
    for entry in to_execute:
        for executed in here.processor.catch_up(*decode_entry(definition.codec, entry)):
            for dispatch in executed.dispatches:
                if dispatch.handler is not None:
                    ran.setdefault(dispatch.handler, dispatch.block)
    if here.processor.summary() != head.summary:
        if not ran:  # then it is no handler's doing: the files are not those that were written
            raise DecodeError("the journal leads to another state than it did before")
        raise JournalDiffers(_journal_differs(definition.name, since, here.processor.lane.executed_block, ran))
    rebuilt, caught_up = cached is None, len(to_execute)
    cache.recovered(Recovery(definition.name, rebuilt, head.slots_bytes, caught_up, time.monotonic() - began))
    return here


def _journal_differs(lane: str, since: BlockNumber, last: BlockNumber, ran: Mapping[str, BlockNumber]) -> str:
    """Return what a user can do if blocks lead elsewhere; ``ran`` has, by handler, the first of them in which it has executed a message."""
    blocks = (
        f"lane {lane}: blocks {since + 1} to {last}, executed again from the journal, lead to another state than before"
    )
    named = ", ".join(f"{handler} (a message first in block {block})" for handler, block in ran.items())
    return (
        f"{blocks}: a handler does not give the same result twice, one of {named}: `validator audit --lane {lane}` names the first "
        f"block that differs; let a corrected version execute from that block on before the lane starts over, which "
        "else parks again (docs/parked-lanes.md)"
    )


def _wants_saving(head: Head, lane: LiveLane, entry_bytes: int) -> bool:
    journal_bytes_max = min(max(JOURNAL_BYTES_MIN, head.slots_bytes // 2), JOURNAL_BYTES_MAX)
    return (
        head.journal_bytes + entry_bytes >= journal_bytes_max
        or lane.slots.unsaved_bytes(lane.processor) >= UNSAVED_BYTES_MAX
    )


def _save(head: Head, token: bytes, lane: LiveLane, backend: StateBackend, *, everything: bool = False) -> Head:
    lane.slots.save(lane.processor, backend, everything=everything)
    backend.clear_journal()
    return replace(
        head,
        token=token,
        saved_token=token,
        slots_hash=lane.slots.hash(),
        summary=lane.processor.summary(),
        para_slots=lane.slots.para_slots,
        slots_bytes=lane.slots.total_bytes,
        journal_bytes=0,
        journal_entries=0,
    )


@contextmanager
def _explained(lane: str) -> Iterator[None]:
    """Turn errors in a lane's stored state into what its user can do about them."""
    try:
        yield
    except (RulesOutdated, PluginError) as error:
        raise StateUnusable(journal_under_others(lane, error)) from None
    except (DecodeError, JournalUnreadable) as error:
        raise StateUnusable(
            f"lane {lane}: its state in the checkpoint cannot be used: {error}: `validator lanes resume --lane {lane} --rebuild` "
            "executes its inputs again"
        ) from error


def _next_token(token: bytes, then: bytes) -> bytes:
    return blake2b(token + then, digest_size=TOKEN_BYTES).digest()


ENTRY = Encoding("journal")

_RECORD = Struct("<BHIQI")
"""Kind, number of the topic in the entry's table, partition, offset, size of the raw bytes."""

_KIND_OF, _SOURCE_OF, _RAW_OF = map(attrgetter, ("kind", "source", "raw"))
_TOPIC_OF, _PARTITION_OF, _OFFSET_OF = map(attrgetter, Source._fields)


def encode_entry(items: Sequence[Input | DeadLetter]) -> bytes:
    """Encode a batch's inputs in order; of records that were dead on arrival, encode only their number."""
    inputs = [item for item in items if isinstance(item, Input)]
    kinds = map(_KIND_OF, inputs)
    sources = list(map(_SOURCE_OF, inputs))
    raws = list(map(_RAW_OF, inputs))
    topics = list(map(_TOPIC_OF, sources))
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    heads = map(
        _RECORD.pack,
        kinds,
        map(numbers.__getitem__, topics),
        map(_PARTITION_OF, sources),
        map(_OFFSET_OF, sources),
        map(len, raws),
    )
    out = ENTRY.begin()
    out.compact(len(items) - len(inputs))
    out.compact(len(numbers))
    for topic in numbers:
        out.bytes(topic.encode())
    out.compact(len(inputs))
    return bytes(out.buffer) + b"".join(chain.from_iterable(zip(heads, raws, strict=True)))


def decode_entry(codec: Codec, entry: bytes) -> tuple[list[Input], int]:
    """Return the inputs of an entry and the number of records that were dead on arrival.

    Raises `core.scale.DecodeError`, `definition.JournalUnreadable`.
    """
    with decoding("journal"):
        reader = ENTRY.read(entry)
        dead = reader.compact()
        topics = [topic.decode() for topic in reader.items(reader.bytes)]
        inputs = []
        used: dict[int, None] = {}
        for _ in range(reader.count()):
            kind, number, partition, offset, size = _RECORD.unpack(reader.take(_RECORD.size))
            used[number] = None
            source = Source(topics[number], partition, offset)
            inputs.append(decode_again(codec, RecordKind(kind), reader.take(size), source))
        reader.end()
    if len(set(topics)) != len(topics) or list(used) != list(range(len(topics))):
        raise DecodeError("journal is damaged: its topics are not each once in the order of their first records")
    return inputs, dead
