# SPDX-License-Identifier: Apache-2.0
"""Inputs and states of the Router in the conformance format. See `docs/trace-format.md`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from validator.core.types import BlockNumber, ChannelId, ParaId
from validator.document import Node
from validator.plugin.protocol_api import U32_MAX, U64_MAX, TraceFormat
from validator.protocols.kit import accounts_view, channel_name
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features.table import FEATURES
from validator.protocols.router.records import REQUESTS, Candidate, ChannelRequest, HorizontalMessage
from validator.protocols.router.state import MessageQueue, RouterState, mqc_heads

# --- view -----------------------------------------------------------------------------------------------------------------------------
# A Router state in the state keys of the conformance format.
#
# See `docs/trace-format.md`, "State keys". Payloads and hashes are hex, channels are named ``"sender->recipient"``.


def view(state: RouterState) -> dict[str, Any]:
    """Return all state keys."""
    return {
        "channels": {
            channel_name(channel_id): {
                "sender_deposit": channel.sender_deposit,
                "recipient_deposit": channel.recipient_deposit,
                "limit_used_places": channel.limit_used_places,
                "limit_used_bytes": channel.limit_used_bytes,
                "limit_message_size": channel.limit_message_size,
                "used_places": channel.used_places,
                "used_bytes": channel.used_bytes,
                "mqc_head": channel.mqc_head.hex(),
            }
            for channel_id, channel in sorted(state.hrmp_channels.items())
        },
        "channel_set": _names(state.hrmp_channels),
        "open_requests": {
            channel_name(channel_id): {
                "confirmed": request.confirmed,
                "age": request.age,
                "sender_deposit": request.sender_deposit,
                "limit_used_places": request.limit_used_places,
                "limit_used_bytes": request.limit_used_bytes,
                "limit_message_size": request.limit_message_size,
            }
            for channel_id, request in sorted(state.hrmp_open_channel_requests.items())
        },
        "open_request_set": _names(state.hrmp_open_channel_requests),
        "close_request_set": _names(state.hrmp_close_channel_requests),
        "open_request_count": _by_para(state.hrmp_open_channel_request_count),
        "accepted_request_count": _by_para(state.hrmp_accepted_channel_request_count),
        "ingress": {str(para): list(row) for para, row in sorted(state.hrmp_ingress_channels_index.items())},
        "egress": {str(para): list(row) for para, row in sorted(state.hrmp_egress_channels_index.items())},
        "contents": {
            channel_name(channel_id): [{"sent_at": message.sent_at, "data": message.data.hex()} for message in contents]
            for channel_id, contents in sorted(state.hrmp_channel_contents.items())
        },
        "digests": {
            str(para): [[block, list(senders)] for block, senders in digests.items()]
            for para, digests in sorted(state.hrmp_channel_digests.items())
        },
        "watermarks": _by_para(state.hrmp_watermarks),
        "dmq": {
            str(para): [{"sent_at": message.sent_at, "msg": message.msg.hex()} for message in queue]
            for para, queue in sorted(state.downward_message_queues.items())
        },
        "dmq_heads": {str(para): head.hex() for para, head in sorted(state.downward_message_queue_heads.items())},
        **_upward(state),
        "balances": accounts_view(state, state.paras),
        "mqc_heads": {
            str(para): [[sender, head.hex()] for sender, head in mqc_heads(state, para)]
            for para in sorted(state.hrmp_ingress_channels_index)
        },
        "valid_paras": sorted(state.paras),
        "outgoing_paras": list(state.outgoing_paras),
        **_message_queue(state.message_queue),
    }


def _upward(state: RouterState) -> dict[str, Any]:
    """Return the keys of upward messages; under message_queue the ring stands for the paras in need of dispatch."""
    queues: Iterable[tuple[ParaId, Iterable[bytes]]] = state.relay_dispatch_queues.items()
    needs_dispatch, start = state.needs_dispatch, state.next_dispatch_round_start_with
    if state.message_queue is not None:
        books, ring = state.message_queue.books, state.message_queue.ring
        queues = ((para, book.waiting()) for para, book in books.items() if book.waits)
        needs_dispatch, start = sorted(ring), ring[0] if ring else None
    return {
        "ump_queues": {str(para): [payload.hex() for payload in queue] for para, queue in sorted(queues)},
        "ump_queue_size": {str(para): list(size) for para, size in sorted(state.relay_dispatch_queue_size.items())},
        "needs_dispatch": list(needs_dispatch),
        "next_dispatch_round_start_with": start,
    }


def _message_queue(queue: MessageQueue | None) -> dict[str, Any]:
    """Return the keys that message_queue adds; both are null without it."""
    if queue is None:
        return {"ready_ring": None, "ump_overweight": None}
    aside = {para: list(book.set_aside()) for para, book in sorted(queue.books.items())}
    return {
        "ready_ring": list(queue.ring),
        "ump_overweight": {
            str(para): [{"page": page, "index": index, "msg": payload.hex()} for page, index, payload in messages]
            for para, messages in aside.items()
            if messages
        },
    }


def _names(channel_ids: Iterable[ChannelId]) -> list[str]:
    return [channel_name(channel_id) for channel_id in sorted(channel_ids)]


def _by_para(values: dict[ParaId, int]) -> dict[str, int]:
    return {str(para): value for para, value in sorted(values.items())}


# --- traces ---------------------------------------------------------------------------------------------------------------------------


CANDIDATE_KEYS = (
    *("para_id", "relay_parent_number", "hrmp_watermark", "upward_messages"),
    *("processed_downward_messages", "horizontal_messages", "enact_at_block"),
)


def _request(node: Node) -> ChannelRequest:
    made = REQUESTS[node["kind"].one_of(list(REQUESTS))]
    return made._make(_argument(node[name]) for name in made._fields)


def _argument(node: Node) -> Any:
    """Return an argument of a request: a channel, a weight, or a number of 32 bits."""
    name = node.path.rpartition(".")[2]
    if name != "channel":
        return node.integer(U64_MAX if name == "weight_limit" else U32_MAX)
    ends = [end.integer() for end in node.items()]
    if len(ends) != 2:
        raise node.fail("[sender, recipient]")
    return ends[0], ends[1]


def _candidate(node: Node, block: BlockNumber) -> Candidate:
    node.refuse_misspelt(CANDIDATE_KEYS)
    return Candidate(
        para_id=node["para_id"].integer(),
        relay_parent_number=node.get("relay_parent_number", Node.integer, max(0, block - 1)),
        hrmp_watermark=node["hrmp_watermark"].integer(),
        upward_messages=node.get("upward_messages", lambda items: tuple(item.hex() for item in items.items()), ()),
        processed_downward_messages=node.get("processed_downward_messages", Node.integer, 0),
        horizontal_messages=node.get(
            "horizontal_messages",
            lambda items: tuple(
                HorizontalMessage(item["recipient"].integer(), item["data"].hex()) for item in items.items()
            ),
            (),
        ),
    )


TRACES: Final = TraceFormat(
    request=_request,
    candidate=_candidate,
    view=view,
    state_keys=tuple(view(RouterState(HostConfiguration()))),
    features=("delayed_enactment", *(feature.name for feature in FEATURES)),
    para_keys=(
        *(
            "open_request_count",
            "accepted_request_count",
            "ingress",
            "egress",
            "digests",
            "watermarks",
            "dmq",
            "dmq_heads",
        ),
        *("ump_queues", "ump_queue_size", "balances", "mqc_heads", "ump_overweight"),
    ),
    channel_keys=("channels", "open_requests", "contents"),
    suite=Path(__file__).resolve().parent / "conformance",
)
