# SPDX-License-Identifier: Apache-2.0
"""Keeps lanes over restarts: a snapshot and a journal of the inputs since.

The live lane is plain Python objects in a worker's memory; the store is its durable truth. One call to Spark's state costs about a
millisecond from Python, whatever its size, so a batch makes three: read the head, append the batch's inputs to the journal, write the head.

The head carries a token that chains over the journal. A worker's cached lane is used only if its token is the head's: a lane that a failed
or speculative attempt has moved on has another token, and is rebuilt from snapshot and journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol

from validator.codec.encode import Told
from validator.core.inputs import DeadLetter, Input
from validator.core.scale import DecodeError, Reader, Writer
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition, RulesOutdated
from validator.lanes.journal import decode_entry, encode_entry
from validator.lanes.worker import LaneWorker

HEAD_VERSION = 1
TOKEN_BYTES = 16

JOURNAL_BYTES_MIN = 16 * 1024 * 1024
"""Journal bytes below which no snapshot is taken."""


class StateBackend(Protocol):
    """The state of one lane in a store that commits a batch whole or not at all."""

    def load_head(self) -> bytes | None:
        """Return the head, or None where the lane is new."""

    def save_head(self, head: bytes) -> None:
        """Replace the head."""

    def load_snapshot(self) -> list[bytes]:
        """Return the parts of the snapshot in order."""

    def save_snapshot(self, parts: Sequence[bytes]) -> None:
        """Replace the snapshot."""

    def load_journal(self) -> Iterable[bytes]:
        """Return the journal's entries in order."""

    def append_journal(self, entry: bytes) -> None:
        """Append an entry to the journal."""

    def clear_journal(self) -> None:
        """Remove every entry."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the store knows of a lane without looking at it."""

    token: bytes
    runtime_digest: bytes
    rules: bytes
    """Those that the journal was written under (`LaneDefinition.encode_rules`)."""
    snapshot_bytes: int
    journal_bytes: int
    journal_entries: int

    def encode(self) -> bytes:
        """Return the head as bytes."""
        out = Writer()
        out.u8(HEAD_VERSION)
        out.bytes(self.token)
        out.bytes(self.runtime_digest)
        out.bytes(self.rules)
        out.u64(self.snapshot_bytes)
        out.u64(self.journal_bytes)
        out.u64(self.journal_entries)
        return bytes(out.buffer)

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Return the head that bytes encode; raises `core.scale.DecodeError`."""
        reader = Reader(data)
        version = reader.u8()
        if version != HEAD_VERSION:
            raise DecodeError(f"state head version {version}, expected {HEAD_VERSION}")
        head = cls(reader.bytes(), reader.bytes(), reader.bytes(), reader.u64(), reader.u64(), reader.u64())
        reader.end()
        return head


@dataclass(slots=True)
class _Cached:
    token: bytes
    worker: LaneWorker


class LaneCache:
    """The live lanes of one process, each with the token of the state that it is in."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Cached] = {}
        self.hits = 0
        self.rebuilds = 0

    def take(self, name: str, token: bytes) -> LaneWorker | None:
        """Take out a lane if it is in the state that the token names; a lane in any other state is forgotten."""
        cached = self._lanes.pop(name, None)
        if cached is None or cached.token != token:
            return None
        self.hits += 1
        return cached.worker

    def put(self, name: str, token: bytes, worker: LaneWorker) -> None:
        """Put a lane back in the state that the token names."""
        self._lanes[name] = _Cached(token, worker)


def process_batch(
    definition: LaneDefinition, backend: StateBackend, cache: LaneCache, items: list[Input | DeadLetter]
) -> Iterator[Told]:
    """Process one batch of a lane against its store, and yield what it tells (`LaneWorker.process`), last where the lane stands.

    The store is written whole only when the iterator has been exhausted; until then the lane is in no cache.
    Raises `LaneOverflow`, and `UserError` where the configuration does not fit the state.
    """
    head, worker = _open(definition, backend, cache)
    entry = encode_entry(items)
    yield from worker.process(items)
    yield worker.status()

    head = replace(
        head,
        token=_next_token(head.token, entry),
        journal_bytes=head.journal_bytes + len(entry),
        journal_entries=head.journal_entries + 1,
    )
    if head.journal_bytes >= max(JOURNAL_BYTES_MIN, head.snapshot_bytes):
        head = _save_snapshot(head, worker, backend)
    else:
        backend.append_journal(entry)
    backend.save_head(head.encode())
    cache.put(definition.name, head.token, worker)


def _open(definition: LaneDefinition, backend: StateBackend, cache: LaneCache) -> tuple[Head, LaneWorker]:
    rules = definition.encode_rules()
    stored = backend.load_head()
    if stored is None:
        worker = LaneWorker(definition.create(), definition.runtime_digest)
        head = Head(_next_token(b"", definition.runtime_digest + rules), definition.runtime_digest, rules, 0, 0, 0)
        # the genesis of a later start may be another one; what this lane started from is part of its state
        return _save_snapshot(head, worker, backend), worker
    head = Head.decode(stored)
    if (head.runtime_digest, head.rules) != (definition.runtime_digest, rules):
        if head.journal_entries and head.rules != rules:
            head = _cut_journal(head, definition, backend, cache)
        # another token: a lane that is cached under the runtime of before must not go on
        token = _next_token(head.token, definition.runtime_digest + rules)
        head = replace(head, token=token, runtime_digest=definition.runtime_digest, rules=rules)
    worker_or_none = cache.take(definition.name, head.token)
    return head, worker_or_none or _rebuild(definition, backend, cache)


def _cut_journal(head: Head, definition: LaneDefinition, backend: StateBackend, cache: LaneCache) -> Head:
    """Bring the lane, under the rules of its journal, to the journal's end: from there on others may hold."""
    try:
        before = definition.under(head.rules)
    except RulesOutdated as error:
        raise UserError(
            f"lane {definition.name}: its journal was written under {error}: start over in another job directory, from the inputs"
        ) from None
    return _save_snapshot(head, _rebuild(before, backend, cache), backend)


def _rebuild(definition: LaneDefinition, backend: StateBackend, cache: LaneCache) -> LaneWorker:
    worker = LaneWorker.restore(definition, backend.load_snapshot())
    for entry in backend.load_journal():
        worker.replay(*decode_entry(entry))
    cache.rebuilds += 1
    return worker


def _save_snapshot(head: Head, worker: LaneWorker, backend: StateBackend) -> Head:
    parts = worker.snapshot()
    backend.save_snapshot(parts)
    backend.clear_journal()
    return replace(head, snapshot_bytes=sum(map(len, parts)), journal_bytes=0, journal_entries=0)


def _next_token(token: bytes, then: bytes) -> bytes:
    return blake2b(token + then, digest_size=TOKEN_BYTES).digest()
