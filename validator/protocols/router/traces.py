# SPDX-License-Identifier: Apache-2.0
"""The Router's parts of the conformance format. Source: traces FORMAT."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from validator.core.types import BlockNumber
from validator.document import Node
from validator.plugin.protocol_api import TraceFormat
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.records import (
    AcceptOpenChannel,
    Candidate,
    ChannelRequest,
    CloseChannel,
    HorizontalMessage,
    InitOpenChannel,
    ScheduleParaCleanup,
)
from validator.protocols.router.rules import Router
from validator.protocols.router.state import RouterState
from validator.protocols.router.view import view

_CANDIDATE_KEYS = (
    *("para_id", "relay_parent_number", "hrmp_watermark", "upward_messages"),
    *("processed_downward_messages", "horizontal_messages", "enact_at_block"),
)


def _request(node: Node) -> ChannelRequest:
    kind = node["kind"].one_of(["init_open_channel", "accept_open_channel", "close_channel", "schedule_para_cleanup"])
    if kind == "schedule_para_cleanup":
        return ScheduleParaCleanup(node["para_id"].integer())
    origin = node["origin"].integer()
    if kind == "init_open_channel":
        return InitOpenChannel(
            origin, node["recipient"].integer(), node["max_places"].integer(), node["max_message_size"].integer()
        )
    if kind == "accept_open_channel":
        return AcceptOpenChannel(origin, node["sender"].integer())
    ends = [end.integer() for end in node["channel"].items()]
    if len(ends) != 2:
        raise node["channel"].fail("[sender, recipient]")
    return CloseChannel(origin, (ends[0], ends[1]))


def _candidate(node: Node, block: BlockNumber) -> Candidate:
    node.refuse_misspelt(_CANDIDATE_KEYS)
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


def _view(rules: Any) -> dict[str, Any]:
    assert isinstance(rules, Router)
    return view(rules.state)


TRACES: Final = TraceFormat(
    request=_request,
    candidate=_candidate,
    view=_view,
    state_keys=tuple(view(RouterState(HostConfiguration()))),
    features=("delayed_enactment", "hrmp_notifications"),
    suite=Path(__file__).resolve().parent / "conformance",
)
