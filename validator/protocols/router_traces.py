# SPDX-License-Identifier: Apache-2.0
"""The Router's own parts of the conformance format. Source: traces FORMAT."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from validator.core.limits import U32_MAX, U64_MAX, U128_MAX
from validator.core.router.router import Router
from validator.core.router.state import RouterState
from validator.core.router.view import view
from validator.core.types import (
    CONFIGURATION_FIELDS,
    AcceptOpenChannel,
    BlockNumber,
    Candidate,
    ChannelRequest,
    CloseChannel,
    HorizontalMessage,
    HostConfiguration,
    InitOpenChannel,
    ScheduleParaCleanup,
)
from validator.document import Node
from validator.plugin.api import TraceFormat

_WIDER = {
    "preferred_dispatchable_upward_messages_step_weight": U64_MAX,
    "hrmp_sender_deposit": U128_MAX,
    "hrmp_recipient_deposit": U128_MAX,
}
MAXIMA: Final = {name: _WIDER.get(name, U32_MAX) for name in CONFIGURATION_FIELDS}
"""Greatest value of every field of the configuration, in the order of `HostConfiguration`."""

_CANDIDATE_KEYS = (
    *("para_id", "relay_parent_number", "hrmp_watermark", "upward_messages"),
    *("processed_downward_messages", "horizontal_messages", "enact_at_block"),
)


def read_configuration(node: Node) -> HostConfiguration:
    """Return the configuration that an object names; what it does not name is zero. Raises `UserError`."""
    node.refuse_misspelt(CONFIGURATION_FIELDS)
    return HostConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
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
    suite=Path(__file__).resolve().parent / "conformance" / "router",
)
