# SPDX-License-Identifier: Apache-2.0
"""Damages the stored state of a lane as a disk would: its head, a page, or an entry of its journal."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.schedule import Schedule
from tests.simulation.spark import Checkpoint
from tests.unit.lanes.backend import Attempt


def damage_a_lane(checkpoint: Checkpoint, schedule: Schedule) -> str | None:
    """Damage a lane's state after the last committed batch, and return the lane; None if no lane has a state there.

    Other versions and copies of the checkpoint keep theirs.
    """
    found = [
        (place, lane)
        for place, state in sorted(checkpoint.states.items(), key=lambda item: item[0])
        for lane, stored in sorted(state.lanes.items())
        if place[1] == checkpoint.version and stored.head is not None
    ]
    if not found:
        return None
    place, lane = schedule.choose(found)
    state = checkpoint.states[place]
    lanes = {**state.lanes, lane: _damaged(state.lanes[lane], schedule)}
    checkpoint.states[place] = replace(state, lanes=lanes)
    return lane


def _damaged(stored: Attempt, schedule: Schedule) -> Attempt:
    assert stored.head is not None
    kinds = ["head", *["page", "page gone"] * bool(stored.slots), *["journal", "entry gone"] * bool(stored.journal)]
    head, slots, journal = stored.head, dict(stored.slots), list(stored.journal)
    kind = schedule.choose(kinds)
    number = schedule.choose(sorted(slots) or [0])
    if kind == "head":
        head = head[: schedule.choose((1, 9, len(head) - 5))]
    elif kind == "page":
        slots[number] = slots[number][:-1] + bytes([slots[number][-1] ^ 1])
    elif kind == "page gone":
        del slots[number]
    elif kind == "journal":
        journal[0] = journal[0][:-1]
    else:
        del journal[-1]
    schedule.note(f"damaged: {kind}")
    return replace(stored, head=head, slots=slots, journal=journal)
