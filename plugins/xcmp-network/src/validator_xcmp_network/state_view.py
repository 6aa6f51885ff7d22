# SPDX-License-Identifier: Apache-2.0
"""The protocol's views for `validator state show`: the whole state, one para, one channel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from validator.plugin.protocol_api import ChannelId, ParaId, StateSection, StateView, blake2b_256, section_title
from validator_xcmp_network.pages import encode_para_page
from validator_xcmp_network.queues import IngressQueue, QueuedMessage
from validator_xcmp_network.state import (
    NetworkState,
    channel_limit,
    entries,
    has_channel,
    unread_in_channel,
)

ROWS_MAX: Final = 40
"""Messages or channels that a section lists."""
_MESSAGE_COLUMNS: Final = ("block", "sender", "bytes", "root", "body")


def _paras(state: NetworkState) -> Sequence[ParaId]:
    return sorted(state.paras)


def _channels(state: NetworkState) -> Sequence[ChannelId]:
    if state.is_composed:
        return sorted((sender, column.recipient) for sender, row in state.rows.items() for column in row)
    return sorted(state.fixed_channels)


def _whole_document(state: NetworkState) -> dict[str, Any]:
    network = state.network
    return {
        "max_block_bytes": network.max_block_bytes,
        "max_channel_messages": network.max_channel_messages,
        "max_ingress_messages": network.max_ingress_messages,
        "intra_block": network.intra_block.value,
        "require_bodies": network.require_bodies,
        "channels": network.channels.value,
    }


def _para_document(state: NetworkState, para: ParaId) -> dict[str, Any] | None:
    page = encode_para_page(state, para)
    if page is None:
        return None
    queue = state.queues.get(para) or IngressQueue()
    return {
        "para_id": para,
        "page_hash": blake2b_256(page).hex(),
        "state": {
            "ingress": [_message(entry) for entry in queue],
            "egress": [{"recipient": recipient, **_message(entry)} for recipient, entry in _egress(state, para)],
            "watermark": {"block": queue.watermark, "acked": sorted(queue.acked)},
        },
    }


def _channel_document(state: NetworkState, channel_id: ChannelId) -> dict[str, Any] | None:
    if not has_channel(state, channel_id):
        return None
    return {
        "channel": list(channel_id),
        "limit": channel_limit(state, channel_id),
        "state": {"unread": [_message(entry) for entry in _unread(state, channel_id)]},
    }


def _whole_sections(state: NetworkState) -> Sequence[StateSection]:
    queues = sorted(state.queues.items())
    rows = [
        (str(para), str(queue.watermark), str(len(queue.acked)), str(queue.count), _front(queue))
        for para, queue in queues[:ROWS_MAX]
    ]
    return (
        StateSection(facts=tuple((name, str(value)) for name, value in _whole_document(state).items())),
        StateSection(
            section_title("ingress queues", len(queues), ROWS_MAX),
            columns=("para", "watermark", "acked in it", "unread", "front"),
            rows=rows,
            left=("front",),
        ),
    )


def _para_sections(state: NetworkState, para: ParaId) -> Sequence[StateSection] | None:
    if encode_para_page(state, para) is None:
        return None
    queue = state.queues.get(para) or IngressQueue()
    acked = ", ".join(map(str, sorted(queue.acked)[:ROWS_MAX])) or "nobody"
    return (
        StateSection(facts=(("watermark", f"block {queue.watermark}"), ("acknowledged in it", acked))),
        _messages("ingress queue", queue.count, list(islice(queue, ROWS_MAX))),
    )


def _channel_sections(state: NetworkState, channel_id: ChannelId) -> Sequence[StateSection] | None:
    if not has_channel(state, channel_id):
        return None
    unread = unread_in_channel(state, channel_id)
    facts = (("unread", str(unread)), ("limit", str(channel_limit(state, channel_id))))
    return StateSection(facts=facts), _messages("unread", unread, _unread(state, channel_id)[:ROWS_MAX])


def _messages(title: str, count: int, shown: Sequence[QueuedMessage]) -> StateSection:
    rows = [
        (str(entry.sent_at), str(entry.sender), str(entry.size), entry.root.hex(), "held" if entry.held else "")
        for entry in shown
    ]
    return StateSection(
        section_title(title, count, len(rows)), columns=_MESSAGE_COLUMNS, rows=rows, left=("root", "body")
    )


def _unread(state: NetworkState, channel_id: ChannelId) -> list[QueuedMessage]:
    sender, recipient = channel_id
    queue = state.queues.get(recipient)
    return [] if queue is None else list(queue.by_sender.get(sender, ()))


def _egress(state: NetworkState, para: ParaId) -> list[tuple[ParaId, QueuedMessage]]:
    """Return a sender's unread messages with their recipients: by block, then by recipient."""
    own = [(recipient, entry) for recipient, entry in entries(state) if entry.sender == para]
    return sorted(own, key=lambda each: (each[1].sent_at, each[0]))


def _message(entry: QueuedMessage) -> dict[str, Any]:
    return {
        "sent_at": entry.sent_at,
        "sender": entry.sender,
        "root": entry.root.hex(),
        "size": entry.size,
        "held": entry.held,
    }


def _front(queue: IngressQueue) -> str:
    front = next(iter(queue), None)
    return "" if front is None else f"block {front.sent_at}, sender {front.sender}"


STATE_VIEW: Final = StateView(
    paras=_paras,
    channels=_channels,
    whole_document=_whole_document,
    para_document=_para_document,
    channel_document=_channel_document,
    whole_sections=_whole_sections,
    para_sections=_para_sections,
    channel_sections=_channel_sections,
)
