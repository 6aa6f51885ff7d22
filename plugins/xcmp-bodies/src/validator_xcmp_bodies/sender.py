# SPDX-License-Identifier: Apache-2.0
"""What a sender publishes: its bodies once the relay chain lists them, and again when they are requested; without input or output.

People and files have a body as JSON: a list of payloads in hex.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from validator.plugin.job_api import OutputRecord
from validator.plugin.protocol_api import BlockNumber, Hash, ParaId
from validator_xcmp_bodies.outcomes import EventKind, IngressEvent, Wanted
from validator_xcmp_bodies.parts import BodyError, cut, measure
from validator_xcmp_bodies.records import encode_body

SHOWN_CHARACTERS: Final = 60
"""Characters of a wrong text that an error shows."""


def parse_body(text: str) -> list[bytes]:
    """Return the payloads that a JSON text lists. Raises `BodyError` that says what was expected and found."""
    try:
        return body_of(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BodyError(
            f"expected a list of payloads in hex, found {text.strip()[:SHOWN_CHARACTERS]} ({error})"
        ) from None


def body_of(value: object) -> list[bytes]:
    """Return the payloads of a parsed JSON text, each in lower-case hex with or without ``0x``. Raises `BodyError`."""
    if not isinstance(value, list):
        raise BodyError("not a list")
    return [_payload(payload) for payload in value]


def _payload(text: object) -> bytes:
    if not isinstance(text, str):
        raise BodyError("not a text")
    digits = text.removeprefix("0x")
    try:
        payload = bytes.fromhex(digits)
    except ValueError as error:
        raise BodyError(str(error)) from None
    if payload.hex() != digits:
        raise BodyError("capitals or white space in hex")
    return payload


Content: TypeAlias = tuple[Hash, int]
"""Root and size of a body."""
Name: TypeAlias = tuple[ParaId, BlockNumber]
"""Recipient and block of a message."""


class Message(NamedTuple):
    """A message of the sender that is queued."""

    recipient: ParaId
    sent_at: BlockNumber
    content: Content
    is_held: bool


def by_content(bodies: Iterable[Sequence[bytes]]) -> dict[Content, Sequence[bytes]]:
    """Return bodies by root and size. Raises `BodyError` for one that cannot be cut."""
    found: dict[Content, Sequence[bytes]] = {}
    for payloads in bodies:
        cut(payloads)
        measured = measure(payloads)
        found[measured.root, measured.size] = payloads
    return found


class Sender:
    """A sender's messages that are queued, and its bodies by content: a root that is used again is one content.

    ``bodies`` may get and lose members at any time. A ``replica`` has copies of a sender's bodies and sends nothing unasked: it answers the
    requests that the sender has failed to answer.
    """

    def __init__(
        self, lane: str, sender: ParaId, bodies: Mapping[Content, Sequence[bytes]], *, replica: bool = False
    ) -> None:
        self._lane = lane
        self._sender = sender
        self._bodies = bodies
        self._replica = replica
        self._queued: dict[Name, Content] = {}
        self._held: set[Name] = set()
        self._sent: set[Name] = set()

    def apply(self, event: IngressEvent) -> None:
        """Apply an event of a queue that has messages of this sender."""
        name = event.recipient, event.sent_at
        if event.kind is EventKind.QUEUED:
            self._queued[name] = event.root, event.size
        else:
            self._queued.pop(name, None)
            self._held.discard(name)
            self._sent.discard(name)

    def note_held(self, recipient: ParaId, sent_at: BlockNumber) -> None:
        """Note that a message's body is held, so it need not be sent."""
        if (recipient, sent_at) in self._queued:
            self._held.add((recipient, sent_at))

    def due(self) -> Iterator[OutputRecord]:
        """Yield the parts of all bodies that are there, listed and neither held nor sent, by recipient and block."""
        if not self._replica:
            for name in sorted(self._queued.keys() - self._held - self._sent):
                yield from self._records(name)

    def answer(self, wanted: Wanted) -> list[OutputRecord]:
        """Return the parts of a body that is requested again; none if it is not this sender's to give."""
        name = wanted.recipient, wanted.sent_at
        if wanted.sender != self._sender or self._queued.get(name) != (wanted.root, wanted.size) or name in self._held:
            return []
        if self._replica and not wanted.replicas:
            return []
        return self._records(name)

    def messages(self) -> Iterator[Message]:
        """Yield the messages that are queued, by recipient and block."""
        for name in sorted(self._queued):
            yield Message(*name, self._queued[name], name in self._held)

    def _records(self, name: Name) -> list[OutputRecord]:
        content = self._queued[name]
        payloads = self._bodies.get(content)
        if payloads is None:
            return []
        self._sent.add(name)
        return encode_body(self._lane, (self._sender, *name), payloads, content[0])
