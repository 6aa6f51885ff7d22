# SPDX-License-Identifier: Apache-2.0
"""The protocol's parts of the conformance format. See `docs/trace-format.md`, "xcmp-network"."""

from __future__ import annotations

from typing import Any, Final

from validator_xcmp import traces as xcmp
from validator_xcmp.merkle import msg_root

from validator.plugin.protocol_api import BlockNumber, Node
from validator_xcmp_network.limits import ACKS_MAX, OUTBOX_MESSAGES_MAX
from validator_xcmp_network.records import Candidate, ChannelRequest, MessageName, OutboxMessage, ReportBody
from validator_xcmp_network.state import NetworkState, entries

OWN_CANDIDATE_KEYS: Final = ("outbox", "acks")
CANDIDATE_KEYS: Final = (*xcmp.CANDIDATE_KEYS, *OWN_CANDIDATE_KEYS)
CHANNEL_WATERMARKS: Final = "channel_watermarks"
"""The watermarks of XCMP channels, whose own name is taken by the partial ones."""
OWN_STATE_KEYS: Final = ("ingress", "egress", "watermarks", "bodies_held", CHANNEL_WATERMARKS)
STATE_KEYS: Final = (*(key for key in xcmp.STATE_KEYS if key != "watermarks"), *OWN_STATE_KEYS)
PARA_KEYS: Final = (*xcmp.PARA_KEYS, "ingress", "egress", CHANNEL_WATERMARKS)
"""Those whose objects are keyed by para."""
REPORT_BODY: Final = "report_body"
HASH_BYTES: Final = 32


def read_request(node: Node) -> ChannelRequest:
    """Read a request: a report of a body, or a request of XCMP channels. Raises `validator.errors.UserError`."""
    if node["kind"].one_of([*xcmp.REQUEST_KINDS, REPORT_BODY]) == REPORT_BODY:
        root, size = node["root"].hex(HASH_BYTES), node["size"].integer()
        return ReportBody(node["recipient"].integer(), node["sender"].integer(), node["sent_at"].integer(), root, size)
    return xcmp.read_request(node)


def read_body(node: Node) -> ReportBody:
    """Read a body as the report of somebody who holds it. Raises `validator.errors.UserError`."""
    payloads = [payload.hex() for payload in node["payloads"].items()]
    return ReportBody(
        node["recipient"].integer(),
        node["sender"].integer(),
        node["sent_at"].integer(),
        msg_root(payloads),
        sum(map(len, payloads)),
    )


def read_candidate(node: Node, block: BlockNumber) -> Candidate:
    """Read a candidate of a block. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(CANDIDATE_KEYS)
    return Candidate(
        para_id=node["para_id"].integer(),
        relay_parent_number=node.get("relay_parent_number", Node.integer, max(0, block - 1)),
        outbox=node.get("outbox", _outbox, ()),
        acks=node.get("acks", _acks, ()),
        watermark=node.get("watermark", xcmp.read_watermark, None),
        bitfield=node.get("bitfield", xcmp.read_bitfield, ""),
        message_root=node.get("message_root", lambda root: root.hex(HASH_BYTES), None),
    )


def _outbox(node: Node) -> tuple[OutboxMessage, ...]:
    messages = tuple(
        OutboxMessage(item["recipient"].integer(), item["root"].hex(HASH_BYTES), item["size"].integer())
        for item in node.items()
    )
    if len(messages) > OUTBOX_MESSAGES_MAX:
        raise node.fail(f"at most {OUTBOX_MESSAGES_MAX} messages")
    return messages


def _acks(node: Node) -> tuple[MessageName, ...]:
    acks = tuple(_name(item) for item in node.items())
    if len(acks) > ACKS_MAX:
        raise node.fail(f"at most {ACKS_MAX} acknowledgements")
    return acks


def _name(node: Node) -> MessageName:
    parts = [part.integer() for part in node.items()]
    if len(parts) != 2:
        raise node.fail("[block, sender]")
    return parts[0], parts[1]


def view(state: NetworkState) -> dict[str, Any]:
    """Return all state keys."""
    ingress: dict[str, list[list[int]]] = {}
    egress: dict[int, list[list[int]]] = {}
    held: list[list[int]] = []
    for recipient, entry in entries(state):
        ingress.setdefault(str(recipient), []).append([entry.sent_at, entry.sender])
        egress.setdefault(entry.sender, []).append([entry.sent_at, recipient])
        if entry.held:
            held.append([entry.sent_at, entry.sender, recipient])
    channels = xcmp.view(state)
    return {
        **channels,
        CHANNEL_WATERMARKS: channels["watermarks"],
        "ingress": ingress,
        "egress": {str(sender): sorted(queue) for sender, queue in sorted(egress.items())},
        "watermarks": {
            str(recipient): {"block": queue.watermark, "acked": sorted(queue.acked)}
            for recipient, queue in sorted(state.queues.items())
            if queue.watermark or queue.acked
        },
        "bodies_held": sorted(held),
    }
