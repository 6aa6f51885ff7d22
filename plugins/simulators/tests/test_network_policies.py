# SPDX-License-Identifier: Apache-2.0
"""What a simulated recipient acknowledges, by policy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_simulators.network.policies import IngressQueue, Message, make_queue
from validator_simulators.network.settings import BLOCK_MS, POLICIES, NetworkSettings

CHANNELS = [0, 1, 2, 3]


def queue_of(policy: str, *messages: Message) -> IngressQueue:
    queue = make_queue(NetworkSettings(policy=policy, favoured_share=0.5), CHANNELS, greedy=False)
    for message in messages:
        queue.push(message)
    return queue


def message(sent_at: int, channel: int, size: int = 1, after_ms: int = 100) -> Message:
    ready_at = sent_at + max(1, -(-after_ms // BLOCK_MS))
    return Message(sent_at, channel, size, ready_at, sent_at * BLOCK_MS + after_ms)


def taken(queue: IngressQueue, block: int, budget_bytes: int = 1_000) -> list[tuple[int, int]]:
    return [(each.sent_at, each.channel) for each in queue.take(block, budget_bytes)]


LATE_BY_TWO = 2 * BLOCK_MS + 1


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        ("free", [(1, 2), (1, 0)]),  # all of block 1 that is here, nothing of block 2
        ("prefix", [(1, 0)]),
        ("round-robin", [(1, 0), (1, 2), (2, 3)]),
        ("rotating", [(2, 3), (1, 0), (1, 2)]),
        ("arrival", [(1, 2), (1, 0), (2, 3)]),
        ("favour", [(1, 0), (1, 2), (2, 3)]),
    ],
)
def test_late_body_stops_document_order_alone(policy: str, first: list[tuple[int, int]]) -> None:
    queue = queue_of(
        policy,
        message(1, 0, after_ms=200),
        message(1, 1, after_ms=LATE_BY_TWO + BLOCK_MS),
        message(1, 2, after_ms=100),
        message(2, 3),
    )
    assert taken(queue, 3) == first
    assert taken(queue, 3) == []
    assert queue.oldest() == 1
    assert (1, 1) in taken(queue, 5)


@pytest.mark.parametrize("policy", POLICIES)
def test_first_message_is_taken_whatever_its_size(policy: str) -> None:
    queue = queue_of(policy, message(1, 0, size=50), message(1, 1, size=50))
    assert len(taken(queue, 2, budget_bytes=10)) == 1
    assert len(taken(queue, 3, budget_bytes=10)) == 1
    assert queue.oldest() is None


@pytest.mark.parametrize("policy", ["free", "prefix", "round-robin", "arrival"])
def test_order_ends_at_first_message_beyond_budget(policy: str) -> None:
    queue = queue_of(policy, message(1, 0, 40, 100), message(1, 1, 80, 200), message(1, 2, 10, 300))
    assert taken(queue, 2, budget_bytes=100) == [(1, 0)]


def test_rotating_skips_what_does_not_fit_and_moves_its_start() -> None:
    queue = queue_of("rotating", message(1, 0, 40), message(1, 1, 80), message(1, 2, 10), message(1, 3, 10))
    assert taken(queue, 2, budget_bytes=100) == [(1, 2), (1, 3), (1, 0)]
    assert queue.oldest() == 1
    assert taken(queue, 5, budget_bytes=100) == [(1, 1)]


def test_round_robin_continues_where_it_stopped() -> None:
    queue = queue_of("round-robin", *(message(block, channel) for block in (1, 2) for channel in CHANNELS))
    assert taken(queue, 3, budget_bytes=3) == [(1, 0), (1, 1), (1, 2)]
    assert taken(queue, 4, budget_bytes=3) == [(1, 3), (2, 0), (2, 1)]


def test_favoured_channels_come_first_and_the_others_wait() -> None:
    queue = queue_of("favour", *(message(block, channel) for block in (1, 2) for channel in CHANNELS))
    assert taken(queue, 3, budget_bytes=3) == [(1, 0), (1, 1), (2, 0)]
    assert taken(queue, 4, budget_bytes=3) == [(2, 1), (1, 2), (1, 3)]


def test_arrival_lets_no_message_overtake_one_of_its_channel() -> None:
    queue = queue_of(
        "arrival", message(1, 0, after_ms=9_000), message(1, 1, after_ms=8_000), message(2, 0, after_ms=100)
    )
    assert taken(queue, 3) == [(1, 1), (1, 0), (2, 0)]


messages = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(CHANNELS), st.integers(1, 60), st.integers(0, 5 * BLOCK_MS)),
    max_size=30,
    unique_by=lambda each: each[:2],
).map(sorted)


@given(policy=st.sampled_from(POLICIES), sent=messages, budget_bytes=st.integers(1, 120))
def test_every_policy_keeps_what_the_protocol_needs(
    policy: str, sent: list[tuple[int, int, int, int]], budget_bytes: int
) -> None:
    queue = queue_of(policy)
    pushed = [message(*each) for each in sent]
    unread: list[Message] = []
    for block in range(1, 80):
        acknowledged = queue.take(block, budget_bytes)
        assert all(each.ready_at <= block for each in acknowledged)
        assert len(acknowledged) < 2 or sum(each.size for each in acknowledged) <= budget_bytes
        for each in acknowledged:  # everything before it from the same sender goes with it or went before
            assert each == min(waiting for waiting in unread if waiting.channel == each.channel)
            unread.remove(each)
        if acknowledged and policy in (
            "free",
            "prefix",
        ):  # fairness: nothing below the highest acknowledged block is left
            assert all(waiting.sent_at >= max(acknowledged).sent_at for waiting in unread)
        for each in pushed:
            if each.sent_at == block:
                queue.push(each)
                unread.append(each)
        assert queue.oldest() == min((waiting.sent_at for waiting in unread), default=None)
    assert unread == []
