# SPDX-License-Identifier: Apache-2.0
"""Every invariant reports, by name, a state that was corrupted by hand."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from validator.core.errors import InvariantBroken
from validator.core.rules import ChainSettings
from validator.core.types import DownwardMessage, Para, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import decode_state, encode_state
from validator.protocols.router.invariants import broken_invariants, check_invariants
from validator.protocols.router.records import (
    AcceptOpenChannel,
    Candidate,
    CloseChannel,
    HorizontalMessage,
    InitOpenChannel,
)
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import InboundDownwardMessage, InboundHrmpMessage, RouterState

CONFIG = HostConfiguration(
    max_upward_message_num_per_candidate=3,
    max_upward_message_size=8,
    max_upward_queue_count=4,
    max_upward_queue_size=32,
    preferred_dispatchable_upward_messages_step_weight=1,
    max_downward_message_size=8,
    hrmp_max_message_num_per_candidate=3,
    hrmp_channel_max_places=4,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=16,
    hrmp_max_parachain_outbound_channels=3,
    hrmp_max_parachain_inbound_channels=3,
    hrmp_sender_deposit=5,
    hrmp_recipient_deposit=3,
    hrmp_open_request_ttl=4,
)


def rich_state() -> RouterState:
    """Return a state with every kind of content; para 3 has left with an open request."""
    router = ROUTER.at_genesis(ChainSettings(CONFIG, tuple(Para(para, balance=100) for para in (1, 2, 3, 4))))
    router.begin_block(1)
    for sender, recipient in ((1, 2), (2, 1), (4, 2)):
        router.apply_request(InitOpenChannel(sender, recipient, 4, 8))
        router.apply_request(AcceptOpenChannel(recipient, sender))
    router.apply_request(InitOpenChannel(3, 1, 4, 8))
    router.change_session(SessionChange(outgoing=(3,)))
    for block in (2, 3):
        router.begin_block(block)
        messages = (HorizontalMessage(2, b"message"),)
        router.apply_candidate(Candidate(1, block - 1, block - 1, (b"up", b"up"), 0, messages))
        router.apply_downward(DownwardMessage(2, b"down"))
    router.apply_candidate(Candidate(4, 2, 2, (b"up",), 0, (HorizontalMessage(2, b""),)))
    router.apply_request(InitOpenChannel(1, 4, 4, 8))
    router.apply_request(InitOpenChannel(2, 4, 4, 8))
    router.apply_request(AcceptOpenChannel(4, 2))
    router.apply_request(CloseChannel(2, (2, 1)))
    router.dispatch()
    return router.state


Corruption = Callable[[RouterState], Any]


def _set(name: str, value: Any) -> Corruption:
    return lambda state: setattr(state, name, value)


def _contents(state: RouterState) -> list[InboundHrmpMessage]:
    return state.hrmp_channel_contents[1, 2]


def _swap_contents(state: RouterState) -> None:
    contents = _contents(state)
    contents.append(contents.pop(0))


def _lower_limit(state: RouterState) -> None:
    state.hrmp_channels[1, 2].limit_used_places = 1


def _lower_bytes_limit(state: RouterState) -> None:
    state.hrmp_channels[1, 2].limit_used_bytes = 13


def _replace_message(state: RouterState) -> None:
    contents = _contents(state)
    contents[0] = contents[0]._replace(data=b"massage")


def _reverse_digests(state: RouterState) -> None:
    digests = state.hrmp_channel_digests[2]
    state.hrmp_channel_digests[2] = dict(reversed(digests.items()))


CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "queue size": (lambda s: s.relay_dispatch_queue_size.update({1: (9, 9)}), "relay_dispatch_queue_size is"),
    "queue size of nobody": (lambda s: s.relay_dispatch_queue_size.update({9: (0, 0)}), "relay_dispatch_queue_size is"),
    "needs_dispatch unsorted": (lambda s: s.needs_dispatch.reverse(), "needs_dispatch is"),
    "needs_dispatch missing": (lambda s: s.needs_dispatch.pop(), "needs_dispatch is"),
    "empty dispatch queue": (
        lambda s: (
            s.relay_dispatch_queues.update({9: deque()}),
            s.relay_dispatch_queue_size.update({9: (0, 0)}),
            s.needs_dispatch.append(9),
        ),
        "a relay dispatch queue is empty",
    ),
    "pointer": (_set("next_dispatch_round_start_with", 2), "next_dispatch_round_start_with is 2"),
    "empty downward queue": (
        lambda s: s.downward_message_queues.update({4: deque()}),
        "the downward queue of 4 is empty",
    ),
    "downward order": (
        lambda s: s.downward_message_queues[2].append(InboundDownwardMessage(1, b"")),
        "the downward queue of 2 is not in order",
    ),
    "request list": (lambda s: s.hrmp_open_channel_requests_list.pop(), "hrmp_open_channel_requests_list is not"),
    "request twice in list": (
        lambda s: s.hrmp_open_channel_requests_list.append((1, 4)),
        "hrmp_open_channel_requests_list is not",
    ),
    "close list": (lambda s: s.hrmp_close_channel_requests_list.clear(), "hrmp_close_channel_requests_list is not"),
    "close set": (lambda s: s.hrmp_close_channel_requests.clear(), "hrmp_close_channel_requests_list is not"),
    "open count": (lambda s: s.hrmp_open_channel_request_count.update({1: 2}), "hrmp_open_channel_request_count is"),
    "open count of nobody": (
        lambda s: s.hrmp_open_channel_request_count.update({4: 1}),
        "hrmp_open_channel_request_count is",
    ),
    "uncounted": (lambda s: s.hrmp_uncounted_requests.clear(), "hrmp_open_channel_request_count is"),
    "accepted count": (
        lambda s: s.hrmp_accepted_channel_request_count.clear(),
        "hrmp_accepted_channel_request_count is",
    ),
    "zero count": (
        lambda s: s.hrmp_accepted_channel_request_count.update({1: 0}),
        "a count of requests is not positive",
    ),
    "open and requested": (
        lambda s: s.hrmp_open_channel_requests.update({(1, 2): s.hrmp_open_channel_requests[1, 4]}),
        "channel 1->2 is both open and requested",
    ),
    "ingress missing": (lambda s: s.hrmp_ingress_channels_index[2].pop(), "the ingress index is not"),
    "ingress too many": (lambda s: s.hrmp_ingress_channels_index.update({4: [1]}), "the ingress index is not"),
    "egress missing": (lambda s: s.hrmp_egress_channels_index.pop(1), "the egress index is not"),
    "egress too many": (lambda s: s.hrmp_egress_channels_index[1].append(4), "the egress index is not"),
    "dangling channel": (
        lambda s: s.hrmp_channels.update({(1, 4): s.hrmp_channels[1, 2]}),
        "the ingress index is not the set of channels",
    ),
    "unsorted row": (lambda s: s.hrmp_ingress_channels_index[2].reverse(), "the ingress index row of 2 is"),
    "empty row": (lambda s: s.hrmp_egress_channels_index.update({3: []}), "the egress index row of 3 is"),
    "invalid end": (lambda s: s.paras.pop(4), "channel 4->2 is open, but 4 is not a valid para"),
    "empty row of channels": (lambda s: s.hrmp_channels.inbound.update({3: {}}), "a recipient of hrmp_channels has an"),
    "empty contents": (
        lambda s: setattr(s.hrmp_channels[2, 1], "contents", []),
        "the contents of channel 2->1 are empty",
    ),
    "used_places": (lambda s: setattr(s.hrmp_channels[1, 2], "used_places", 3), "channel 1->2 counts 3"),
    "used_bytes": (lambda s: setattr(s.hrmp_channels[1, 2], "used_bytes", 3), "channel 1->2 counts 2, 3 bytes"),
    "too many messages": (_lower_limit, "channel 1->2 holds 2 messages, 14 bytes, more than its limits"),
    "too many bytes": (_lower_bytes_limit, "channel 1->2 holds 2 messages, 14 bytes, more than its limits"),
    "contents out of order": (_swap_contents, "the contents of channel 1->2 are not in order"),
    "another message": (_replace_message, "the contents of channel 1->2 lead to head"),
    "another head": (
        lambda s: setattr(s.hrmp_channels[1, 2], "mqc_head", bytes(32)),
        "the contents of channel 1->2 lead to head",
    ),
    "head of an empty channel": (
        lambda s: setattr(s.hrmp_channels[2, 1], "mqc_head", b"\1" * 32),
        "the contents of channel 2->1 lead to head",
    ),
    "empty digests": (lambda s: s.hrmp_channel_digests.update({1: {}}), "the digests of 1 have an empty level"),
    "empty digest": (lambda s: s.hrmp_channel_digests.update({1: {5: {}}}), "the digests of 1 have an empty level"),
    "digest order": (_reverse_digests, "the digests of 2 are not in ascending order"),
    "missing digest": (lambda s: s.hrmp_channel_digests[2].pop(2), "no digest of 2 says that 1 sent in block 2"),
    "missing sender": (lambda s: s.hrmp_channel_digests[2][3].remove(4), "no digest of 2 says that 4 sent in block 3"),
    "reserved": (lambda s: setattr(s.accounts[1], "reserved", 1), "1 has 1 reserved, its deposits are 13"),
    "reserved by nobody": (lambda s: s.accounts.pop(4), "4 has 0 reserved, its deposits are 8"),
    "deposit": (lambda s: setattr(s.hrmp_channels[1, 2], "sender_deposit", 0), "1 has 13 reserved, its deposits are 8"),
    "overdrawn": (lambda s: setattr(s.accounts[2], "free", -1), "the free balance of 2 is -1"),
    "handlers keep more": (
        lambda s: s.handler_states.bytes_used.update(p=3),
        "handlers are said to keep {'p': 3} bytes",
    ),
    "handlers keep nothing": (
        lambda s: (s.handler_states.put("p", b"k", b"v"), s.handler_states.bytes_used.clear()),
        "handlers are said to keep {} bytes, they keep {'p': 2}",
    ),
    "outgoing unsorted": (_set("outgoing_paras", [2, 1]), "outgoing_paras is not ascending"),
    "outgoing twice": (_set("outgoing_paras", [2, 2]), "outgoing_paras is not ascending"),
}


def test_rich_state_has_no_broken_invariant() -> None:
    state = rich_state()
    check_invariants(state)
    common, pages = encode_state(state)
    check_invariants(decode_state(common, pages.values()))
    for part in (
        state.relay_dispatch_queues,
        state.downward_message_queues,
        state.hrmp_open_channel_request_count,
        state.hrmp_uncounted_requests,
        state.hrmp_accepted_channel_request_count,
        state.hrmp_close_channel_requests,
        state.hrmp_channel_contents,
        state.hrmp_channel_digests,
        state.next_dispatch_round_start_with,
    ):
        assert part


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_state_breaks_its_invariant(name: str) -> None:
    corrupt, complaint = CORRUPTIONS[name]
    state = rich_state()
    corrupt(state)
    assert [sentence for sentence in broken_invariants(state) if complaint in sentence]
    with pytest.raises(InvariantBroken, match=re.escape(complaint)):
        check_invariants(state)
