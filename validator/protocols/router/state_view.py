# SPDX-License-Identifier: Apache-2.0
"""The Router's views for `validator state show`: the whole state, one para, one channel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

from validator.core.hashing import blake2b_256
from validator.core.types import ChannelId, ParaId
from validator.plugin.protocol_api import StateSection, StateView
from validator.protocols.kit import PendingCandidate
from validator.protocols.router.books import MessageQueue
from validator.protocols.router.encoding import encode_para_page
from validator.protocols.router.state import HrmpChannels, RouterState
from validator.protocols.router.state_sections import channel_sections, para_sections, whole_sections
from validator.protocols.router.statefile import write_state
from validator.protocols.router.view import view

K = TypeVar("K")
V = TypeVar("V")

_OF_A_CHANNEL: Final = ("channels", "contents", "open_requests", "close_request_set")


def about_para(state: RouterState, para: ParaId) -> RouterState | None:
    """Return the part of a state that concerns a para: what it owns, its channels and its requests; None if there is nothing."""
    channels = [(sender, para) for sender in state.hrmp_ingress_channels_index.get(para, ())]
    channels += [(para, recipient) for recipient in state.hrmp_egress_channels_index.get(para, ())]
    channels += [channel_id for channel_id in state.hrmp_open_channel_requests_list if para in channel_id]
    if not channels and encode_para_page(state, para) is None:
        return None
    return _part(state, (para,), dict.fromkeys(channels))


def about_channel(state: RouterState, channel_id: ChannelId) -> RouterState | None:
    """Return the part of a state that concerns a channel or the request for it, or None if there is neither."""
    if channel_id not in state.hrmp_channels and channel_id not in state.hrmp_open_channel_requests:
        return None
    return _part(state, (), (channel_id,))


def _whole_document(state: RouterState) -> dict[str, Any]:
    return {
        "host_configuration": {
            name: value for name, value in asdict(state.host_configuration).items() if value is not None
        },
        "balances": state.balances_mode.value,
        "hrmp_notifications": state.hrmp_notifications,
        "pending_candidates": _pending(state),
    }


def _para_document(state: RouterState, para: ParaId) -> dict[str, Any] | None:
    part = about_para(state, para)
    if part is None:
        return None
    page = encode_para_page(state, para)
    return {
        "para_id": para,
        "page_hash": None if page is None else blake2b_256(page).hex(),
        "pending_candidates": _pending(part),
        "state": write_state(part),
    }


def _channel_document(state: RouterState, channel_id: ChannelId) -> dict[str, Any] | None:
    part = about_channel(state, channel_id)
    if part is None:
        return None
    opened = part.hrmp_channels.get(channel_id)
    keys = view(part)
    return {
        "channel": list(channel_id),
        "messages_sent": 0 if opened is None else opened.messages_sent,
        "state": {key: keys[key] for key in _OF_A_CHANNEL},
    }


def _para_sections(state: RouterState, para: ParaId) -> Sequence[StateSection] | None:
    part = about_para(state, para)
    return None if part is None else para_sections(part, para, encode_para_page(state, para))


def _channel_sections(state: RouterState, channel_id: ChannelId) -> Sequence[StateSection] | None:
    part = about_channel(state, channel_id)
    return None if part is None else channel_sections(part, channel_id)


def _pending(state: RouterState) -> dict[str, list[dict[str, Any]]]:
    return {str(para): [_candidate(each) for each in queue] for para, queue in sorted(state.pending_candidates.items())}


def _candidate(pending: PendingCandidate) -> dict[str, Any]:
    """Return a candidate by the field names of its record."""
    candidate = pending.candidate
    return {
        "backed_at": pending.backed_at,
        "relay_parent_number": candidate.relay_parent_number,
        "hrmp_watermark": candidate.hrmp_watermark,
        "upward_messages": [payload.hex() for payload in candidate.upward_messages],
        "processed_downward_messages": candidate.processed_downward_messages,
        "horizontal_messages": [
            {"recipient": message.recipient, "data": message.data.hex()} for message in candidate.horizontal_messages
        ],
        "candidate_hash": None if candidate.candidate_hash is None else candidate.candidate_hash.hex(),
    }


def _part(state: RouterState, paras: Collection[ParaId], channels: Collection[ChannelId]) -> RouterState:
    """Return a state that holds only what the given paras own, and the given channels and requests."""
    queue = state.message_queue
    return RouterState(
        state.host_configuration,
        state.balances_mode,
        state.hrmp_notifications,
        state.session_index,
        paras=_only(state.paras, paras),
        accounts=_only(state.accounts, paras),
        outgoing_paras=[para for para in state.outgoing_paras if para in paras],
        pending_candidates=_only(state.pending_candidates, paras),
        relay_dispatch_queues=_only(state.relay_dispatch_queues, paras),
        relay_dispatch_queue_size=_only(state.relay_dispatch_queue_size, paras),
        needs_dispatch=[para for para in state.needs_dispatch if para in paras],
        next_dispatch_round_start_with=(
            state.next_dispatch_round_start_with if state.next_dispatch_round_start_with in paras else None
        ),
        message_queue=queue
        and MessageQueue(_only(queue.books, paras), ring=[para for para in queue.ring if para in paras]),
        downward_message_queues=_only(state.downward_message_queues, paras),
        downward_message_queue_heads=_only(state.downward_message_queue_heads, paras),
        downward_messages_sent=_only(state.downward_messages_sent, paras),
        hrmp_open_channel_requests=_only(state.hrmp_open_channel_requests, channels),
        hrmp_open_channel_requests_list=[each for each in state.hrmp_open_channel_requests_list if each in channels],
        hrmp_open_channel_request_count=_only(state.hrmp_open_channel_request_count, paras),
        hrmp_uncounted_requests=_only(state.hrmp_uncounted_requests, paras),
        hrmp_stranded_deposits=_only(state.hrmp_stranded_deposits, paras),
        hrmp_accepted_channel_request_count=_only(state.hrmp_accepted_channel_request_count, paras),
        hrmp_close_channel_requests=_only(state.hrmp_close_channel_requests, channels),
        hrmp_close_channel_requests_list=[each for each in state.hrmp_close_channel_requests_list if each in channels],
        hrmp_watermarks=_only(state.hrmp_watermarks, paras),
        hrmp_channels=HrmpChannels(_only(state.hrmp_channels, channels)),
        hrmp_ingress_channels_index=_only(state.hrmp_ingress_channels_index, paras),
        hrmp_egress_channels_index=_only(state.hrmp_egress_channels_index, paras),
        hrmp_channel_digests=_only(state.hrmp_channel_digests, paras),
    )


def _only(whole: Mapping[K, V], keys: Collection[K]) -> dict[K, V]:
    return {key: whole[key] for key in keys if key in whole}


STATE_VIEW: Final = StateView(
    paras=lambda state: sorted(state.paras),
    channels=lambda state: sorted(state.hrmp_channels),
    whole_document=_whole_document,
    para_document=_para_document,
    channel_document=_channel_document,
    whole_sections=whole_sections,
    para_sections=_para_sections,
    channel_sections=_channel_sections,
)
