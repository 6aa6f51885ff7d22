# SPDX-License-Identifier: Apache-2.0
"""A recipient gets each message once, in the fair order, however events and bodies arrive and wherever it starts again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp_bodies.follow import START, Delivery, Follower, MessageName
from validator_xcmp_bodies.outcomes import EventKind, Held, IngressEvent, RecordOffset, Watermark

ROOT = bytes(32)


def queued(name: MessageName, block: int | None = None, kind: EventKind = EventKind.QUEUED) -> IngressEvent:
    return IngressEvent(name[0] if block is None else block, kind, 7, name[1], name[0], ROOT, 1)


def held(name: MessageName) -> Held:
    return Held(7, name[1], name[0], ROOT, 1, 1, (RecordOffset(0, 0),))


def taken(follower: Follower, *, complete: bool = True) -> list[MessageName]:
    return [delivery.position for delivery in follower.deliveries(complete=complete)]


NAMES = st.sets(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=12)


@given(NAMES, st.randoms(use_true_random=False), st.data())
def test_order_is_that_of_the_queue_for_any_arrival(
    names: set[MessageName], random: object, data: st.DataObject
) -> None:
    events = [
        queued(name)
        for block in range(6)
        for name in data.draw(st.permutations(sorted(each for each in names if each[0] == block)))
    ]
    bodies = [held(name) for name in data.draw(st.permutations(sorted(names)))]
    follower, got = Follower(), []
    while events or bodies:
        if events and (not bodies or data.draw(st.booleans())):
            follower.apply(events.pop(0))
        else:
            follower.hold(bodies.pop(0))
        if data.draw(st.booleans()):
            got += taken(follower, complete=not events)
            if data.draw(st.booleans()):
                follower = again(follower, names, events, bodies)
    got += taken(follower)
    assert got == sorted(names)


def again(follower: Follower, names: set[MessageName], events: list[IngressEvent], bodies: list[Held]) -> Follower:
    """Return a follower that starts at the position and has read as much as the one before."""
    left = {(each.sent_at, each.sender) for each in events}
    new = Follower(follower.position)
    for name in sorted(names - left):
        new.apply(queued(name))
    for name in sorted(names - {(each.sent_at, each.sender) for each in bodies}):
        new.hold(held(name))
    return new


def test_a_late_body_holds_back_what_is_behind_it() -> None:
    follower = Follower()
    for name in ((5, 1), (5, 3), (6, 2)):
        follower.apply(queued(name))
    follower.hold(held((5, 3)))
    follower.hold(held((6, 2)))
    assert taken(follower) == []
    assert follower.waits_for() == (5, 1)
    follower.hold(held((5, 1)))
    assert taken(follower) == [(5, 1), (5, 3), (6, 2)]
    assert follower.waits_for() is None


def test_a_block_that_is_read_in_part_waits_for_the_rest() -> None:
    follower = Follower()
    follower.apply(queued((5, 3)))
    follower.hold(held((5, 3)))
    assert taken(follower, complete=False) == []
    follower.apply(queued((5, 1)))
    follower.hold(held((5, 1)))
    assert taken(follower) == [(5, 1), (5, 3)]


def test_acknowledged_and_removed_messages_are_not_handed_over() -> None:
    follower = Follower()
    for name in ((5, 1), (5, 3), (6, 2)):
        follower.apply(queued(name))
        follower.hold(held(name))
    follower.apply(queued((5, 1), 7, EventKind.ACKNOWLEDGED))
    follower.apply(queued((5, 3), 7, EventKind.REMOVED))
    assert taken(follower) == [(6, 2)]


def test_each_delivery_says_what_may_be_acknowledged() -> None:
    follower = Follower()
    for name in ((5, 1), (5, 3), (6, 2)):
        follower.apply(queued(name))
        follower.hold(held(name))
    found: list[Delivery] = list(follower.deliveries(complete=True))
    assert [(each.acks, each.watermark) for each in found] == [
        (((5, 1),), Watermark(5, (1,))),
        (((5, 1), (5, 3)), Watermark(6, ())),
        (((5, 1), (5, 3), (6, 2)), Watermark(7, ())),
    ]
    follower.apply(queued((5, 1), 7, EventKind.ACKNOWLEDGED))
    follower.apply(queued((8, 1)))
    follower.hold(held((8, 1)))
    assert [each.acks for each in follower.deliveries(complete=True)] == [((5, 3), (6, 2), (8, 1))]


def test_start_is_before_every_message() -> None:
    assert START < (0, 0)
