# SPDX-License-Identifier: Apache-2.0
"""A sender publishes what is listed, once, and again when it is requested."""

from __future__ import annotations

from collections.abc import Iterable

from validator_xcmp_bodies import records
from validator_xcmp_bodies.outcomes import EventKind, IngressEvent, Wanted
from validator_xcmp_bodies.parts import measure
from validator_xcmp_bodies.sender import Message, Sender, by_content

BODY, LARGE = [b"one", b"two"], [bytes(600_000)]


def event(kind: EventKind, payloads: list[bytes], recipient: int = 2, sent_at: int = 5) -> IngressEvent:
    found = measure(payloads)
    return IngressEvent(sent_at, kind, recipient, 1, sent_at, found.root, found.size)


def wanted(
    payloads: list[bytes], recipient: int = 2, sent_at: int = 5, sender: int = 1, *, replicas: bool = False
) -> Wanted:
    found = measure(payloads)
    return Wanted(recipient, sender, sent_at, found.root, found.size, 1, replicas)


def names(sent: Iterable[records.OutputRecord]) -> list[tuple[int, int, int]]:
    parts = [records.decode_body(record.value)[1] for record in sent]
    return [(part.recipient, part.sent_at, part.part) for part in parts]


def test_a_body_is_sent_once_it_is_listed_and_no_earlier() -> None:
    sender = Sender("polkadot", 1, by_content([BODY, LARGE]))
    assert list(sender.due()) == []
    sender.apply(event(EventKind.QUEUED, BODY))
    sender.apply(event(EventKind.QUEUED, [b"not ours"], recipient=3))
    sender.apply(event(EventKind.QUEUED, LARGE, recipient=4))
    assert names(sender.due()) == [(2, 5, 0), (4, 5, 0), (4, 5, 1), (4, 5, 2)]
    assert list(sender.due()) == []


def test_a_body_that_is_held_is_not_sent() -> None:
    sender = Sender("polkadot", 1, by_content([BODY]))
    sender.apply(event(EventKind.QUEUED, BODY))
    sender.note_held(2, 5)
    assert list(sender.due()) == []
    assert sender.answer(wanted(BODY)) == []


def test_a_request_is_answered_until_the_body_is_held_or_the_message_is_gone() -> None:
    sender = Sender("polkadot", 1, by_content([BODY]))
    sender.apply(event(EventKind.QUEUED, BODY))
    assert names(sender.due()) == [(2, 5, 0)]
    assert names(sender.answer(wanted(BODY))) == [(2, 5, 0)]
    assert sender.answer(wanted(LARGE)) == []
    assert sender.answer(wanted(BODY, sender=3)) == []
    sender.apply(event(EventKind.ACKNOWLEDGED, BODY))
    assert sender.answer(wanted(BODY)) == []


def test_one_content_answers_every_message_that_names_its_root() -> None:
    bodies = by_content([BODY, BODY])
    assert len(bodies) == 1
    sender = Sender("polkadot", 1, bodies)
    sender.apply(event(EventKind.QUEUED, BODY))
    sender.apply(event(EventKind.QUEUED, BODY, recipient=3, sent_at=6))
    assert names(sender.due()) == [(2, 5, 0), (3, 6, 0)]
    sender.note_held(2, 5)
    (content,) = bodies
    assert list(sender.messages()) == [Message(2, 5, content, is_held=True), Message(3, 6, content, is_held=False)]


def test_a_body_may_come_after_its_event_and_go_again() -> None:
    bodies = {}
    sender = Sender("polkadot", 1, bodies)
    sender.apply(event(EventKind.QUEUED, BODY))
    assert list(sender.due()) == []
    bodies |= by_content([BODY])
    assert names(sender.due()) == [(2, 5, 0)]
    bodies.clear()
    assert sender.answer(wanted(BODY)) == []


def test_a_replica_sends_nothing_unasked_and_answers_what_the_sender_has_not() -> None:
    replica = Sender("polkadot", 1, by_content([BODY]), replica=True)
    replica.apply(event(EventKind.QUEUED, BODY))
    assert list(replica.due()) == []
    assert replica.answer(wanted(BODY)) == []
    assert names(replica.answer(wanted(BODY, replicas=True))) == [(2, 5, 0)]
    replica.note_held(2, 5)
    assert replica.answer(wanted(BODY, replicas=True)) == []
