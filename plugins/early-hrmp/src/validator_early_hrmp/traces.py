# SPDX-License-Identifier: Apache-2.0
"""Inputs and states of early HRMP in the conformance format. See `docs/trace-format.md`, "early-hrmp"."""

from __future__ import annotations

from typing import Any

from validator.plugin.protocol_api import BlockNumber, Node
from validator.protocols.kit import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    InitOpenChannel,
    accounts_view,
    channel_name,
)
from validator_early_hrmp.records import Candidate, ChannelRequest, CloseChannel, HrmpMessage
from validator_early_hrmp.state import EarlyHrmpConfiguration, EarlyHrmpState, QueuedMessage

CANDIDATE_KEYS = ("para_id", "relay_parent_number", "dmq_watermark", "hrmp_messages", "enact_at_block")
_KINDS = ("init_open_channel", "accept_open_channel", "close_channel")


def read_request(node: Node) -> ChannelRequest:
    """Return the channel request of a step's entry. An entry selects the request to accept by ``index`` or by ``sender``.

    Raises `validator.errors.UserError`.
    """
    kind = node["kind"].one_of(list(_KINDS))
    origin = node["origin"].integer()
    if kind == "init_open_channel":
        return InitOpenChannel(origin, node["recipient"].integer())
    if kind == "close_channel":
        return CloseChannel(origin, node["sender"].integer(), node["recipient"].integer())
    if node.has("sender") and not node.has("index"):
        return AcceptOpenChannelFrom(origin, node["sender"].integer())
    return AcceptOpenChannel(origin, node["index"].integer())


def read_candidate(node: Node, block: BlockNumber) -> Candidate:
    """Return the candidate of a step's entry. Its relay parent defaults to ``block - 1``. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(CANDIDATE_KEYS)
    return Candidate(
        para_id=node["para_id"].integer(),
        relay_parent_number=node.get("relay_parent_number", Node.integer, max(0, block - 1)),
        dmq_watermark=node["dmq_watermark"].integer(),
        hrmp_messages=node.get("hrmp_messages", lambda items: tuple(map(_read_message, items.items())), ()),
    )


def view(state: EarlyHrmpState) -> dict[str, Any]:
    """Return all state keys."""
    return {
        "paras": sorted(state.paras),
        "channels": {
            channel_name(channel_id): {
                "sender_deposit": channel.sender_deposit,
                "recipient_deposit": channel.recipient_deposit,
                "used_places": channel.used_places,
                "used_bytes": channel.used_bytes,
                "sealed": channel.sealed,
            }
            for channel_id, channel in sorted(state.channels.items())
        },
        "dmq": {
            str(para): [_entry(block, message) for block, messages in queue.items() for message in messages]
            for para, queue in sorted(state.downward_queues.items())
        },
        "watermarks": {str(para): block for para, block in sorted(state.dmq_watermarks.items())},
        "open_requests": state.open_requests.view(),
        "close_requests": [request._asdict() for request in state.close_requests],
        "balances": accounts_view(state, state.paras),
    }


def _read_message(node: Node) -> HrmpMessage:
    return HrmpMessage(node["sender"].integer(), node["recipient"].integer(), node["payload"].hex())


def _entry(block: BlockNumber, message: QueuedMessage) -> dict[str, Any]:
    if message.sender is None:
        return {"sent_at": block, "kind": "relay", "data": message.data.hex()}
    return {"sent_at": block, "kind": "hrmp", "sender": message.sender, "data": message.data.hex()}


STATE_KEYS = tuple(view(EarlyHrmpState(EarlyHrmpConfiguration())))
"""The state keys that `view` returns."""
