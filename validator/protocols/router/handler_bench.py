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
from validator.protocols.router.profile import Profile
from validator.protocols.router.state import HrmpChannel, HrmpOpenChannelRequest, RouterState


def _check(configuration: Any) -> None:
    assert isinstance(configuration, HostConfiguration)
    if not configuration.preferred_dispatchable_upward_messages_step_weight:
        raise UserError("preferred_dispatchable_upward_messages_step_weight is 0: nothing would be dispatched")


def _send(state: RouterState, rules: Profile, para: ParaId, payload: bytes) -> None:
    # a candidate's limits on count and size do not concern handlers
    rules.upward.enact(state, para, [payload])


def _waits(state: RouterState) -> bool:
    queue = state.message_queue
    return bool(state.needs_dispatch if queue is None else queue.ring)


def _account(state: RouterState, para: ParaId) -> Account:
    return copy(state.accounts.get(para, Account()))


def _downward(state: RouterState, para: ParaId) -> list[bytes]:
    return [message.msg for message in state.downward_message_queues.get(para, ())]


def _channels(state: RouterState) -> dict[tuple[ParaId, ParaId], HrmpChannel]:
    return {each: copy(channel) for each, channel in sorted(state.hrmp_channels.items())}


def _open_requests(state: RouterState) -> dict[tuple[ParaId, ParaId], HrmpOpenChannelRequest]:
    return {each: copy(request) for each, request in sorted(state.hrmp_open_channel_requests.items())}


HANDLER_BENCH: Final = HandlerBench(
    preset="polkadot-2023",
    check=_check,
    paras=lambda state: sorted(state.paras),
    send=_send,
    waits=_waits,
    account=_account,
    downward=_downward,
    channels=_channels,
    open_requests=_open_requests,
    close_requests=lambda state: sorted(state.hrmp_close_channel_requests),
)
