# SPDX-License-Identifier: Apache-2.0
"""The bad inputs that a reviewer tries, as a checklist: each item of channel_rules 3.6 with its code and its test.

A row either holds the input, which an online session takes here, or names the test that has it: module::test.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

import pytest
from channel_world import (
    ACK,
    APPLICATION,
    CHANNEL,
    DEREGISTER,
    ERROR,
    JOIN,
    JOIN_TEXT,
    KEYS,
    LEAVE,
    NO_MESSAGE,
    PEERS,
    REGISTER,
    SESSION,
    Out,
    World,
    connector,
    listener,
    text,
)
from validator_channel.crypto import Sealer
from validator_channel.limits import COUNTER_MAX
from validator_channel.wire import encode_frame, encode_message, pack_message_id

MAX_FRAME: Final = 4096
"""The setting of `World`."""
UNNAMED: Final = (0, NO_MESSAGE)
SILENT: Final = None
"""No ERROR is sent: the bad frame is one itself, or the session ends by a Delivery error."""


class Row(NamedTuple):
    """An input and its verdict: a fatal code with the (topic, index) that the ERROR names, or no code for what is no error."""

    item: str
    code: str | None
    by: Callable[[World], Out] | str
    named: tuple[int, int] | None = UNNAMED
    world: Callable[[], World] = lambda: listener().online()


# --- ways to make an input ---


def raw(data: bytes) -> Callable[[World], Out]:
    return lambda world: world.feed(data)


def body(data: bytes) -> Callable[[World], Out]:
    return raw(encode_frame(data))


def members(world: World) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode_message(world.message(APPLICATION, 0, 2, b"text")))
    return value


def member(**changes: Any) -> Callable[[World], Out]:
    """A genuine message with other members."""
    return lambda world: world.feed(encode_frame(json.dumps({**members(world), **changes}).encode()))


def replaced(old: str, new: str | bytes) -> Callable[[World], Out]:
    """A genuine message with another text in one place."""

    def act(world: World) -> Out:
        good = json.dumps(members(world)).encode()
        assert old.encode() in good
        return world.feed(encode_frame(good.replace(old.encode(), new if isinstance(new, bytes) else new.encode(), 1)))

    return act


def payload(change: Callable[[str], str]) -> Callable[[World], Out]:
    """A genuine message with a changed base64 text."""

    def act(world: World) -> Out:
        good = members(world)
        return world.feed(encode_frame(json.dumps({**good, "payload": change(good["payload"])}).encode()))

    return act


def flipped(name: str, bit: int) -> Callable[[World], Out]:
    """A genuine message with one bit flipped in what the tag covers."""

    def act(world: World) -> Out:
        message = world.message(APPLICATION, 0, 2, b"text")
        if name == "sealed":
            value: Any = bytearray(message.sealed)
            value[bit // 8] ^= 1 << bit % 8
            return world.feed(encode_frame(encode_message(message._replace(sealed=bytes(value)))))
        changed = message._replace(**{name: getattr(message, name) ^ 1 << bit})
        return world.feed(encode_frame(encode_message(changed)))

    return act


def sealed_by(key: bytes, sender: int, index: int, claimed: int | None = None) -> Callable[[World], Out]:
    def act(world: World) -> Out:
        message = world.message(APPLICATION, 0, index, b"text")
        _, sealed = Sealer(key, sender).seal(APPLICATION, message.id, b"text")
        message = message._replace(counter=0, sealed=sealed, peer=message.peer if claimed is None else claimed)
        return world.feed(encode_frame(encode_message(message)))

    return act


def received(
    kind: Any, topic: int, index: int, plaintext: bytes = b"{}", counter: int | None = None
) -> Callable[[World], Out]:
    return lambda world: world.receive(kind, topic, index, plaintext, counter)


def other_session(world: World) -> Out:
    message = world.message(JOIN, 0, 2, JOIN_TEXT)
    return world.feed(encode_frame(encode_message(message._replace(id=pack_message_id(CHANNEL, SESSION + 1, 0, 2)))))


def after_leave(world: World) -> Out:
    assert world.receive(LEAVE, 0, 2).ids[0] == (ACK, 0, 2)
    return world.receive(APPLICATION, 0, 4)


def repeatedly(count: int, act: Callable[[World], Out]) -> Callable[[World], Out]:
    def run(world: World) -> Out:
        for _ in range(count - 1):
            assert not act(world).events
        return act(world)

    return run


def lost(data: bytes) -> Callable[[World], Out]:
    """Bytes, then the end of the transport."""

    def act(world: World) -> Out:
        assert world.feed(data) == ([], [])
        world.session.connection_lost(world.now)
        return world.take()

    return act


def gap(world: World) -> Out:
    """Index 2 never comes: what is within the window is held, the rest is charged."""
    for index in range(4, 2 + 2 * 8, 2):
        assert world.receive(APPLICATION, 0, index) == ([], [])
    return repeatedly(4, received(APPLICATION, 0, 2 + 2 * 8))(world)


def small_budget() -> World:
    return listener(stale_limit=3).online()


FULL: Final = "A" * 24
FRAME: Final = [
    Row("length 0", "BAD_FRAME", raw(bytes(4))),
    Row("length 1", "BAD_JSON", body(b"{")),
    Row("length max, white space", "BAD_JSON", body(b" " * MAX_FRAME)),
    Row("length max + 1", "FRAME_TOO_LARGE", raw((MAX_FRAME + 1).to_bytes(4, "big"))),
    Row("length 0xFFFFFFFF", "FRAME_TOO_LARGE", raw(b"\xff" * 4)),
    Row("length larger than the bytes, then EOF", "TRANSPORT_LOST", lost(b"\0\0\1\0abc"), SILENT),
    Row("close_notify in the middle of a length", "TRANSPORT_LOST", lost(b"\0\0"), SILENT),
    Row("two frames in one read", None, "test_faults::test_frames_before_a_fault_count_and_the_rest_is_ignored"),
    Row("one frame in single bytes", None, "test_hostile::test_any_bytes_in_any_pieces"),
    Row("hello of 1025 bytes", "BAD_HELLO", "test_hello::test_bad_frame"),
]
JSON: Final = [
    Row("{}", "BAD_MESSAGE", body(b"{}")),
    Row("[]", "BAD_MESSAGE", body(b"[]")),
    Row("null", "BAD_MESSAGE", body(b"null")),
    Row("{}{}", "BAD_JSON", body(b"{}{}")),
    Row("member twice", "BAD_JSON", replaced('"v": 1', '"v": 1, "v": 1')),
    Row("member twice, once with an escape", "BAD_JSON", replaced('"v": 1', '"v": 1, "\\u0076": 1')),
    Row("escaped quotation mark in a name", "BAD_MESSAGE", replaced('"kind"', '"kind\\u0022"')),
    Row("lone surrogate", "BAD_JSON", replaced("APPLICATION", "\\ud800")),
    Row("NaN", "BAD_JSON", replaced('"ctr": 2', '"ctr": NaN')),
    Row("1e400", "BAD_MESSAGE", replaced('"ctr": 2', '"ctr": 1e400')),
    Row("10^5 digits (in a larger frame)", "BAD_JSON", "test_wire::test_bad_json"),
    Row("4000 digits", "BAD_MESSAGE", replaced('"ctr": 2', '"ctr": ' + "1" * 3_700)),
    Row("depth 10^5 (in a larger frame)", "BAD_JSON", "test_wire::test_bad_json"),
    Row("depth 65", "BAD_JSON", body(b"[" * 65 + b"]" * 65)),
    Row("byte order mark", "BAD_JSON", replaced("{", b"\xef\xbb\xbf{")),
    Row("UTF-16", "BAD_JSON", body("{}".encode("utf-16"))),
    Row("invalid UTF-8", "BAD_JSON", replaced("APPLICATION", b"\xff")),
    Row("extra member", "BAD_MESSAGE", member(extra=1)),
    *(
        Row(f"v {value!r}", code, member(v=value))
        for value, code in [(True, "BAD_MESSAGE"), (1.0, "BAD_MESSAGE"), ("1", "BAD_MESSAGE"), (2, "BAD_VERSION")]
    ),
    *(Row(f"ctr {value!r}", "BAD_MESSAGE", member(ctr=value)) for value in (-1, 1.0, 2**53, True, "0")),
    Row("upper-case hex", "BAD_MESSAGE", member(peer=f"{PEERS[0]:032X}")),
    Row("31 digits", "BAD_MESSAGE", member(id="0" * 31)),
    Row("33 digits", "BAD_MESSAGE", member(id="0" * 33)),
    Row("full-width digits", "BAD_MESSAGE", member(id="\uff10" * 32)),
    Row("every one of them, by either way of reading", None, "test_equal_verdicts::test_traps"),
]
BASE64: Final = [
    Row("no padding", "BAD_MESSAGE", payload(lambda good: good.rstrip("="))),
    Row("too much padding", "BAD_MESSAGE", payload(lambda good: good + "=")),
    Row("URL-safe", "BAD_MESSAGE", payload(lambda good: "-_" + good[2:])),
    Row("white space", "BAD_MESSAGE", payload(lambda good: good[:4] + " " + good[4:])),
    Row("line feed at the end", "BAD_MESSAGE", payload(lambda good: good + "\n")),
    Row("QR==", "BAD_MESSAGE", payload(lambda good: "A" * 40 + "QR==")),
    Row("inner padding", "BAD_MESSAGE", payload(lambda good: "AA==" + good)),
    Row("15 bytes", "BAD_MESSAGE", payload(lambda good: base64.b64encode(bytes(15)).decode())),
    Row("empty", "BAD_MESSAGE", payload(lambda good: "")),
    Row("16 bytes, a tag alone", "DECRYPT_FAILED", payload(lambda good: base64.b64encode(bytes(16)).decode()), (0, 2)),
    Row("by either library", None, "test_equal_verdicts::test_every_last_character"),
]
CRYPTO: Final = [
    *(Row(f"bit {bit} of the body", "DECRYPT_FAILED", flipped("sealed", bit), (0, 2)) for bit in (0, 31)),
    *(Row(f"bit {bit} of the tag", "DECRYPT_FAILED", flipped("sealed", 32 + bit), (0, 2)) for bit in (0, 127)),
    Row("every bit", "DECRYPT_FAILED", "test_crypto::test_every_sealed_value_is_authenticated"),
    Row("kind", "DECRYPT_FAILED", member(kind="TOPIC_REGISTER"), (0, 2)),
    Row("kind ERROR", "DECRYPT_FAILED", member(kind="ERROR"), SILENT),
    Row("peer, channel part", "WRONG_PEER", flipped("peer", 127), (0, 2)),
    Row("peer, own part", "WRONG_PEER", flipped("peer", 0), (0, 2)),
    Row("id, channel part", "WRONG_CHANNEL", flipped("id", 127)),
    Row("id, session part", "WRONG_SESSION", flipped("id", 63)),
    Row("id, topic part", "DECRYPT_FAILED", flipped("id", 32), (1, 2)),
    Row("id, index part", "DECRYPT_FAILED", flipped("id", 2), (0, 6)),
    *(Row(f"ctr, bit {bit}", "DECRYPT_FAILED", flipped("counter", bit), (0, 2)) for bit in (0, 52)),
    Row("swapped direction: our own frame", "WRONG_PEER", sealed_by(KEYS[1], PEERS[1], 3, PEERS[1]), (0, 3)),
    Row("swapped direction: our key under the peer's name", "DECRYPT_FAILED", sealed_by(KEYS[1], PEERS[0], 2), (0, 2)),
    Row("frame of another session with its ID", "WRONG_SESSION", other_session),
    Row("frame of another session with our ID", "DECRYPT_FAILED", sealed_by(b"k" * 32, PEERS[0], 2), (0, 2)),
    Row("all-zero and low-order points", "BAD_HELLO", "test_hello::test_bad_client_hello"),
    Row(
        "hello replay, reflected signature",
        "AUTH_FAILED",
        "test_hello::test_reflected_signature_and_replayed_handshake",
    ),
    Row("signature of another key", "AUTH_FAILED", "test_hello::test_server_of_another_key_or_certificate"),
    Row("counter again, new message", None, received(APPLICATION, 0, 2, counter=0)),
    Row(
        "counter again, beyond the budget",
        "LIMIT_EXCEEDED",
        repeatedly(4, received(APPLICATION, 0, 2, counter=0)),
        world=small_budget,
    ),
    Row("counter 2^53 - 1", None, "test_delivery::test_jump_to_the_last_counter"),
    Row(
        "counter behind a jump to 2^53 - 1",
        None,
        lambda world: (world.receive(ACK, 0, 1, counter=COUNTER_MAX), world.receive(APPLICATION, 0, 2, counter=5))[1],
    ),
]
STATE: Final = [
    Row("APPLICATION before JOIN", "WRONG_STATE", received(APPLICATION, 0, 0), (0, 0), lambda: listener().setup()),
    Row(
        "APPLICATION on a topic before JOIN",
        "WRONG_STATE",
        received(APPLICATION, 7, 0),
        (7, 0),
        lambda: listener().setup(),
    ),
    Row("second JOIN", "WRONG_STATE", received(JOIN, 0, 2, JOIN_TEXT), (0, 2)),
    Row("JOIN of another session", "WRONG_SESSION", other_session),
    Row("message after LEAVE", "WRONG_STATE", after_leave, (0, 4)),
    Row("REGISTER 0", None, received(REGISTER, 0, 2, text({"topic": 0}))),
    Row(
        'REGISTER 2^22, -1, "7", true, 1.5',
        "BAD_PAYLOAD",
        "test_topics::test_bad_registration_is_refused_and_the_session_goes_ahead",
    ),
    Row("DEREGISTER 0: TOPIC_RESERVED, not fatal", None, received(DEREGISTER, 0, 2, text({"topic": 0}))),
    *(
        Row(
            f"{kind} for {what}",
            "BAD_ACK",
            received(kind, topic, index, plaintext),
            (topic, index) if kind is ACK else SILENT,
        )
        for kind, plaintext in ((ACK, b"{}"), (ERROR, text({"code": "X", "fatal": False})))
        for what, topic, index in (("unsent", 0, 3), ("its own message", 0, 0), ("an unknown topic", 9, 1))
    ),
    Row("ACK for NO_MESSAGE", "BAD_ACK", received(ACK, 0, NO_MESSAGE), UNNAMED),
    Row("ACK or ERROR for a queued message", "BAD_ACK", "test_delivery::test_answer_to_what_was_never_transmitted"),
    Row(
        "ERROR in reply to an ERROR",
        "BAD_ACK",
        lambda world: (
            world.receive(APPLICATION, 7, 0),
            world.receive(ERROR, 7, 0, text({"code": "X", "fatal": False})),
        )[1],
        SILENT,
    ),
    Row("wrong parity", "INDEX_INVALID", received(APPLICATION, 0, 3), (0, 3)),
    Row("index 0xFFFFFFFE: beyond the window", None, received(APPLICATION, 0, 0xFFFFFFFE)),
    Row("index 0xFFFFFFFF", "INDEX_INVALID", received(APPLICATION, 0, NO_MESSAGE), UNNAMED),
    Row("index 0xFFFFFFFE in its turn", None, "test_delivery::test_last_index_of_the_peer"),
    Row("gap never filled", "LIMIT_EXCEEDED", gap, world=small_budget),
    Row("topics without end", "LIMIT_EXCEEDED", "test_topics::test_unknown_topic_keeps_no_state_and_has_a_budget"),
    Row("topics registered without end", None, "test_hostile::test_hostile_registrations_and_refusals_are_bounded"),
    Row(
        "duplicates without end",
        "LIMIT_EXCEEDED",
        "test_faults::test_flood_of_duplicates_gets_no_answer_beyond_the_budget",
    ),
    Row("storm of acknowledgements", "LIMIT_EXCEEDED", "test_faults::test_flood_of_acknowledgements"),
    Row("each flood within the budget, in flat memory", None, "test_floods::test_memory_is_flat"),
]
TIME: Final = [
    Row(
        "silence in HANDSHAKE",
        "HANDSHAKE_TIMEOUT",
        "test_setup::test_handshake_ends_by_timeout_failure_bytes_leave_or_loss",
    ),
    Row("silence in SETUP", "SETUP_TIMEOUT", "test_setup::test_setup_times_out"),
    Row(
        "silence in ONLINE: nothing is due, unless the owner keeps alive",
        "ACK_TIMEOUT",
        "test_topics::test_keep_alive_is_acknowledged_or_detects_a_dead_peer",
    ),
    Row("silence in TEARDOWN", "TEARDOWN_TIMEOUT", "test_teardown::test_teardown_times_out"),
    Row("one byte per second", "FRAME_TIMEOUT", "test_faults::test_frame_timeout_is_absolute"),
    Row("reader that never reads", None, "test_delivery::test_blocked_transport_counts_retransmissions_without_bytes"),
    Row("suspended for an hour: one retransmission, not many", None, "test_delivery::test_late_timer_retransmits_once"),
    Row(
        "suspended for an hour within a frame",
        "FRAME_TIMEOUT",
        lambda world: (world.feed(b"\0"), world.timer(3600.0))[1],
        SILENT,
    ),
    Row(
        "suspended for an hour in SETUP",
        "SETUP_TIMEOUT",
        lambda world: world.timer(3600.0),
        SILENT,
        lambda: connector().setup(),
    ),
]
CHECKLIST: Final = {"Frame": FRAME, "JSON": JSON, "base64": BASE64, "Crypto": CRYPTO, "State": STATE, "Time": TIME}
ROWS: Final = [pytest.param(row, id=f"{group}: {row.item}") for group, rows in CHECKLIST.items() for row in rows]
DELIVERY: Final = {"TRANSPORT_LOST", "FRAME_TIMEOUT", "SETUP_TIMEOUT"}


@pytest.mark.parametrize("row", ROWS)
def test_bad_input(row: Row) -> None:
    if isinstance(row.by, str):
        module, _, name = row.by.partition("::")
        assert callable(getattr(import_module(module), name))
        return
    world = row.world()
    out = row.by(world)
    if row.code is None:
        assert world.session.state == "ONLINE"
        assert out.events == []
    elif row.code in DELIVERY:
        world.assert_ends(out, row.code)
    else:
        world.assert_fails(out, row.code, row.named)


def test_refusals_of_the_checklist() -> None:
    """The rows without an end still have an answer, or none."""
    world = listener().online()
    assert world.receive(REGISTER, 0, 2, text({"topic": 0})).ids == [(ACK, 0, 2)]
    out = world.receive(DEREGISTER, 0, 4, text({"topic": 0}))
    assert (out.ids, out.tx[0].json["code"], out.tx[0].json["fatal"]) == ([(ERROR, 0, 4)], "TOPIC_RESERVED", False)
    assert world.receive(APPLICATION, 0, 0xFFFFFFFE) == ([], [])
    assert world.receive(APPLICATION, 0, 6, counter=0) == ([], [])
