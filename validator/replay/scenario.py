# SPDX-License-Identifier: Apache-2.0
"""The scenarios of a trace file, read and checked. Source: traces FORMAT, "Scenario" and "Step"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from validator.core.limits import U32_MAX, U64_MAX, U128_MAX
from validator.core.router.state import RouterState
from validator.core.router.view import view
from validator.core.types import (
    CONFIGURATION_FIELDS,
    AcceptOpenChannel,
    BlockNumber,
    Candidate,
    ChannelRequest,
    CloseChannel,
    DownwardMessage,
    HorizontalMessage,
    HostConfiguration,
    InitOpenChannel,
    Para,
    ParaKind,
    ScheduleParaCleanup,
    SessionChange,
)
from validator.replay.document import Node

STATE_KEYS = tuple(view(RouterState(HostConfiguration())))
FEATURES = ("delayed_enactment", "hrmp_notifications")
"""What a scenario may need beyond router.txt, as far as it is built."""

_SCENARIO_KEYS = (
    *("id", "name", "group", "source", "rule", "protocol", "needs", "interpretation", "config", "genesis_paras"),
    *("ump_weights", "ump_default_weight", "ump_failing_messages", "steps"),
)
_STEP_KEYS = ("block", "requests", "downward", "candidates", "session_change", "expect")
_CANDIDATE_KEYS = (
    *("para_id", "relay_parent_number", "hrmp_watermark", "upward_messages"),
    *("processed_downward_messages", "horizontal_messages", "enact_at_block"),
)
_CONFIGURATION_MAXIMA = {
    "preferred_dispatchable_upward_messages_step_weight": U64_MAX,
    "hrmp_sender_deposit": U128_MAX,
    "hrmp_recipient_deposit": U128_MAX,
}
_EXPECT_KEYS = ("requests", "downward", "candidates", "dispatched", "state")


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a block; ``candidates`` come with the block that enacts them, which is None for at once."""

    block: BlockNumber
    requests: tuple[ChannelRequest, ...]
    downward: tuple[DownwardMessage, ...]
    candidates: tuple[tuple[Candidate, BlockNumber | None], ...]
    session_change: SessionChange | None
    expect: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario; ``skipped`` says why it cannot be run, and then nothing else of it has been read."""

    id: str
    name: str
    skipped: str | None = None
    config: HostConfiguration = field(default_factory=HostConfiguration)
    genesis_paras: tuple[Para, ...] = ()
    notifications: bool = False
    weights: dict[bytes, int] = field(default_factory=dict)
    default_weight: int = 1
    failing: frozenset[bytes] = frozenset()
    steps: tuple[Step, ...] = ()


def read_scenarios(document: Node, *, expectations: bool = True) -> list[Scenario]:
    """Return the scenarios of a file: one object, or a list of them; what they expect is read where that is wanted. Raises `UserError`."""
    if isinstance(document.value, dict):
        if document.has("format"):
            name = document["format"].text()
            return [Scenario(name, document.path, skipped="its protocol is not installed")]
        return [_scenario(document, expectations)]
    if not isinstance(document.value, list):
        raise document.fail("a scenario or an array of them")
    return [_scenario(node, expectations) for node in document.items()]


def read_configuration(node: Node) -> tuple[tuple[str, int], ...]:
    """Return the configuration fields that an object names, in the order of `HostConfiguration`. Raises `UserError`."""
    node.refuse_misspelt(CONFIGURATION_FIELDS)
    return tuple(
        (name, node[name].integer(_CONFIGURATION_MAXIMA.get(name, U32_MAX)))
        for name in CONFIGURATION_FIELDS
        if node.has(name)
    )


def read_para(node: Node) -> Para:
    """Return a para that becomes valid. Raises `UserError`."""
    kind = node["kind"].one_of(list(ParaKind)) if node.has("kind") else ParaKind.PARACHAIN
    return Para(
        node["para_id"].integer(), ParaKind(kind), node.get("balance", lambda member: member.integer(U128_MAX), 0)
    )


def _scenario(node: Node, expectations: bool) -> Scenario:
    node.refuse_misspelt(_SCENARIO_KEYS)
    scenario_id = node["id"].text()
    name = node.get("name", Node.text, "")
    protocol = node.get("protocol", Node.text, "router")
    if protocol != "router":
        return Scenario(scenario_id, name, skipped=f"protocol {protocol!r} is not installed")
    needs = [item.text() for item in node["needs"].items()] if node.has("needs") else []
    for feature in needs:
        if feature not in FEATURES:
            return Scenario(scenario_id, name, skipped=f"needs {feature!r}, which is not built")

    steps = tuple(_step(step, expectations) for step in node["steps"].items())
    for earlier, later, at in zip(steps, steps[1:], range(1, len(steps)), strict=False):
        if later.block < earlier.block:
            raise Node(later.block, f"{node.path}.steps[{at}].block").fail(f"a block from {earlier.block} on")
    return Scenario(
        scenario_id,
        name,
        config=HostConfiguration(**dict(node.get("config", read_configuration, ()))),
        genesis_paras=node.get("genesis_paras", lambda paras: tuple(read_para(para) for para in paras.items()), ()),
        notifications="hrmp_notifications" in needs,
        weights=node.get("ump_weights", _weights, {}),
        default_weight=node.get("ump_default_weight", lambda member: member.integer(U64_MAX), 1),
        failing=node.get(
            "ump_failing_messages", lambda payloads: frozenset(item.hex() for item in payloads.items()), frozenset()
        ),
        steps=steps,
    )


def _weights(node: Node) -> dict[bytes, int]:
    return {Node(payload, f"{node.path} key").hex(): weight.integer(U64_MAX) for payload, weight in node.members()}


def _step(node: Node, expectations: bool) -> Step:
    node.refuse_misspelt(_STEP_KEYS)
    block = node["block"].integer()
    return Step(
        block=block,
        requests=node.get("requests", lambda items: tuple(_request(item) for item in items.items()), ()),
        downward=node.get("downward", lambda items: tuple(_downward(item) for item in items.items()), ()),
        candidates=node.get("candidates", lambda items: tuple(_candidate(item, block) for item in items.items()), ()),
        session_change=node.get("session_change", _session_change, None),
        expect=node.get("expect", _expect, {}) if expectations else {},
    )


def _expect(node: Node) -> dict[str, Any]:
    node.refuse_misspelt(_EXPECT_KEYS)
    for key in ("requests", "downward", "candidates"):
        for result in node[key].items() if node.has(key) else ():
            if not result["ok"].boolean() and not result.has("error_any_of"):
                result["error"]["kind"].text()
    for pair in node["dispatched"].items() if node.has("dispatched") else ():
        if len(list(pair.items())) != 2:
            raise pair.fail("[para, payload]")
    if node.has("state"):
        node["state"].refuse_misspelt(STATE_KEYS)
    return {key: value for key, value in node.object().items() if value is not None}


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


def _downward(node: Node) -> DownwardMessage:
    return DownwardMessage(node["para_id"].integer(), node["msg"].hex())


def _candidate(node: Node, block: BlockNumber) -> tuple[Candidate, BlockNumber | None]:
    node.refuse_misspelt(_CANDIDATE_KEYS)
    candidate = Candidate(
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
    return candidate, node.get("enact_at_block", Node.integer, None)


def _session_change(node: Node) -> SessionChange:
    node.refuse_misspelt(("outgoing", "onboarding", "new_config"))
    return SessionChange(
        outgoing=node.get("outgoing", lambda items: tuple(item.integer() for item in items.items()), ()),
        onboarding=node.get("onboarding", lambda items: tuple(read_para(item) for item in items.items()), ()),
        new_config=node.get("new_config", read_configuration, ()),
    )
