# SPDX-License-Identifier: Apache-2.0
"""Messages that the application acknowledges or refuses itself. Source: channel_rules 1.2.9, "manual_ack"."""

from __future__ import annotations

from channel_world import ACK, APPLICATION, ERROR, listener
from test_setup import local_code
from validator_channel.errors import ErrorCode


def test_manual_acknowledgement() -> None:
    world = listener(manual_ack=True).online()
    for index in (2, 4):
        out = world.receive(APPLICATION, 0, index)
        assert (out.ids, len(out.events)) == ([], 1)
        assert world.receive(APPLICATION, 0, index) == ([], [])
    world.session.ack(0, 4, 0.0)
    assert world.take().ids == [(ACK, 0, 4)]
    assert world.receive(APPLICATION, 0, 4).ids == [(ACK, 0, 4)]
    assert local_code(world.session.ack, 0, 4, 0.0) == "WRONG_STATE"
    assert local_code(world.session.ack, 9, 4, 0.0) == "UNKNOWN_TOPIC"
    world.session.ack(0, 2, 0.0)
    assert world.take().ids == [(ACK, 0, 2)]


def test_manual_acknowledgements_are_bounded_by_the_window() -> None:
    world = listener(manual_ack=True).online()
    for index in range(2, 2 + 2 * 8, 2):
        assert len(world.receive(APPLICATION, 0, index).events) == 1
    assert world.receive(APPLICATION, 0, 18) == ([], [])
    world.session.ack(0, 2, 0.0)
    world.take()
    assert len(world.receive(APPLICATION, 0, 18).events) == 1


def test_message_beyond_the_unacknowledged_ones_is_charged() -> None:
    """The peer knows our window, so one that sends more is not waiting for an answer. Source: 1.2.8 step f, 1.2.12."""
    world = listener(manual_ack=True, window=2, stale_limit=3).online()
    for index in (2, 6, 4):  # 6 gets its turn when 4 has come, and is then beyond
        world.receive(APPLICATION, 0, index)
    for _ in range(2):
        assert world.receive(APPLICATION, 0, 6) == ([], [])
    assert world.session.counts.stale == 3
    world.assert_fails(world.receive(APPLICATION, 0, 6), "LIMIT_EXCEEDED")


def test_message_for_a_full_inbox_is_not_charged() -> None:
    """It is "treated as never received", since only our application is slow. Source: 1.2.8 step h."""
    world = listener(manual_ack=True, inbox_limit=1, stale_limit=0).online()
    world.receive(APPLICATION, 0, 2)
    for _ in range(3):
        assert world.receive(APPLICATION, 0, 4) == ([], [])
    assert world.session.counts.stale == 0


def test_manual_refusal() -> None:
    """A refused message gets a non-fatal ERROR in place of its acknowledgement, and the same one again if it is repeated."""
    world = listener(manual_ack=True).online()
    for index in (2, 4):
        world.receive(APPLICATION, 0, index)
    world.session.refuse(0, 2, ErrorCode.NOT_AUTHORIZED, 0.0)
    assert world.take().ids == [(ERROR, 0, 2)]
    assert world.receive(APPLICATION, 0, 2).ids == [(ERROR, 0, 2)]
    assert local_code(world.session.refuse, 0, 2, ErrorCode.NOT_AUTHORIZED, 0.0) == "WRONG_STATE"
    assert local_code(world.session.ack, 0, 2, 0.0) == "WRONG_STATE"
    assert local_code(world.session.refuse, 9, 2, ErrorCode.NOT_AUTHORIZED, 0.0) == "UNKNOWN_TOPIC"
    world.session.ack(0, 4, 0.0)
    assert world.take().ids == [(ACK, 0, 4)]
    world.session.abort(0.0)
    world.session.refuse(0, 4, ErrorCode.NOT_AUTHORIZED, 0.0)
