# SPDX-License-Identifier: Apache-2.0
"""Each operation of a handler is rolled back completely, also where the state has had nothing of its kind before."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest

from validator.core.rules import ChainSettings, LaneRules
from validator.core.types import Balances, Para, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import encode_state
from validator.protocols.router.host import RouterHost
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.rules import ROUTER

CONFIG = HostConfiguration(
    max_downward_message_size=64,
    hrmp_channel_max_places=4,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=32,
    hrmp_max_parachain_outbound_channels=2,
    hrmp_max_parachain_inbound_channels=2,
    hrmp_sender_deposit=5,
    hrmp_recipient_deposit=3,
)

OPERATIONS: dict[str, Callable[[RouterHost], None]] = {
    "write": lambda host: host.write("plugin", b"key", b"other"),
    "remove": lambda host: host.write("plugin", b"key", None),
    "write a new key": lambda host: host.write("plugin", b"new", b"value"),
    "init": lambda host: host.init_open_channel(1, 3, 4, 8),
    "accept": lambda host: host.accept_open_channel(3, 2),
    "close as sender": lambda host: host.close_channel(1, 1, 2),
    "close as recipient": lambda host: host.close_channel(2, 1, 2),
    "downward to a queue": lambda host: host.queue_downward_message(1, b"second"),
    "first downward message of a para": lambda host: host.queue_downward_message(4, b"first"),
    "transfer": lambda host: host.transfer(1, 2, 7),
}


@pytest.fixture
def router() -> LaneRules:
    """Return a Router in block 3: channel 1->2, a request 2->3, a downward message for para 1, and a plugin's value."""
    paras = tuple(Para(number, balance=50) for number in (1, 2, 3, 4))
    made = ROUTER.at_genesis(ChainSettings(CONFIG, paras, Balances.LEDGER))
    made.begin_block(1)
    host = RouterHost(made.state, made.env)
    host.begin()
    host.init_open_channel(1, 2, 4, 8)
    host.accept_open_channel(2, 1)
    made.change_session(SessionChange())
    made.begin_block(2)
    host = RouterHost(made.state, made.env)
    host.begin()
    host.init_open_channel(2, 3, 4, 8)
    host.queue_downward_message(1, b"first")
    host.write("plugin", b"key", b"value")
    made.begin_block(3)
    return made


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_rolled_back(router: LaneRules, name: str) -> None:
    before, queues = encode_state(router.state), deepcopy(router.state.downward_message_queues)
    host = RouterHost(router.state, router.env)
    events = list(router.env.events.events)
    host.begin()
    OPERATIONS[name](host)
    assert encode_state(router.state) != before, "the operation has an effect"
    host.roll_back()
    assert encode_state(router.state) == before
    assert router.state.downward_message_queues == queues
    assert list(router.env.events.events) == events
    check_invariants(router.state)


def test_dispatch_names_the_downward_messages_of_its_handler(router: LaneRules) -> None:
    host = RouterHost(router.state, router.env)
    host.begin()
    host.queue_downward_message(1, b"second")
    host.queue_downward_message(4, b"first")
    assert [(each.recipient, each.sequence_number) for each in host.queued()] == [(1, 2), (4, 1)]
    assert host.queued()[0].mqc_head == router.state.downward_message_queue_heads[1]
    host.roll_back()
    assert host.queued() == ()
    host.queue_downward_message(1, b"second")
    host.begin()
    assert host.queued() == ()
