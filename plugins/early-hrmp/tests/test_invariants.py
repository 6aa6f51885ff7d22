# SPDX-License-Identifier: Apache-2.0
"""A broken invariant is reported, for each invariant."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import pytest
from early_hrmp_world import lived
from validator_early_hrmp.state import (
    Channel,
    CloseRequest,
    EarlyHrmpState,
    QueuedMessage,
    QueueTail,
    broken_invariants,
    check_invariants,
)

from validator.plugin.protocol_api import InvariantBroken

Break = Callable[[EarlyHrmpState], object]


def more(state: EarlyHrmpState, name: str) -> None:
    setattr(state.channels[1, 2], name, getattr(state.channels[1, 2], name) + 1)


BREAKS: dict[str, tuple[Break, str]] = {
    "a request that is not looked up": (
        lambda state: state.open_requests.by_channel.pop((2, 1)),
        "by_channel has 1->3, the open",
    ),
    "a request that is another object": (
        lambda state: state.open_requests.by_channel.update({(2, 1): copy(state.open_requests.by_channel[2, 1])}),
        "by_channel has 1->3, 2->1",
    ),
    "a count of requests": (lambda state: state.open_requests.counts.update({2: 2}), "counts is"),
    "a request for an open channel": (
        lambda state: setattr(state.open_requests[1], "recipient", 2),
        "channel 1->2 is both open and requested",
    ),
    "a deposit before it is due": (
        lambda state: setattr(state.open_requests[1], "recipient_deposit", 1),
        "the request for 1->3 holds a deposit of the recipient",
    ),
    "a request older than the chain": (lambda state: setattr(state.open_requests[0], "age", 9), "is 9 sessions old"),
    "a close request that is not looked up": (lambda state: state.closing.clear(), "closing has nothing"),
    "a stranger that closes": (
        lambda state: state.close_requests.__setitem__(0, CloseRequest(3, 1, 2)),
        "3 asked to close 1->2",
    ),
    "closing what is sealed": (
        lambda state: state.close_requests.__setitem__(0, CloseRequest(3, 3, 2)),
        "channel 3->2 is going to be closed, but is sealed",
    ),
    "closing what is not there": (
        lambda state: state.close_requests.__setitem__(0, CloseRequest(1, 1, 3)),
        "channel 1->3 is going to be closed, but is not there",
    ),
    "an ingress row": (lambda state: state.ingress[2].pop(), "the ingress index is not the set of channels"),
    "an egress row": (lambda state: state.egress.pop(1), "the egress index is not the set of channels"),
    "an unsorted row": (lambda state: state.ingress[2].reverse(), "the ingress index row of 2 is empty, unsorted"),
    "an empty row": (lambda state: state.egress.update({7: []}), "the egress index row of 7 is empty"),
    "the sealed ones": (lambda state: state.sealed.clear(), "sealed has nothing, the sealed channels are 3->2"),
    "a channel to itself": (
        lambda state: state.channels.update({(3, 3): Channel(0, 0, 1)}),
        "channel 3->3 leads back to its sender",
    ),
    "a channel of nobody": (lambda state: state.paras.pop(3), "channel 3->2 is open, but 3 is not registered"),
    "a channel of the future": (
        lambda state: setattr(state.channels[2, 3], "instance", 9),
        "channel 2->3 was opened in session 9",
    ),
    "an empty queue": (
        lambda state: state.downward_queues.update({3: {}}),
        "the downward queue of 3 has an empty level",
    ),
    "an empty block": (
        lambda state: state.downward_queues[2].update({9: []}),
        "the downward queue of 2 has an empty level",
    ),
    "blocks in disorder": (
        lambda state: state.downward_queues[2].update({1: [QueuedMessage(None, 0, b"")]}),
        "is not in ascending order of blocks",
    ),
    "more messages than ever": (
        lambda state: state.downward_queue_tails.update({2: QueueTail(3, bytes(32))}),
        "the downward queue of 2 holds 4 messages, of 3 ever",
    ),
    "a head of nothing": (
        lambda state: state.downward_queue_tails.update({3: QueueTail(0, bytes(32))}),
        "the downward queue of 3 has a head without messages",
    ),
    "places": (
        lambda state: more(state, "used_places"),
        "channel 1->2 counts 2 messages, 2 bytes; the queue holds 1, 2",
    ),
    "bytes": (lambda state: more(state, "used_bytes"), "channel 1->2 counts 1 messages, 3 bytes; the queue holds 1, 2"),
    "messages of a later channel": (
        lambda state: state.downward_queues[2][4].append(QueuedMessage(1, 4, b"")),
        "a message of channel 1->2 is of session 4",
    ),
    "reserved": (lambda state: setattr(state.accounts[1], "reserved", 1), "1 has 1 reserved, its deposits are 27"),
    "free": (lambda state: setattr(state.accounts[3], "free", -1), "the free balance of 3 is -1"),
}


def test_running_state_breaks_no_invariant() -> None:
    check_invariants(lived().state)


@pytest.mark.parametrize("broken", BREAKS)
def test_broken_invariant_is_reported(broken: str) -> None:
    state = lived().state
    break_it, expected = BREAKS[broken]
    break_it(state)
    assert any(expected in each for each in broken_invariants(state)), list(broken_invariants(state))
    with pytest.raises(InvariantBroken):
        check_invariants(state)
