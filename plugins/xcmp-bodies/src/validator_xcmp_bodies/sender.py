# SPDX-License-Identifier: Apache-2.0
"""What a sender publishes: its bodies once the relay chain lists them, and again when they are requested; without input or output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from validator.plugin.job_api import OutputRecord
from validator.plugin.protocol_api import Hash, ParaId
from validator_xcmp_bodies.outcomes import EventKind, IngressEvent, Wanted
from validator_xcmp_bodies.parts import measure
from validator_xcmp_bodies.records import encode_body

Name = tuple[int, int]
"""Recipient and block of a message."""


class Sender:
    """A sender's bodies by root, and its messages that are queued. A root that is used again is one content.

    A ``replica`` has copies of a sender's bodies and sends nothing unasked: it answers the requests that the sender has failed to answer.
    """

    def __init__(self, lane: str, sender: ParaId, bodies: Iterable[Sequence[bytes]], *, replica: bool = False) -> None:
        """Raises `BodyError` for a body that cannot be cut."""
        self._lane = lane
        self._sender = sender
        self._replica = replica
        self._bodies: dict[tuple[Hash, int], Sequence[bytes]] = {}
        for payloads in bodies:
            found = measure(payloads)
            encode_body(lane, (sender, 0, 0), payloads, found.root)
            self._bodies[found.root, found.size] = payloads
        self._queued: dict[Name, tuple[Hash, int]] = {}
        self._held: set[Name] = set()
        self._sent: set[Name] = set()

    def __len__(self) -> int:
        """Return how many different bodies there are."""
        return len(self._bodies)

    def apply(self, event: IngressEvent) -> None:
        """Apply an event of a queue that has messages of this sender."""
        name = event.recipient, event.sent_at
        if event.kind is not EventKind.QUEUED:
            self._queued.pop(name, None)
            self._held.discard(name)
            self._sent.discard(name)
        elif (event.root, event.size) in self._bodies:
            self._queued[name] = event.root, event.size

    def note_held(self, recipient: ParaId, sent_at: int) -> None:
        """Note that a message's body is held, so it need not be sent."""
        self._held.add((recipient, sent_at))

    def due(self) -> list[OutputRecord]:
        """Return the parts of all bodies that are listed and neither held nor sent, by recipient and block."""
        records: list[OutputRecord] = []
        if self._replica:
            return records
        for name in sorted(self._queued.keys() - self._held - self._sent):
            self._sent.add(name)
            records += self._records(name, self._queued[name])
        return records

    def answer(self, wanted: Wanted) -> list[OutputRecord]:
        """Return the parts of a body that is requested again; none if it is not this sender's to give."""
        content = wanted.root, wanted.size
        name = wanted.recipient, wanted.sent_at
        if wanted.sender != self._sender or self._queued.get(name) != content or name in self._held:
            return []
        if self._replica and not wanted.replicas:
            return []
        self._sent.add(name)
        return self._records(name, content)

    @property
    def open(self) -> int:
        """How many listed messages of these bodies are not held yet."""
        return len(self._queued.keys() - self._held)

    def _records(self, name: Name, content: tuple[Hash, int]) -> list[OutputRecord]:
        return encode_body(self._lane, (self._sender, *name), self._bodies[content], content[0])
