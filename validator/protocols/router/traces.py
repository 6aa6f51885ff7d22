# SPDX-License-Identifier: Apache-2.0
"""The Router's parts of the conformance format. See `docs/trace-format.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from validator.core.types import BlockNumber
from validator.document import Node
from validator.plugin.protocol_api import U32_MAX, U64_MAX, TraceFormat
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features.table import FEATURES
from validator.protocols.router.records import REQUESTS, Candidate, ChannelRequest, HorizontalMessage
from validator.protocols.router.state import RouterState
from validator.protocols.router.view import view

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
