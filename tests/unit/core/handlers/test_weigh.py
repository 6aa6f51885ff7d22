# SPDX-License-Identifier: Apache-2.0
"""What a message weighs before it is handed over, and how handlers run under the message queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.core.handlers.relay import LIMITS, bound, dispatcher, host_of, relay
from validator.core.handlers.errors import HandlerFault, HandlerInterrupted
from validator.core.handlers.handler import MessageWeight
from validator.core.handlers.weights import CALL_WEIGHTS
from validator.core.outcomes import DispatchOutcome
from validator.core.rules import ChainSettings, LaneRules, RulesEpoch
from validator.core.types import Para
from validator.protocols.router.features import table
from validator.protocols.router.features.errors import InsufficientWeight
from validator.protocols.router.profile import rules_of
from validator.protocols.router.records import Candidate, ServiceOverweight
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view

PER_BYTE = MessageWeight(10, 2)


def test_owner_of_prefix_or_first_that_recognises_charges_its_weight() -> None:
    owners = dispatcher(
        [
            bound("a", prefix=b"p", weight=PER_BYTE),
            bound("b", decode=lambda payload: payload if payload[:1] == b"d" else None, weight=MessageWeight(7)),
        ],
        default_weight=3,
    )
    host = host_of(relay())
    assert [owners.weigh(host, payload) for payload in (b"pxx", b"d", b"other")] == [16, 7, 3]


def test_failing_decode_counts_as_owner() -> None:
    def decode(_: bytes) -> Any:
        raise ValueError

    assert dispatcher([bound("a", decode=decode)]).weigh(host_of(relay()), b"m") == 10


@pytest.mark.parametrize("error", [MemoryError, RecursionError, SystemError, HandlerInterrupted, SystemExit])
def test_decode_that_depends_on_the_machine_is_a_fault(error: type[BaseException]) -> None:
    def decode(_: bytes) -> Any:
        raise error

    with pytest.raises(HandlerFault, match="a"):
        dispatcher([bound("a", decode=decode)]).weigh(host_of(relay()), b"m")


def test_decode_is_guarded() -> None:
    entered = []

    @contextmanager
    def guard(*_: object) -> Any:
        entered.append(True)
        yield

    dispatcher([bound("a", decode=lambda payload: payload)], guard=guard).weigh(host_of(relay()), b"m")
    assert entered == [True]


@pytest.mark.parametrize(
    ("limit", "weight_max", "outcome"),
    [
        (None, None, DispatchOutcome.OK),
        (9, None, DispatchOutcome.OUT_OF_WEIGHT),
        (10, None, DispatchOutcome.OK),
        (99, 9, DispatchOutcome.OUT_OF_WEIGHT),
        (9, 99, DispatchOutcome.OUT_OF_WEIGHT),
        (None, 9, DispatchOutcome.OUT_OF_WEIGHT),
    ],
)
def test_message_may_use_the_smaller_limit(limit: int | None, weight_max: int | None, outcome: DispatchOutcome) -> None:
    owner = dispatcher([bound("a", prefix=b"p")], weight_max=weight_max)
    assert owner.process(host_of(relay()), 1, b"p", limit).outcome == outcome


def queue(handle: Callable[[Any, Any], None], budget: int) -> LaneRules:
    """Return a Router with the message queue, whose para 1 has sent two messages of weight 10 and one of weight 30."""
    features = frozenset({"message_queue"})
    owners = dispatcher([bound("light", handle, b"l"), bound("heavy", handle, b"h", weight=MessageWeight(30))])
    router = ROUTER.at_genesis(
        ChainSettings(
            replace(LIMITS, preferred_dispatchable_upward_messages_step_weight=budget),
            (Para(1, balance=100), Para(2, balance=100)),
            upward_messages=owners,
            rules=(RulesEpoch(0, table.version_of(features), rules_of(features)),),
        )
    )
    router.begin_block(1)
    router.apply_candidate(Candidate(1, 0, 0, (b"l1", b"h", b"l2")))
    return router


def test_heavy_message_is_set_aside_and_its_handler_does_not_run() -> None:
    seen: list[Any] = []
    router = queue(lambda _, message: seen.append(message), 20)
    assert [(each.payload, each.weight, each.outcome) for each in router.dispatch()] == [
        (b"l1", 10, DispatchOutcome.OK),
        (b"l2", 10, DispatchOutcome.OK),
    ]
    assert seen == [b"l1", b"l2"]
    assert view(router.state)["ump_overweight"] == {"1": [{"page": 0, "index": 1, "msg": b"h".hex()}]}


def test_message_that_the_requests_limit_stops_stays() -> None:
    calls = CALL_WEIGHTS.transfer
    router = queue(lambda context, message: message == b"h" and context.transfer(2, 5), 20)
    router.dispatch()
    before = view(router.state)
    router.begin_block(2)
    with pytest.raises(InsufficientWeight):
        router.apply_request(ServiceOverweight(1, 0, 1, 30))  # nothing left for the transfer
    assert view(router.state) == before
    assert router.dispatch() == []
    assert calls > 20


def test_handler_of_serviced_message_is_bounded_by_a_round() -> None:
    def loop(context: Any, message: Any) -> None:
        while message == b"h":
            context.read(b"key")

    router = queue(loop, 20)
    router.dispatch()
    router.begin_block(2)
    router.apply_request(ServiceOverweight(1, 0, 1, 2**64 - 1))
    (dispatched,) = router.dispatch()
    assert (dispatched.payload, dispatched.weight, dispatched.outcome) == (b"h", 50, DispatchOutcome.OUT_OF_WEIGHT)
    assert view(router.state)["ump_overweight"] == {}


def test_failing_handler_consumes_its_message_and_leaves_nothing() -> None:
    def fail(context: Any, _: Any) -> None:
        context.queue_downward_message(2, b"sent")
        raise ValueError("no")

    router = queue(fail, 10_000)
    assert {each.outcome for each in router.dispatch()} == {DispatchOutcome.FAILED}
    after = view(router.state)
    assert (after["ump_queues"], after["ump_overweight"], after["ready_ring"], after["dmq"]) == ({}, {}, [], {})
