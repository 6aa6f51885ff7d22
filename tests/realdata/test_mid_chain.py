# SPDX-License-Identifier: Apache-2.0
"""A lane that joins a chain late continues like one that was there from the start, as docs/real-data.md describes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.realdata.convert import Records, definition
from tests.realdata.recorded import needs_data
from tests.realdata.runs import LONG, follow
from validator.core.outcomes import Executed, Verdict
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "real-data.md"


@needs_data
# between backing and inclusion of a candidate that processes a downward message; between backing, inclusion and receipt of horizontal
# messages; and near the end
@pytest.mark.parametrize("join", [17_844_554, 17_844_556, 17_844_557, 17_844_558, 17_844_566, 17_844_567, 17_844_570])
def test_lane_that_joins_later_emits_the_same(join: int, tmp_path: Path) -> None:
    records = LONG.conversion().records
    from_start = follow(LONG.definition(tmp_path / "from_start"), records)
    before = [each for each in records if each[1]["block"] < join]
    left = follow(LONG.definition(tmp_path / "left"), before)

    # what is known at the end of the previous block: storage, and the pending candidates
    pending = [
        (number, candidate.para_id)
        for waiting in left.state.pending_candidates.values()
        for number, candidate in waiting
    ]
    assert pending
    state = view(left.state)
    rejoined: Records = bridge(before, sorted(pending), join)
    rejoined += [each for each in records if each[1]["block"] >= join]
    seeded = {"first_block": join - 1, "state": json.loads(json.dumps(state))}
    late = follow(definition("polkadot", seeded, tmp_path / "late"), unpinned(rejoined))

    assert late.rejected() == []
    assert verdicts(late.outcomes[1:]) == verdicts(from_start.outcomes[join - LONG.blocks.start :])
    for followed in (late, from_start):
        # only a lane that was there knows when a candidate was backed, and how many messages there have been
        followed.state.downward_messages_sent.clear()
        for channel in followed.state.hrmp_channels.values():
            channel.messages_sent = 0
            channel.pruned_head = channel.mqc_head
    assert ROUTER.root_of(late.state) == ROUTER.root_of(from_start.state)


def bridge(before: Records, pending: list[tuple[int, int]], join: int) -> Records:
    """Return an additional first block in which the pending candidates are backed again."""
    candidates = [
        {**body, "block": join - 1, "index": index}
        for index, (number, para) in enumerate(pending)
        for topic, body in before
        if topic == "candidates" and (body["block"], body["para_id"]) == (number, para)
    ]
    block = {"lane": "polkadot", "block": join - 1, "candidates": len(candidates), "requests": 0, "downward": 0}
    return [("blocks", block | {"included": [], "timed_out": []}), *(("candidates", body) for body in candidates)]


def unpinned(records: Records) -> Records:
    """Return records whose inclusions name a para's oldest pending candidate instead of the block that backed it."""
    return [
        (
            topic,
            body | {"included": [{**each, "backed_at": None} for each in body["included"]]}
            if topic == "blocks"
            else body,
        )
        for topic, body in records
    ]


def verdicts(outcomes: list[Executed]) -> list[Verdict]:
    """Return the verdicts, without the numbers of messages, which count from where the lane began."""
    return [
        verdict._replace(
            messages=tuple(message._replace(sequence_number=0) for message in verdict.messages),
            received=tuple(each._replace(first=0, last=each.last - each.first) for each in verdict.received),
        )
        for executed in outcomes
        for verdict in executed.verdicts
    ]
