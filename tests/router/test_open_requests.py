# SPDX-License-Identifier: Apache-2.0
"""The open requests of a protocol, as the kit keeps them, and the sizes that a view of the state prints."""

from __future__ import annotations

import pytest

from validator.protocols.kit.requests import OpenRequest, OpenRequests
from validator.protocols.router.state_view import _bytes


def requested(sender: int, recipient: int) -> OpenRequest:
    return OpenRequest(sender, recipient, sender_deposit=5)


def test_requests_are_listed_indexed_and_counted() -> None:
    requests = OpenRequests()
    first, second, third = requested(1, 2), requested(1, 3), requested(2, 3)
    for each in (first, second, third):
        requests.add(each)
    assert (len(requests), list(requests), requests[1]) == (3, [first, second, third], second)
    assert requests.by_channel == {(1, 2): first, (1, 3): second, (2, 3): third}
    assert requests.counts == {1: 2, 2: 1}
    assert [requests.index(each) for each in (first, second, third)] == [0, 1, 2]
    assert list(requests.broken_invariants(())) == []


def test_forgotten_request_leaves_index_counts_and_list() -> None:
    requests = OpenRequests()
    first, second = requested(1, 2), requested(2, 3)
    requests.add(first)
    requests.add(second)
    requests.forget(first)
    assert list(requests.broken_invariants(())), "the list still has it"
    requests.keep([second])
    assert (list(requests), requests.by_channel, requests.counts) == ([second], {(2, 3): second}, {2: 1})
    assert list(requests.broken_invariants(())) == []


def test_each_broken_invariant_is_reported() -> None:
    requests = OpenRequests()
    requests.add(requested(1, 2))
    (both,) = requests.broken_invariants([(1, 2)])
    assert both == "channel 1->2 is both open and requested"
    requests.counts[1] = 2
    (counts,) = requests.broken_invariants(())
    assert counts == "counts is {1: 2}, the open requests are 1->2"
    requests.counts[1] = 1
    requests.by_channel.clear()
    (index,) = requests.broken_invariants(())
    assert index == "by_channel has nothing, the open requests are 1->2"


@pytest.mark.parametrize(
    ("count", "text"),
    [(9_999, "9,999 bytes"), (10_000, "10 kB"), (9_999_499, "9,999 kB"), (10_000_000, "10 MB"), (12_600_000, "13 MB")],
)
def test_sizes_have_their_unit(count: int, text: str) -> None:
    assert _bytes(count) == text
