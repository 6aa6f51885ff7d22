# SPDX-License-Identifier: Apache-2.0
"""When a missing body is requested: at the front of its queue in every block, behind it ever less often, at last from everybody."""

from __future__ import annotations

from hashlib import blake2b

from validator_xcmp_bodies import records
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import BodyPart, EventKind, IngressEvent, RecordOffset, Settings, Wanted
from validator_xcmp_bodies.pages import Pages, restore
from validator_xcmp_bodies.parts import condense, cut, measure

RECIPIENT = 9
Name = tuple[int, int]


def payloads(name: Name) -> list[bytes]:
    return [blake2b(repr(name).encode()).digest()]


def event(kind: EventKind, name: Name, block: int | None = None) -> IngressEvent:
    found = measure(payloads(name))
    return IngressEvent(name[0] if block is None else block, kind, RECIPIENT, name[1], name[0], found.root, found.size)


def listing(settings: Settings, *names: Name) -> Bodies:
    bodies = Bodies(settings)
    for name in names:
        bodies.apply(event(EventKind.QUEUED, name))
    return bodies


def requested(bodies: Bodies, block: int) -> list[tuple[Name, int]]:
    """Return the requests of a block, by name and attempt."""
    bodies.advance(block)
    found = [each for each in bodies.finish() if isinstance(each, Wanted)]
    return [((each.sent_at, each.sender), each.attempt) for each in found]


def hold(bodies: Bodies, name: Name) -> None:
    found, (part,) = measure(payloads(name)), cut(payloads(name))
    bodies.offer(
        BodyPart(name[1], RECIPIENT, name[0], found.root, found.size, 0, 1, condense(part)), RecordOffset(0, name[1])
    )


def test_the_front_is_requested_in_every_block_and_the_rest_ever_less_often() -> None:
    assert requested(listing(Settings(), (1, 1)), 1) == []
    bodies = listing(Settings(wanted_interval_blocks_max=8), (1, 1), (1, 2), (2, 1))
    asked = {block: [name for name, _ in requested(bodies, block)] for block in range(2, 30)}
    assert all(names[:2] == [(1, 1), (1, 2)] for names in asked.values())
    assert [block for block, names in asked.items() if (2, 1) in names] == [3, 5, 9, 17, 25]


def test_a_block_is_requested_once_in_however_many_batches_it_is_cut() -> None:
    bodies = listing(Settings(), (1, 1))
    assert [requested(bodies, 2), requested(bodies, 2), requested(bodies, 3)] == [[((1, 1), 1)], [], [((1, 1), 2)]]


def test_a_body_that_comes_to_the_front_does_not_wait_for_its_next_turn() -> None:
    bodies = listing(Settings(), (1, 1), (2, 1))
    for block in range(2, 10):
        requested(bodies, block)
    hold(bodies, (1, 1))
    assert requested(bodies, 10) == [((2, 1), 4)]
    assert requested(bodies, 11) == [((2, 1), 5)]


def test_an_acknowledged_front_gives_way_too() -> None:
    bodies = listing(Settings(), (1, 1), (2, 1))
    for block in range(2, 10):
        requested(bodies, block)
    bodies.apply(event(EventKind.ACKNOWLEDGED, (1, 1), 10))
    assert requested(bodies, 10) == [((2, 1), 4)]


def test_a_long_front_takes_turns() -> None:
    names = [(1, sender) for sender in range(1, 6)]
    bodies = listing(Settings(wanted_per_batch_max=2), *names, (2, 1))
    asked = [name for block in range(2, 12) for name, _ in requested(bodies, block)]
    assert {name: asked.count(name) for name in asked} == dict.fromkeys(names, 4)


def test_everybody_is_asked_once_the_sender_has_not_answered() -> None:
    bodies = listing(Settings(sender_requests=2), (1, 1))
    found = []
    for block in range(2, 6):
        bodies.advance(block)
        found += [each for each in bodies.finish() if isinstance(each, Wanted)]
    assert [each.replicas for each in found] == [False, False, True, True]
    decoded = [records.decode_wanted(record.value) for record in records.encode_outcomes("polkadot", found)]
    assert decoded == found


def test_the_wait_survives_a_restart() -> None:
    settings = Settings()
    bodies, stored = listing(settings, (1, 1), (2, 1)), {}
    pages = Pages(bodies)
    for block in range(2, 40):
        before = restore(settings, stored) if stored else None
        found = requested(bodies, block)
        if before is not None:
            assert requested(before, block) == found
        stored |= {name: page for name, page in pages.changes() if page is not None}
