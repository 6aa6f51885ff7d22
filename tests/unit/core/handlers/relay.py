# SPDX-License-Identifier: Apache-2.0
"""A Router with three paras, and handlers made of plain functions, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from validator.core.handlers.context import Context
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch
from validator.core.handlers.handler import BoundHandler, Handler, MessageWeight
from validator.core.outcomes import Processed
from validator.core.rules import ChainSettings, LaneRules
from validator.core.types import Balances, Para, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.host import RouterHost
from validator.protocols.router.rules import ROUTER

Handle = Callable[[Context, Any], None]

LIMITS = HostConfiguration(
    max_upward_message_num_per_candidate=9,
    max_upward_message_size=100_000,
    max_upward_queue_count=9,
    max_upward_queue_size=1_000_000,
    preferred_dispatchable_upward_messages_step_weight=1_000_000,
    max_downward_message_size=50,
    hrmp_channel_max_places=4,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=16,
    hrmp_max_parachain_outbound_channels=3,
    hrmp_max_parachain_inbound_channels=3,
    hrmp_sender_deposit=5,
    hrmp_recipient_deposit=3,
    hrmp_open_request_ttl=4,
)
BLOCK = 7
TEN = MessageWeight(10)


def relay(balances: Balances = Balances.LEDGER, *, notifications: bool = False) -> LaneRules:
    """Return a Router in block `BLOCK`: paras 1, 2 and 3 with 100 each, a channel 1->2, a request 1->3."""
    router = ROUTER.at_genesis(
        ChainSettings(
            LIMITS, tuple(Para(para, balance=100) for para in (1, 2, 3)), balances=balances, notifications=notifications
        )
    )
    router.begin_block(BLOCK - 1)
    host = host_of(router)
    host.init_open_channel(1, 2, 4, 8)
    host.accept_open_channel(2, 1)
    router.change_session(SessionChange())
    router.begin_block(BLOCK)
    host_of(router).init_open_channel(1, 3, 4, 8)
    router.begin_block(BLOCK)
    return router


def host_of(router: LaneRules) -> RouterHost:
    """Return the host that the Router passes to its dispatch round."""
    return RouterHost(router.state, router.env)


def bound(
    kind: str,
    handle: Handle = lambda context, message: None,
    prefix: bytes = b"",
    decode: Callable[[bytes], Any] | None = None,
    *,
    plugin: str = "test",
    version: str = "1.0",
    weight: MessageWeight = TEN,
    config: Any = None,
    **more: Any,
) -> BoundHandler:
    """Return a handler of a plugin."""
    return BoundHandler(plugin, version, Handler(kind, handle, weight, prefix, decode, **more), config)


def dispatcher(handlers: Sequence[BoundHandler], **more: Any) -> HandlerDispatcher:
    """Return a dispatcher that has the same handlers from block 0 on."""
    return HandlerDispatcher([HandlerEpoch(0, DispatchTable(handlers))], **more)


def run(handle: Handle, payload: bytes = b"m", *, router: LaneRules | None = None, **more: Any) -> Processed:
    """Dispatch one message of para 1 to a handler whose prefix is the payload's first byte."""
    owner = bound("kind", handle, payload[:1], weight=more.pop("weight", TEN), config=more.pop("config", None))
    return dispatcher([owner], **more).process(host_of(router or relay()), 1, payload)
