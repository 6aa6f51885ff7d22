# SPDX-License-Identifier: Apache-2.0
"""The shipped facts are a part of those recorded, and what is in them reaches the state of a lane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.realdata.recorded import EVERYTHING, SHIPPED, Json, lines, needs_data
from tests.realdata.runs import SHIPPED as RUN
from tests.realdata.runs import follow
from validator.core.hashing import message_hash, mqc_link
from validator.core.types import ZERO_HASH

BYTES_MAX = 10_000


def is_part(part: Any, whole: Any) -> bool:
    """Return whether every value of ``part`` is in ``whole``; members of objects may be missing, and ends of ``seen_relay_blocks``."""
    if isinstance(part, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) <= len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


@needs_data
def test_shipped_facts_are_among_those_recorded() -> None:
    everything = lines(EVERYTHING)
    for fact in lines(SHIPPED):
        assert any(is_part(fact, each) for each in everything if each["kind"] == fact["kind"]), fact


def test_shipped_facts_are_few() -> None:
    assert SHIPPED.stat().st_size < BYTES_MAX
    kinds: dict[str, list[Json]] = {}
    for fact in lines(SHIPPED):
        kinds.setdefault(fact["kind"], []).append(fact)
    assert {kind: len(facts) for kind, facts in kinds.items()} == {
        "relay_block": len(RUN.blocks),
        "candidate": RUN.candidates,
        "channel": 1,
        "host_configuration": 1,
    }


def test_message_of_the_shipped_run_is_linked_with_the_block_of_its_inclusion(tmp_path: Path) -> None:
    ((backed, message),) = [
        (fact, message)
        for fact in lines(SHIPPED)
        if fact["kind"] == "candidate"
        for message in fact["horizontal_messages"]
    ]
    ((included, _),) = [
        (fact["number"], event)
        for fact in lines(SHIPPED)
        if fact["kind"] == "relay_block"
        for event in fact["events"]
        if event["commitments_hash"] == backed["commitments_hash"]
    ]
    state = follow(RUN.definition(tmp_path), RUN.conversion().records).state
    channel = state.hrmp_channels[backed["para"], message["recipient"]]
    assert included > backed["relay_block"]
    assert channel.mqc_head == mqc_link(ZERO_HASH, included, message_hash(bytes.fromhex(message["data"])))
