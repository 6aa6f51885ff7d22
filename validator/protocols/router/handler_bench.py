# SPDX-License-Identifier: Apache-2.0
"""The Router as a test bench for authors of upward-message handlers."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from validator.core.types import ParaId
from validator.errors import UserError
from validator.plugin.protocol_api import HandlerBench
from validator.protocols.kit import Account
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.rules import Router
from validator.protocols.router.state import HrmpChannel, HrmpOpenChannelRequest


def _check(configuration: Any) -> None:
    assert isinstance(configuration, HostConfiguration)
    if not configuration.preferred_dispatchable_upward_messages_step_weight:
        raise UserError("preferred_dispatchable_upward_messages_step_weight is 0: nothing would be dispatched")


def _send(rules: Router, para: ParaId, payload: bytes) -> None:
    # a candidate's limits on count and size do not concern handlers
    rules.rules.upward.enact(rules.state, para, [payload])


def _waits(rules: Router) -> bool:
    queue = rules.state.message_queue
    return bool(rules.state.needs_dispatch if queue is None else queue.ring)


def _account(rules: Router, para: ParaId) -> Account:
    return copy(rules.state.accounts.get(para, Account()))


def _downward(rules: Router, para: ParaId) -> list[bytes]:
    return [message.msg for message in rules.state.downward_message_queues.get(para, ())]


def _channels(rules: Router) -> dict[tuple[ParaId, ParaId], HrmpChannel]:
    return {each: copy(channel) for each, channel in sorted(rules.state.hrmp_channels.items())}


def _open_requests(rules: Router) -> dict[tuple[ParaId, ParaId], HrmpOpenChannelRequest]:
    return {each: copy(request) for each, request in sorted(rules.state.hrmp_open_channel_requests.items())}


HANDLER_BENCH: Final = HandlerBench(
    preset="polkadot-2023",
    check=_check,
    paras=lambda rules: sorted(rules.state.paras),
    send=_send,
    waits=_waits,
    account=_account,
    downward=_downward,
    channels=_channels,
    open_requests=_open_requests,
    close_requests=lambda rules: sorted(rules.state.hrmp_close_channel_requests),
)
