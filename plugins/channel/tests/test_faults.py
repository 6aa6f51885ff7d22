# SPDX-License-Identifier: Apache-2.0
"""Fatal errors: codes in the order of their checks, the ID they name, budgets, frame timeout. Source: channel_rules 1.2.8, 1.2.11."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channel_world import (
    ACK,
    APPLICATION,
    CHANNEL,
    ERROR,
    KEYS,
    NO_MESSAGE,
    PEERS,
    SESSION,
    World,
    connector,
    listener,
    text,
)
from validator_channel.crypto import Sealer
from validator_channel.events import PeerError, SessionClosed
from validator_channel.wire import Kind, Message, encode_frame, encode_message, pack_message_id

UNNAMED = (0, NO_MESSAGE)
STRANGER = CHANNEL << 64 | 1


def other_id(*, channel: int = CHANNEL, session: int = SESSION) -> int:
    return pack_message_id(channel, session, 7, 42)


def sent(world: World, sealed_as: Kind = APPLICATION, **changes: Any) -> bytes:
    return encode_frame(encode_message(world.message(sealed_as, 0, 2, b"x")._replace(**changes)))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\0\0\0\0", "BAD_FRAME"),
        (b"\0\0\x10\x01", "FRAME_TOO_LARGE"),
        (b"\xff\xff\xff\xff", "FRAME_TOO_LARGE"),
        (encode_frame(b"{"), "BAD_JSON"),
        (encode_frame(b"[]"), "BAD_MESSAGE"),
        (encode_frame(b'{"v":2}'), "BAD_VERSION"),
        (encode_frame(b'{"v":1}'), "BAD_MESSAGE"),
    ],
)
def test_bytes_that_are_no_message(data: bytes, code: str) -> None:
    world = listener().online()
    world.assert_fails(world.feed(data), code, UNNAMED)


METADATA: list[tuple[dict[str, Any], str, tuple[int, int]]] = [
    ({"id": other_id(channel=CHANNEL + 1)}, "WRONG_CHANNEL", UNNAMED),
    ({"id": other_id(channel=CHANNEL + 1, session=6), "peer": STRANGER}, "WRONG_CHANNEL", UNNAMED),
    ({"peer": STRANGER}, "WRONG_PEER", (0, 2)),
    ({"peer": PEERS[1]}, "WRONG_PEER", (0, 2)),
    ({"id": other_id(session=6), "peer": STRANGER}, "WRONG_PEER", UNNAMED),
    ({"id": other_id(session=6)}, "WRONG_SESSION", UNNAMED),
    ({"id": other_id()}, "DECRYPT_FAILED", (7, 42)),
    ({"counter": 3}, "DECRYPT_FAILED", (0, 2)),
    ({"kind": ACK}, "DECRYPT_FAILED", (0, 2)),
    ({"sealed": bytes(16)}, "DECRYPT_FAILED", (0, 2)),
]


@pytest.mark.parametrize(("changes", "code", "named"), METADATA)
def test_metadata_in_the_order_of_checks(changes: dict[str, Any], code: str, named: tuple[int, int]) -> None:
    world = listener().online()
    world.assert_fails(world.feed(sent(world, **changes)), code, named)
    world = listener().online()
    world.assert_fails(
        world.feed(sent(world, ERROR if "kind" not in changes else ACK, **{**changes, "kind": ERROR})), code, None
    )


def test_frame_that_claims_to_be_an_error_is_not_answered() -> None:
    for members in ({"v": 2}, {"v": 1}, {"v": None}):
        world = listener().online()
        out = world.feed(encode_frame(json.dumps({"kind": "ERROR", **members}).encode()))
        world.assert_fails(out, "BAD_VERSION" if members["v"] == 2 else "BAD_MESSAGE", None)


@pytest.mark.parametrize(
    ("key", "sealed_as", "claimed", "code"),
    [
        (KEYS[1], PEERS[1], PEERS[1], "WRONG_PEER"),
        (KEYS[1], PEERS[1], PEERS[0], "DECRYPT_FAILED"),
        (KEYS[1], PEERS[0], PEERS[0], "DECRYPT_FAILED"),
        (b"k" * 32, PEERS[0], PEERS[0], "DECRYPT_FAILED"),
    ],
    ids=["our own frame", "under the peer's name", "sealed by our key", "of another session with our ID"],
)
def test_frame_under_another_key(key: bytes, sealed_as: int, claimed: int, code: str) -> None:
    message_id = pack_message_id(CHANNEL, SESSION, 0, 3)
    counter, sealed = Sealer(key, sealed_as).seal(APPLICATION, message_id, b"x")
    world = listener().online()
    frame = encode_frame(encode_message(Message(APPLICATION, claimed, message_id, counter, sealed)))
    world.assert_fails(world.feed(frame), code, (0, 3))


@pytest.mark.parametrize("index", [1, 3, 0xFFFFFFFD, NO_MESSAGE])
def test_index_of_the_wrong_parity(index: int) -> None:
    world = listener().online()
    world.assert_fails(world.receive(APPLICATION, 0, index), "INDEX_INVALID", (0, index))
    world = listener().online()
    world.assert_fails(world.receive(Kind.TOPIC_REGISTER, 7, index), "INDEX_INVALID", (7, index))


def test_frames_before_a_fault_count_and_the_rest_is_ignored() -> None:
    world = listener().online()
    good = world.frame(APPLICATION, 0, 2, b"x")
    out = world.feed(good + b"\0\0\0\0" + world.frame(APPLICATION, 0, 4, b"y"))
    assert out.ids == [(ACK, 0, 2), (ERROR, *UNNAMED)]
    assert world.feed(good) == ([], [])
    world = listener().online()
    out = world.feed(world.frame(APPLICATION, 0, 2, b"x") + sent(world, peer=STRANGER) + b"\0\0\0\0")
    assert out.ids == [(ACK, 0, 2), (ERROR, 0, 2)]


@pytest.mark.parametrize(
    "plaintext",
    [
        b"",
        b"[]",
        b"{}",
        b'{"code":5,"fatal":true}',
        b'{"code":"X"}',
        b'{"code":"X","fatal":1}',
        b'{"code":"X","code":"X","fatal":true}',
    ],
)
def test_bad_error(plaintext: bytes) -> None:
    world = listener().online()
    world.assert_fails(world.receive(ERROR, 0, 1, plaintext), "BAD_PAYLOAD", None)


@pytest.mark.parametrize(("topic", "index"), [UNNAMED, (0, 1), (0, 2), (9, 77)])
def test_fatal_error_ends_the_session_whatever_it_names(topic: int, index: int) -> None:
    world = listener().online()
    out = world.receive(ERROR, topic, index, text({"category": "runtime", "code": "NEW", "fatal": True, "detail": 5}))
    assert out == ([], [PeerError("NEW", is_fatal=True, detail=None), SessionClosed(is_clean=False, undelivered=())])


# --- budgets ---


def test_flood_of_acknowledgements() -> None:
    world = connector(stale_limit=3).online()
    for _ in range(3):
        assert world.receive(ACK, 0, 0) == ([], [])
    world.assert_fails(world.receive(ACK, 0, 0), "LIMIT_EXCEEDED", UNNAMED)


def test_flood_of_errors_is_not_answered() -> None:
    world = connector(stale_limit=0).online()
    out = world.receive(ERROR, 0, 0, text({"code": "X", "fatal": False}))
    world.assert_fails(out, "LIMIT_EXCEEDED", None)


def test_flood_of_duplicates_gets_no_answer_beyond_the_budget() -> None:
    world = listener(stale_limit=3).online()
    world.receive(APPLICATION, 0, 2)
    for _ in range(3):
        assert world.receive(APPLICATION, 0, 2).ids == [(ACK, 0, 2)]
    world.assert_fails(world.receive(APPLICATION, 0, 2), "LIMIT_EXCEEDED", UNNAMED)


def test_budget_is_counted_over_a_period() -> None:
    world = listener(stale_limit=2).online()
    world.receive(APPLICATION, 0, 2)
    for now in (0.0, 9.0, 10.0, 19.0, 20.0):
        world.now = now
        assert world.receive(APPLICATION, 0, 2).ids == [(ACK, 0, 2)]
    world.now = 28.999
    world.assert_fails(world.receive(APPLICATION, 0, 2), "LIMIT_EXCEEDED", UNNAMED)


def test_held_message_again_is_charged() -> None:
    world = listener(stale_limit=1).online()
    world.receive(APPLICATION, 0, 4)
    assert world.receive(APPLICATION, 0, 4) == ([], [])
    world.assert_fails(world.receive(APPLICATION, 0, 4), "LIMIT_EXCEEDED", UNNAMED)


# --- frame timeout ---


@pytest.mark.parametrize("data", [b"\0\0\1\0abc", b"\0\0"], ids=["body", "length"])
def test_transport_that_ends_within_a_frame(data: bytes) -> None:
    world = listener().online()
    assert world.feed(data) == ([], [])
    world.session.connection_lost(world.now)
    world.assert_ends(world.take(), "TRANSPORT_LOST")


def test_frame_timeout_is_absolute() -> None:
    world = listener().online()
    frame = world.frame(APPLICATION, 0, 2, b"x")
    for at in range(5):
        world.now = float(at)
        world.feed(frame[at : at + 1])
        assert world.session.next_deadline() == 5.0
    world.assert_ends(world.timer(5.0), "FRAME_TIMEOUT")


def test_frame_timeout_starts_with_each_frame() -> None:
    world = listener().online()
    first, second = world.frame(APPLICATION, 0, 2, b"x"), world.frame(APPLICATION, 0, 4, b"y")
    world.feed(first[:10])
    world.now = 4.0
    world.feed(first[10:] + second[:3])
    assert world.session.next_deadline() == 9.0
    world.now = 8.0
    world.feed(second[3:])
    assert world.session.next_deadline() is None


def test_time_of_a_frame_stands_still_while_nothing_is_read() -> None:
    """Nobody can end a frame that is not read; the time in which it is read counts, however it is cut. Source: 1.2.12, 5.2."""
    world = listener().online()
    frame = world.frame(APPLICATION, 0, 2, b"x")
    world.feed(frame[:10])
    world.session.set_reading(3.0, is_reading=False)
    world.session.set_reading(4.0, is_reading=False)
    assert world.session.next_deadline() is None
    assert world.timer(3_600.0) == ([], [])
    world.session.set_reading(3_600.0, is_reading=True)
    world.session.set_reading(3_601.0, is_reading=True)
    assert world.session.next_deadline() == 3_602.0
    assert world.timer(3_601.9) == ([], [])
    assert world.feed(frame[10:]).ids == [(ACK, 0, 2)]
    assert world.session.next_deadline() is None
    world.feed(frame[:1])
    for at in range(10):
        world.session.set_reading(3_601.9 + at, is_reading=False)
        world.session.set_reading(3_602.4 + at, is_reading=True)
    world.assert_ends(world.timer(3_612.0), "FRAME_TIMEOUT")


def test_frame_that_begins_while_nothing_is_read_has_all_its_time() -> None:
    """What was read before the pause is processed in it, and may end in a part of a frame."""
    world = listener().online()
    first, second = world.frame(APPLICATION, 0, 2, b"x"), world.frame(APPLICATION, 0, 4, b"y")
    world.feed(first[:1])
    world.session.set_reading(4.0, is_reading=False)
    world.now = 5.0
    world.feed(first[1:] + second[:1])
    assert world.session.next_deadline() is None
    world.session.set_reading(8.0, is_reading=True)
    assert world.session.next_deadline() == 13.0
    world.session.set_reading(9.0, is_reading=False)
    world.now = 9.0
    world.feed(second[1:])
    world.session.set_reading(10.0, is_reading=True)
    assert world.session.next_deadline() is None
    world.feed(b"\0")
    world.session.set_reading(10.0, is_reading=False)
    world.session.abort(10.0)
    world.session.set_reading(10.0, is_reading=True)
    assert world.session.next_deadline() is None


def test_state_timeout_comes_before_frame_timeout_and_messages() -> None:
    world = connector(teardown_timeout=5.0).online()
    world.send()
    world.leave()
    world.feed(b"\0")
    world.assert_ends(world.timer(50.0), "TEARDOWN_TIMEOUT")
    world = connector().online()
    world.send()
    world.feed(b"\0")
    world.assert_ends(world.timer(50.0), "FRAME_TIMEOUT")
