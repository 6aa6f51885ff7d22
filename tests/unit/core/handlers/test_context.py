# SPDX-License-Identifier: Apache-2.0
"""Calls of a handler: their cost, the arguments they refuse, their error texts and their effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.core.handlers.relay import bound, dispatcher, host_of, relay, run
from validator.core.errors import Violation
from validator.core.handlers.context import Context
from validator.core.handlers.errors import ContextError, OutOfWeight
from validator.core.handlers.weights import CALL_WEIGHTS as W
from validator.core.limits import (
    HANDLER_EVENT_BYTES_MAX,
    HANDLER_EVENTS_MAX,
    HANDLER_KEY_BYTES_MAX,
    HANDLER_STATE_BYTES_MAX,
    HANDLER_VALUE_BYTES_MAX,
    U32_MAX,
    U64_MAX,
    U128_MAX,
)
from validator.core.rules import LaneRules
from validator.core.types import Balances
from validator.protocols.kit import Account
from validator.protocols.router.records import InitOpenChannel
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view

Call = Callable[[Context], Any]

CALLS: dict[str, tuple[Call, int]] = {
    "charge": (lambda c: c.charge(123), 123),
    "read nothing": (lambda c: c.read(b"key"), W.read + 3 * W.byte),
    "read": (lambda c: c.read(b"there"), W.read + 5 * W.byte + 4 * W.byte),
    "write": (lambda c: c.write(b"key", b"value"), W.write + 8 * W.byte),
    "write nothing": (lambda c: c.write(b"key", b""), W.write + 3 * W.byte),
    "delete": (lambda c: c.delete(b"there"), W.write + 5 * W.byte),
    "delete nothing": (lambda c: c.delete(b"key"), W.write + 3 * W.byte),
    "emit": (lambda c: c.emit("name", b"data"), W.emit + 8 * W.byte),
    "emit a name": (lambda c: c.emit("name"), W.emit + 4 * W.byte),
    "init": (lambda c: c.init_open_channel(3, 1, 1), W.channel),
    "accept": (lambda c: c.accept_open_channel(1), W.channel),
    "close": (lambda c: c.close_channel(1, 2), W.channel),
    "downward": (lambda c: c.queue_downward_message(3, b"hello"), W.queue_downward_message + 5 * W.byte),
    "balance": (lambda c: c.free_balance(3), W.free_balance),
    "transfer": (lambda c: c.transfer(3, 1), W.transfer),
}
ORIGINS = {"init": 2, "accept": 3}
"""The para that makes a call; all other calls come from para 1."""


def prepared(origin: int = 1, *, limit: int = 1_000_000) -> tuple[LaneRules, Context]:
    router = relay()
    context = Context(host_of(router), origin, "test", None, used=0, limit=limit)
    router.state.handler_states.put("test", b"there", b"some")
    return router, context


@pytest.mark.parametrize("name", CALLS)
def test_call_is_charged_before_it_runs(name: str) -> None:
    call, weight = CALLS[name]
    origin = ORIGINS.get(name, 1)
    _, context = prepared(origin)
    call(context)
    assert context.weight_left == 1_000_000 - weight

    router, context = prepared(origin, limit=weight)
    call(context)
    assert context.weight_left == 0

    router, context = prepared(origin, limit=weight - 1)
    before = ROUTER.root_of(router.state)
    with pytest.raises(OutOfWeight):
        call(context)
    assert ROUTER.root_of(router.state) == before
    assert router.env.events.events == []
    with pytest.raises(OutOfWeight):  # no weight is left now, not even for a call that would fit
        context.charge(0)


def test_call_refused_by_rules_is_charged() -> None:
    _, context = prepared()
    with pytest.raises(Violation):
        context.init_open_channel(1, 1, 1)
    with pytest.raises(ContextError):
        context.transfer(2, 10**9)
    assert context.weight_left == 1_000_000 - W.channel - W.transfer


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", None, b"1", "greatest"])
@pytest.mark.parametrize(
    ("name", "greatest", "call"),
    [
        ("weight", U64_MAX, lambda c, v: c.charge(v)),
        ("recipient", U32_MAX, lambda c, v: c.init_open_channel(v, 1, 1)),
        ("max_places", U32_MAX, lambda c, v: c.init_open_channel(3, v, 1)),
        ("max_message_size", U32_MAX, lambda c, v: c.init_open_channel(3, 1, v)),
        ("sender", U32_MAX, lambda c, v: c.accept_open_channel(v)),
        ("sender", U32_MAX, lambda c, v: c.close_channel(v, 2)),
        ("recipient", U32_MAX, lambda c, v: c.close_channel(1, v)),
        ("para", U32_MAX, lambda c, v: c.queue_downward_message(v, b"")),
        ("para", U32_MAX, lambda c, v: c.free_balance(v)),
        ("recipient", U32_MAX, lambda c, v: c.transfer(v, 1)),
        ("amount", U128_MAX, lambda c, v: c.transfer(2, v)),
    ],
)
def test_integer_out_of_range_is_refused(
    name: str, greatest: int, call: Callable[[Context, Any], Any], value: Any
) -> None:
    if value == "greatest":
        value = greatest + 1
    router, context = prepared()
    before = ROUTER.root_of(router.state)
    with pytest.raises(ContextError) as caught:
        call(context, value)
    assert str(caught.value) == f"{name}: expected an integer from 0 to {greatest}, found {value!r}"
    assert context.weight_left == 1_000_000
    assert ROUTER.root_of(router.state) == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.read(b""), "key: expected 1 to 128 bytes, found 0"),
        (lambda c: c.read("key"), "key: expected bytes, found str"),
        (lambda c: c.read(bytearray(b"key")), "key: expected bytes, found bytearray"),
        (lambda c: c.read(bytes(HANDLER_KEY_BYTES_MAX + 1)), "key: expected 1 to 128 bytes, found 129"),
        (lambda c: c.write(b"", b""), "key: expected 1 to 128 bytes, found 0"),
        (lambda c: c.write(b"k", None), "value: expected bytes, found NoneType"),
        (lambda c: c.write(b"k", bytes(HANDLER_VALUE_BYTES_MAX + 1)), "value: expected 0 to 65536 bytes, found 65537"),
        (lambda c: c.delete(b""), "key: expected 1 to 128 bytes, found 0"),
        (lambda c: c.emit("Name"), "event name: expected 1 to 64 of a-z 0-9 . _ -, found 'Name'"),
        (lambda c: c.emit(b"name"), "event name: expected 1 to 64 of a-z 0-9 . _ -, found b'name'"),
        (lambda c: c.emit("n" * 65), f"event name: expected 1 to 64 of a-z 0-9 . _ -, found '{'n' * 65}'"),
        (lambda c: c.emit("n", "data"), "event data: expected bytes, found str"),
        (
            lambda c: c.emit("n", bytes(HANDLER_EVENT_BYTES_MAX + 1)),
            "event data: expected 0 to 4096 bytes, found 4097",
        ),
        (lambda c: c.queue_downward_message(1, "msg"), "msg: expected bytes, found str"),
    ],
)
def test_bytes_or_name_of_wrong_length_is_refused(call: Call, text: str) -> None:
    router, context = prepared()
    before = ROUTER.root_of(router.state)
    with pytest.raises(ContextError) as caught:
        call(context)
    assert str(caught.value) == text
    assert context.weight_left == 1_000_000
    assert ROUTER.root_of(router.state) == before


def test_values_at_limit_are_accepted() -> None:
    _, context = prepared()
    key, value = bytes(HANDLER_KEY_BYTES_MAX), bytes(HANDLER_VALUE_BYTES_MAX)
    context.write(key, value)
    assert context.read(key) == value
    context.emit("n" * 64, bytes(HANDLER_EVENT_BYTES_MAX))


def test_too_many_events_fail_message() -> None:
    def handle(context: Context, message: bytes) -> None:
        for _ in range(HANDLER_EVENTS_MAX + len(message) - 1):
            context.emit("e")

    assert len(run(handle, b"m").events) == HANDLER_EVENTS_MAX
    assert run(handle, b"mm").failure == "ContextError: expected at most 256 events of a message"


def test_plugin_state_over_limit_is_refused() -> None:
    router, context = prepared(limit=10 * HANDLER_STATE_BYTES_MAX)
    states = router.state.handler_states
    states.bytes_used["test"] = HANDLER_STATE_BYTES_MAX - 4  # as if the plugin kept that much
    context.write(b"k", b"123")
    with pytest.raises(ContextError, match=f"^expected at most {HANDLER_STATE_BYTES_MAX} bytes of state, found "):
        context.write(b"l", b"")
    with pytest.raises(ContextError):
        context.write(b"k", b"1234")
    assert context.read(b"k") == b"123"
    context.write(b"k", b"12")
    context.delete(b"k")
    context.write(b"l", b"123")
    Context(host_of(router), 1, "other", None, used=0, limit=10**6).write(b"k", b"1234")


def test_keys_are_private_to_plugin_and_survive_messages_and_versions() -> None:
    router = relay()
    seen: list[bytes | None] = []

    def count(context: Context, message: bytes) -> None:
        value = context.read(b"count")
        seen.append(value)
        context.write(b"count", bytes((*(value or b""), 1)))

    def forget(context: Context, message: bytes) -> None:
        context.delete(b"count")

    owners = [
        bound("a", count, b"a", plugin="one"),
        bound("b", count, b"b", plugin="two"),
        bound("c", count, b"c", plugin="one", version="2.0"),
        bound("d", forget, b"d", plugin="one"),
    ]
    for message in (b"a", b"a", b"b", b"c", b"d", b"a"):
        assert dispatcher(owners).process(host_of(router), 1, message).outcome == "ok"
    assert seen == [None, b"\1", None, b"\1\1", None]


# --- effects of calls ---


def test_channel_calls_match_router_entry_points() -> None:
    one, other = relay(), relay()
    calls: list[tuple[int, Call]] = [
        (2, lambda c: c.init_open_channel(3, 2, 5)),
        (3, lambda c: c.accept_open_channel(2)),
        (2, lambda c: c.close_channel(1, 2)),
    ]
    for origin, call in calls:
        processed = dispatcher([bound("k", lambda context, message, call=call: call(context), b"m")]).process(
            host_of(one), origin, b"m"
        )
        assert processed.outcome == "ok"
    host = host_of(other)
    host.init_open_channel(2, 3, 2, 5)
    host.accept_open_channel(3, 2)
    host.close_channel(2, 1, 2)
    assert ROUTER.root_of(one.state) == ROUTER.root_of(other.state)
    assert one.env.events.events == other.env.events.events
    assert [event.event for event in one.env.events.events] == ["requested", "confirmed", "close_requested"]
    third = relay()
    third.apply_request(InitOpenChannel(2, 3, 2, 5))
    assert third.env.events.events == one.env.events.events[:1]


def test_notifications_are_queued_for_other_party() -> None:
    router = relay(notifications=True)
    sent = dict(router.state.downward_messages_sent)
    calls: list[Call] = [lambda c: c.init_open_channel(3, 1, 1), lambda c: c.close_channel(1, 2)]
    for origin, call in zip((2, 2), calls, strict=True):
        dispatcher([bound("k", lambda context, message, call=call: call(context), b"m")]).process(
            host_of(router), origin, b"m"
        )
    now = router.state.downward_messages_sent
    assert {para: now.get(para, 0) - sent.get(para, 0) for para in (1, 2, 3)} == {1: 1, 2: 0, 3: 1}


def test_downward_messages_are_queued() -> None:
    router = relay()
    assert run(lambda context, message: context.queue_downward_message(99, b"hello"), router=router).outcome == "ok"
    assert [message.msg for message in router.state.downward_message_queues[99]] == [b"hello"]
    processed = run(lambda context, message: context.queue_downward_message(99, bytes(51)), router=router)
    assert (processed.failure or "").startswith("ExceedsMaxMessageSize: ")


def balances(router: LaneRules) -> dict[int, tuple[int, int]]:
    return {para: (account.free, account.reserved) for para, account in sorted(router.state.accounts.items())}


def test_transfers_move_free_balance() -> None:
    router, context = prepared()
    assert balances(router) == {1: (90, 10), 2: (97, 3), 3: (100, 0)}
    assert [context.free_balance(para) for para in (1, 2, 3, 99)] == [90, 97, 100, 0]
    context.transfer(2, 40)
    context.transfer(99, 50)
    context.transfer(2, 0)
    assert balances(router) == {1: (0, 10), 2: (137, 3), 3: (100, 0), 99: (50, 0)}
    with pytest.raises(ContextError, match=r"^amount: expected at most the free balance of 0, found 1$"):
        context.transfer(2, 1)
    assert router.state_root() == ROUTER.root_of(router.state)


def test_transfer_to_self_needs_balance_and_changes_nothing() -> None:
    router, context = prepared()
    before = view(router.state)
    context.transfer(1, 90)
    with pytest.raises(ContextError, match="free balance of 90, found 91"):
        context.transfer(1, 91)
    assert view(router.state) == before


def test_transfer_that_overflows_recipient_balance_is_refused() -> None:
    router, context = prepared()
    router.state.accounts[2].free = U128_MAX
    with pytest.raises(ContextError, match=r"^amount: expected the recipient's free balance to stay below 2\*\*128"):
        context.transfer(2, 1)
    context.transfer(2, 0)
    assert router.state.accounts[1].free == 90


def test_transfer_without_ledger_changes_nothing() -> None:
    router = relay(Balances.UNLIMITED)
    context = Context(host_of(router), 1, "test", None, used=0, limit=10_000)
    before = view(router.state)
    context.transfer(2, 10**30)
    assert view(router.state) == before
    assert router.state.accounts.get(99, Account()) == Account()
