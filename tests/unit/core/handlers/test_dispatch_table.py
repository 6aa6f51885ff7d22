# SPDX-License-Identifier: Apache-2.0
"""Which handler owns a message: prefixes come first, then decode functions, and no message has two owners."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.handlers.relay import bound, dispatcher, host_of, relay
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch, find_conflicts
from validator.core.handlers.handler import Handler, MessageWeight
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.limits import HANDLER_PREFIX_BYTES_MAX, PAYLOAD_BYTES_MAX, U64_MAX
from validator.core.outcomes import DispatchOutcome


@given(st.lists(st.binary(max_size=4), unique=True, max_size=8), st.binary(max_size=6))
def test_prefix_owns_payloads_that_start_with_it(prefixes: list[bytes], payload: bytes) -> None:
    """Compare with the definition: if no prefix starts another, the owner is the prefix that the payload starts with."""
    prefix_free = [
        one
        for one in prefixes
        if one and not any(one != other and one.startswith(other) for other in prefixes if other)
    ]
    table = DispatchTable([bound(f"kind{at}", prefix=prefix) for at, prefix in enumerate(prefix_free)])
    owner = table.by_prefix(payload)
    assert [owner.handler.prefix] if owner else [prefix for prefix in prefix_free if payload.startswith(prefix)] == []


def test_order_of_handlers_does_not_matter() -> None:
    handlers = [
        bound("b", decode=bytes.decode, plugin="second"),
        bound("a", decode=bytes.decode, plugin="second"),
        bound("c", decode=bytes.decode, plugin="first"),
        bound("p", prefix=b"\x01"),
    ]
    for order in permutations(handlers):
        table = DispatchTable(order)
        assert [owner.handler.kind for owner in table.deciding] == ["c", "a", "b"]
        assert [owner.handler.kind for owner in table.handlers] == ["c", "a", "b", "p"]


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (
            bound("k", prefix=b"\x01"),
            bound("k", prefix=b"\x02", plugin="other", version="2.0"),
            "kind 'k' has two owners, test@1.0 and other@2.0",
        ),
        (
            bound("a", prefix=b"\x01"),
            bound("b", prefix=b"\x01\x02", plugin="other"),
            "payloads that start with 0102 have two owners, test@1.0 (a) and other@1.0 (b)",
        ),
        (
            bound("a", prefix=b"\x01\x02"),
            bound("b", prefix=b"\x01\x02"),
            "payloads that start with 0102 have two owners, test@1.0 (a) and test@1.0 (b)",
        ),
    ],
)
def test_conflict_names_both_owners(one: Any, other: Any, line: str) -> None:
    assert find_conflicts([one, other]) == [line]
    with pytest.raises(ValueError, match="two owners"):
        DispatchTable([one, other])


def test_every_conflict_is_reported() -> None:
    handlers = [bound(kind, prefix=b"\x01") for kind in ("a", "b", "b")]
    assert len(find_conflicts(handlers)) == 3
    assert (
        find_conflicts([bound("a", prefix=b"\x01"), bound("b", prefix=b"\x02"), bound("c", decode=bytes.decode)]) == []
    )


def test_prefix_precedes_decode_functions_which_run_in_order() -> None:
    asked: list[str] = []

    def decoder(name: str, takes: bytes) -> Any:
        def decode(payload: bytes) -> str | None:
            asked.append(name)
            return name if payload.startswith(takes) else None

        return decode

    handlers = [
        bound("second", decode=decoder("second", b"")),
        bound("first", decode=decoder("first", b"x")),
        bound("prefixed", prefix=b"xx"),
    ]
    host = host_of(relay())
    kinds = [dispatcher(handlers).process(host, 1, payload).kind for payload in (b"xx", b"x", b"y")]
    assert kinds == ["prefixed", "first", "second"]
    assert asked == ["first", "first", "second"]


def test_message_without_handler_costs_default_weight() -> None:
    handlers = [bound("a", prefix=b"\x01"), bound("b", decode=lambda payload: None)]
    processed = dispatcher(handlers, default_weight=77).process(host_of(relay()), 1, b"")
    assert processed == (77, DispatchOutcome.NO_HANDLER, None, None, None, (), ())
    assert dispatcher([], default_weight=5).process(host_of(relay()), 1, b"\x01").weight == 5


def test_message_without_handler_is_weighed_as_before_the_first_handler() -> None:
    """A chain with weights, as a simulated one has, may get handlers: other messages keep their outcome."""
    weights = FixedWeightDispatcher({b"\x02": 9}, 5, frozenset({b"\x03"}))
    owner, host = dispatcher([bound("a", prefix=b"\x01")], default_weight=5, weights=weights), host_of(relay())
    assert owner.process(host, 1, b"\x01").kind == "a"
    for payload in (b"\x02", b"\x03", b"\x04"):
        assert owner.process(host, 1, payload) == weights.process(host, 1, payload)
        assert owner.weigh(host, payload) == weights.weigh(host, payload)


def test_block_number_selects_handler_epoch() -> None:
    epochs = [
        HandlerEpoch(0, DispatchTable([])),
        HandlerEpoch(7, DispatchTable([bound("k", prefix=b"m", version="1.0")])),
        HandlerEpoch(8, DispatchTable([bound("k", prefix=b"m", version="2.0")])),
    ]
    router = relay()
    owners = []
    for block in (6, 7, 8, 9):
        router.begin_block(block)
        owners.append(HandlerDispatcher(epochs).process(host_of(router), 1, b"m").handler)
    assert owners == [None, "test@1.0", "test@2.0", "test@2.0"]


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"kind": ""},
            ValueError,
            "kind: expected 1 to 64 of a-z 0-9 . _ - with a letter or digit at both ends, found ''",
        ),
        ({"kind": "A"}, ValueError, "kind: expected"),
        ({"kind": "a" * 65}, ValueError, "kind: expected"),
        ({"kind": "a."}, ValueError, "kind: expected"),
        ({"handle": 5}, TypeError, "k.handle: expected a function (context, message), found 5"),
        ({"weight": 5}, TypeError, "k.weight: expected a MessageWeight, found 5"),
        ({"decode": 5}, TypeError, "k.decode: expected a function (payload), found 5"),
        ({"prefix": "p"}, ValueError, "k.prefix: expected at most 32 bytes, found 'p'"),
        ({"prefix": bytes(HANDLER_PREFIX_BYTES_MAX + 1)}, ValueError, "k.prefix: expected at most 32 bytes"),
        ({"prefix": b""}, ValueError, "k: expected a prefix or a decode function, found neither"),
        (
            {"payload_bytes_max": 0},
            ValueError,
            f"k.payload_bytes_max: expected 1 to {PAYLOAD_BYTES_MAX} bytes, found 0",
        ),
        ({"payload_bytes_max": PAYLOAD_BYTES_MAX + 1}, ValueError, "k.payload_bytes_max: expected"),
        ({"payload_bytes_max": True}, ValueError, "k.payload_bytes_max: expected"),
    ],
)
def test_invalid_handler_is_refused_on_creation(fields: dict[str, Any], error: type[Exception], text: str) -> None:
    good = {"kind": "k", "handle": print, "weight": MessageWeight(1), "prefix": b"p"}
    Handler(**good)  # type: ignore[arg-type]
    with pytest.raises(error) as caught:
        Handler(**{**good, **fields})
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("value", [-1, True, 1.0, "1", U64_MAX // PAYLOAD_BYTES_MAX + 1])
def test_invalid_weight_is_refused_on_creation(value: Any) -> None:
    for name in ("base", "per_byte"):
        with pytest.raises(ValueError, match=rf"weight\.{name}: expected an integer from 0 to "):
            MessageWeight(**{"base": 0, name: value})


def test_weight_adds_cost_per_byte() -> None:
    assert MessageWeight(5).of(b"abc") == 5
    assert MessageWeight(5, per_byte=2).of(b"abc") == 11
