# SPDX-License-Identifier: Apache-2.0
"""Queues and fixed channels: what the scenarios do not reach, such as bounds of lists and of memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_world import chain_of, judged
from validator_xcmp_network.limits import REMEMBERED_MAX, SHOWN_MAX
from validator_xcmp_network.queues import IngressQueue, Memory, QueuedMessage
from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import FixedChannels, NetworkState, broken_invariants

from tests.rule_sets import check_everything, restored
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import DecodeError, SessionChange

RECIPIENT = 1
u32 = st.integers(0, 2**32 - 1)


def sending(count: int, *, block: int = 5, **config: object) -> LaneRules:
    """Return a chain on which this many senders have sent to one recipient in a block."""
    senders = tuple(range(2, 2 + count))
    rules = chain_of((RECIPIENT, *senders), [(sender, RECIPIENT) for sender in senders], **config)
    for sender in senders:
        assert judged(rules, block, sender, [RECIPIENT])["ok"]
    return rules


def test_lists_of_errors_are_bounded() -> None:
    rules = sending(SHOWN_MAX + 3, intra_block="prefix")
    assert judged(rules, 6, 2, [RECIPIENT])["ok"]
    first = [[5, sender] for sender in range(2, 2 + SHOWN_MAX)]
    assert judged(rules, 7, RECIPIENT)["error"] == {"kind": "Ack/NoProgress", "pending": first}
    gap = judged(rules, 7, RECIPIENT, acks=[(6, 2)])["error"]
    assert (gap["kind"], len(gap["missing"]), gap["missing"][0]) == ("Ack/Gap", SHOWN_MAX, [5, 3])
    rest = [(5, sender) for sender in range(3, 5 + SHOWN_MAX)]
    order = judged(rules, 7, RECIPIENT, acks=rest)["error"]
    assert order["kind"] == "Ack/OutOfOrder"
    assert order["expected"] == [sender for _, sender in first]


@pytest.mark.parametrize("mode", ["free", "prefix"])
def test_accepted_candidates_do_not_walk_queues(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors list messages: an accepted candidate costs what it sends and acknowledges, however much is unread."""
    rules = sending(300, intra_block=mode)
    assert judged(rules, 6, 2, [RECIPIENT])["ok"]

    def walk(_queue: IngressQueue) -> Iterator[QueuedMessage]:
        raise AssertionError("the queue is walked")

    monkeypatch.setattr(IngressQueue, "__iter__", walk)
    assert judged(rules, 7, RECIPIENT, acks=[(5, 2), (5, 3)])["ok"]
    assert judged(rules, 8, 4, [RECIPIENT])["ok"]
    assert judged(rules, 8, RECIPIENT, acks=[(5, sender) for sender in range(4, 302)])["ok"]
    assert judged(rules, 9, RECIPIENT, acks=[(6, 2)])["ok"]


def test_memory_is_bounded_and_survives_a_restart() -> None:
    count = REMEMBERED_MAX + 2
    rules = sending(count)
    assert judged(rules, 6, 2, [RECIPIENT])["ok"]
    rules.begin_block(7)
    everybody = [(5, sender) for sender in range(2, 2 + count)]
    assert judged(rules, 7, RECIPIENT, acks=everybody)["ok"]
    assert judged(rules, 8, RECIPIENT, acks=[(6, 2)])["ok"]
    check_everything(rules, "xcmp-network")
    for chain in (rules, restored(rules)):
        assert judged(chain, 9, RECIPIENT, acks=[(6, 2)])["error"]["kind"] == "Ack/AlreadyAcked"
        assert judged(chain, 9, RECIPIENT, acks=[(6, 3)])["error"]["kind"] == "Ack/UnknownMessage"
        # block 5 is partly forgotten: nobody can say any more who has not sent in it
        assert judged(chain, 9, RECIPIENT, acks=[(5, 9999)])["error"]["kind"] == "Ack/AlreadyAcked"
        assert judged(chain, 9, RECIPIENT, acks=[(4, 2)])["error"]["kind"] == "Ack/AlreadyAcked"


@given(names=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**32 - 1)), unique=True), other=st.tuples(u32, u32))
def test_memory_finds_whole_names_only(names: list[tuple[int, int]], other: tuple[int, int]) -> None:
    memory = Memory()
    for name in names:
        memory.add(*name)
    assert all(memory.has(*name) for name in names)
    assert memory.has(*other) == (other in names)
    assert memory.senders_at(2) == [sender for block, sender in names if block == 2]


def test_message_in_an_acknowledged_block_opens_it_again() -> None:
    """A relay parent that is the block itself lets a recipient acknowledge before everybody has sent."""
    rules = chain_of((1, 2, 3), [(2, 1), (3, 1)])
    assert judged(rules, 5, 2, [1])["ok"]
    assert judged(rules, 5, 1, acks=[(5, 2)], relay_parent_number=5)["ok"]
    queue = rules.state.queues[1]
    assert (queue.watermark, list(queue.acked)) == (6, [])
    assert judged(rules, 5, 3, [1])["ok"]
    assert (queue.watermark, list(queue.acked)) == (5, [2])
    check_everything(rules, "xcmp-network")
    assert judged(rules, 6, 1, acks=[(5, 2)])["error"]["kind"] == "Ack/AlreadyAcked"
    assert judged(rules, 6, 1, acks=[(5, 3)])["ok"]
    assert (queue.watermark, list(queue.acked)) == (6, [])


def test_removed_channel_leaves_no_hole() -> None:
    rules = chain_of((1, 2, 3), [(2, 1), (3, 1)])
    for block, sender in ((5, 2), (6, 3), (7, 2), (8, 3)):
        assert judged(rules, block, sender, [1])["ok"]
    rules.change_session(SessionChange(outgoing=(3,)))
    queue = rules.state.queues[1]
    assert [(entry.sent_at, entry.sender) for entry in queue] == [(5, 2), (7, 2)]
    assert list(queue.heights) == [5, 7]
    check_everything(rules, "xcmp-network")
    assert judged(rules, 9, 1, acks=[(7, 2)])["ok"]


def test_queue_without_messages_is_blank_again() -> None:
    rules = chain_of((1, 2), [(2, 1)])
    assert judged(rules, 5, 2, [1])["ok"]
    rules.change_session(SessionChange(outgoing=(2,)))
    assert rules.state.queues == {}
    check_everything(rules, "xcmp-network")


def corrupted(state: NetworkState, part: str) -> None:
    """Break one invariant of a state whose recipient has read message (5, 2) and not (5, 3)."""
    queue = state.queues[1]
    match part:
        case "count":
            queue.count += 1
        case "heights":
            queue.heights.append(9)
        case "by_sender":
            queue.by_sender[3].append(QueuedMessage(6, 3, bytes(32), 0))
        case "watermark":
            queue.watermark = 9
        case "acked":
            queue.acked[3] = None
        case "place":
            queue.blocks[5].entries[3].sent_at = 4
        case "channel":
            state.fixed_channels.remove_para(3)
        case "blank":
            state.queues[3] = type(queue)()
        case "memory":
            queue.memory.names += bytes(8 * REMEMBERED_MAX)


@pytest.mark.parametrize(
    "part", ["count", "heights", "by_sender", "watermark", "acked", "place", "channel", "blank", "memory"]
)
def test_broken_invariant_is_found(part: str) -> None:
    rules = chain_of((1, 2, 3), [(2, 1), (3, 1)])
    for sender in (2, 3):
        assert judged(rules, 5, sender, [1])["ok"]
    assert judged(rules, 6, 1, acks=[(5, 2)])["ok"]
    assert list(broken_invariants(rules.state)) == []
    corrupted(rules.state, part)
    assert list(broken_invariants(rules.state))


@given(pairs=st.sets(st.tuples(u32, st.integers(0, 3)), max_size=20), odd=st.tuples(u32, u32))
def test_fixed_channels_are_a_set(pairs: set[tuple[int, int]], odd: tuple[int, int]) -> None:
    channels = FixedChannels(pairs)
    assert set(channels) == pairs
    assert all(pair in channels for pair in pairs)
    assert (odd in channels) == (odd in pairs)
    other = FixedChannels()
    for recipient in list(channels.recipients()):
        other.unpack(recipient, channels.packed(recipient))
    assert list(other) == list(channels)
    if pairs:
        para = min(pairs)[0]
        removed = channels.remove_para(para)
        assert sorted(removed) == sorted(pair for pair in pairs if para in pair)
        assert set(channels) == {pair for pair in pairs if para not in pair}


@pytest.mark.parametrize(
    ("at", "page", "message"),
    [
        (0, b"\x02", "version"),
        (0, b"\x01", "bytes expected"),
        (2, b"\x01\x01\x00\x00\x00\x00\x0c\x00\x00\x00", "expected a multiple of 4 bytes, found 3"),
    ],
)
def test_malformed_page_is_refused(at: int, page: bytes, message: str) -> None:
    saved = pages(sending(1))
    saved[at] = page
    with pytest.raises(DecodeError, match=message):
        XCMP_NETWORK.from_pages(saved)


def test_too_few_pages_are_refused() -> None:
    with pytest.raises(DecodeError, match="expected at least 2 pages, found 1"):
        XCMP_NETWORK.from_pages([b"\x01"])
