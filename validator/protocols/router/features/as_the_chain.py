# SPDX-License-Identifier: Apache-2.0
"""What the relay chain does where this program chose otherwise. Source: chain_2026 3.18.

Numbers in brackets name the choice that is taken back. `session` and `requests` have what these functions replace.
"""

from __future__ import annotations

from typing import Final

from validator.core.events import EventLog
from validator.core.outcomes import ChannelEventKind
from validator.core.rules import Effects, Environment
from validator.core.types import ChannelId, ParaId
from validator.protocols.kit import decrease, increase
from validator.protocols.router.enactment import drop_upward_messages
from validator.protocols.router.features.errors import CannotOffboard
from validator.protocols.router.records import ScheduleParaCleanup
from validator.protocols.router.requests import (
    check_not_open,
    check_not_requested,
    check_other_end,
    check_recipient,
    check_wanted_size,
    schedule_para_cleanup,
)
from validator.protocols.router.session import strand_deposit
from validator.protocols.router.state import HrmpOpenChannelRequest, RouterState

INIT_CHECKS: Final = (check_other_end, check_recipient, check_wanted_size, check_not_requested, check_not_open)
"""What is checked of a request to open before limits and funds, in the chain's order (PR-12, I-14)."""


def is_valid_and_stays(state: RouterState, para: ParaId) -> bool:
    """Return whether a para is valid; one that is scheduled for offboarding no longer is (RP-01)."""
    return para in state.paras and para not in state.outgoing_paras


def schedule_cleanup(state: RouterState, env: Environment, request: ScheduleParaCleanup) -> Effects:
    """Schedule a para for offboarding; for an unknown one nothing happens (PR-15).

    Raises `CannotOffboard` for a para that is scheduled already, then the violations of ``rules.upward.may_offboard``.
    """
    para = request.para_id
    if para in state.outgoing_paras:
        unprocessed, _ = state.relay_dispatch_queue_size.get(para, (0, 0))
        raise CannotOffboard(para_id=para, unprocessed=unprocessed)
    if para not in state.paras:
        return Effects()
    env.profile.upward.may_offboard(state, para)
    schedule_para_cleanup(state, para)
    return Effects(effective_session=state.session_index + 1)


def sweep_upward_messages(state: RouterState, para: ParaId) -> None:
    """Pass over an outgoing para's messages; its book stays with them, and they stay counted (PR-09)."""
    queue = state.message_queue
    if queue is None:
        drop_upward_messages(state, para)
        return
    book = queue.books.get(para)
    if book is not None and book.waits:
        queue.ring.remove(para)
        book.begin, book.next_index = book.end, 0


def keep_received(state: RouterState, para: ParaId) -> None:
    """Do nothing: watermark and digests of a para that goes stay, and hold when it returns (I-08)."""


def strand_deposits(
    state: RouterState, events: EventLog, channel_id: ChannelId, request: HrmpOpenChannelRequest
) -> None:
    """Drop a confirmed request that opens nothing; both deposits stay reserved (I-07)."""
    for para, deposit in zip(channel_id, (request.sender_deposit, request.recipient_deposit), strict=True):
        strand_deposit(state, para, deposit)
    events.add(ChannelEventKind.REQUEST_DROPPED, channel_id, reason="offboarded")


def lose_place(state: RouterState, channel_id: ChannelId) -> None:
    """Remove a request whose party goes, but leave its sender's count as it is: the place is lost until the sender goes (PR-03)."""
    del state.hrmp_open_channel_requests[channel_id]
    sender, _ = channel_id
    if not decrease(state.hrmp_uncounted_requests, sender):
        increase(state.hrmp_lost_places, sender)
