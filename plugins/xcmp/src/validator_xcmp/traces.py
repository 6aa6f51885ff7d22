# SPDX-License-Identifier: Apache-2.0
"""Inputs and states of XCMP channels in the conformance format. See `docs/trace-format.md`, "xcmp"."""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.protocol_api import BlockNumber, Node
from validator.protocols.kit import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel, accounts_view
from validator_xcmp.limits import BITFIELD_BITS_MAX
from validator_xcmp.records import Candidate, ChannelRequest, CloseChannel, CloseChannelTo, Watermark
from validator_xcmp.state import XcmpState, column_index

# --- traces ---------------------------------------------------------------------------------------------------------------------------


REQUEST_KINDS: Final = ("init_open_channel", "accept_open_channel", "close_channel")
CANDIDATE_KEYS: Final = (
    *("para_id", "relay_parent_number", "watermark", "bitfield", "message_root", "enact_at_block"),
)
STATE_KEYS: Final = (
    *("paras", "cst", "cmt", "cst_roots", "watermarks", "open_requests", "close_requests", "condemned", "dmq"),
    *("dmq_heads", "balances"),
)
"""Keys of a state; ``paras``, ``dmq`` and ``dmq_heads`` have the same shape as the Router's."""
PARA_KEYS: Final = ("cst", "cmt", "cst_roots", "watermarks", "dmq", "dmq_heads", "balances")
"""Those whose objects are keyed by para."""


def read_request(node: Node) -> ChannelRequest:
    """Read a request; accepting and closing name their target by ``index`` or by the other end. Raises `UserError`."""
    kind = node["kind"].one_of(list(REQUEST_KINDS))
    origin = node["origin"].integer()
    if kind == "init_open_channel":
        return InitOpenChannel(origin, node["recipient"].integer())
    if kind == "accept_open_channel":
        if node.has("sender") and not node.has("index"):
            return AcceptOpenChannelFrom(origin, node["sender"].integer())
        return AcceptOpenChannel(origin, node["index"].integer())
    sender = node["sender"].integer()
    if node.has("recipient") and not node.has("index"):
        return CloseChannelTo(origin, sender, node["recipient"].integer())
    return CloseChannel(origin, sender, node["index"].integer())


def read_candidate(node: Node, block: BlockNumber) -> Candidate:
    """Read a candidate of a block. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(CANDIDATE_KEYS)
    return Candidate(
        para_id=node["para_id"].integer(),
        relay_parent_number=node.get("relay_parent_number", Node.integer, max(0, block - 1)),
        watermark=read_watermark(node["watermark"]),
        bitfield=node.get("bitfield", read_bitfield, ""),
        message_root=node.get("message_root", lambda root: root.hex(32), None),
    )


def read_watermark(node: Node) -> Watermark:
    """Read a watermark from ``[block, para]``. Raises `validator.errors.UserError`."""
    parts = [part.integer() for part in node.items()]
    if len(parts) != 2:
        raise node.fail("[block, para]")
    return parts[0], parts[1]


def read_bitfield(node: Node) -> str:
    """Read a bitfield. Raises `validator.errors.UserError`."""
    bits = node.text()
    if len(bits) > BITFIELD_BITS_MAX or bits.strip("01"):
        raise node.fail(f"at most {BITFIELD_BITS_MAX} characters 0 and 1")
    return bits


def view(state: XcmpState) -> dict[str, Any]:
    """Return all state keys."""
    return {
        "paras": sorted(state.paras),
        "cst": {
            str(sender): [
                {
                    "last_updated": column.last_updated,
                    "message_root": None if column.message_root is None else column.message_root.hex(),
                }
                for column in row
            ]
            for sender, row in sorted(state.rows.items())
        },
        "cmt": {
            str(sender): [
                {
                    "recipient": column.recipient,
                    "capacity": column.capacity,
                    "sender_deposit": column.sender_deposit,
                    "recipient_deposit": column.recipient_deposit,
                }
                for column in row
            ]
            for sender, row in sorted(state.rows.items())
        },
        "cst_roots": {str(sender): root.hex() for sender, root in sorted(state.cst_roots.items())},
        "watermarks": {str(para): list(watermark) for para, watermark in sorted(state.watermarks.items())},
        "open_requests": state.open_requests.view(),
        "close_requests": [
            {"initiator": initiator, "sender": sender, "recipient": recipient}
            for (sender, recipient), initiator in state.close_requests.items()
        ],
        "condemned": [
            {
                "sender": sender,
                "recipient": recipient,
                "n": column_index(state, (sender, recipient)),
                "counter": counter,
            }
            for (sender, recipient), counter in state.condemned.items()
        ],
        "dmq": {
            str(para): [{"sent_at": message.sent_at, "msg": message.msg.hex()} for message in queue]
            for para, queue in sorted(state.downward_queues.items())
        },
        "dmq_heads": {str(para): tail.head.hex() for para, tail in sorted(state.downward_tails.items())},
        "balances": accounts_view(state, state.paras),
    }
