# SPDX-License-Identifier: Apache-2.0
"""How full the Router's queues are agrees with its state as `validator state` shows it, and with what then happens."""

from __future__ import annotations

from typing import Any

import pytest
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import chain, definition_of, inputs_of
from validator.core.inputs import Input
from validator.core.levels import LevelChoice
from validator.core.outcomes import ChannelEventKind, Executed
from validator.protocols.router.traces import view

ALL = LevelChoice(None, 1000, 1000)


def blocks_of(settings: SimulationSettings) -> Any:
    """Yield the lane with what each block gave, just after it."""
    of = chain(settings)
    lane = definition_of(of).create()
    for item in inputs_of(of.records):
        assert isinstance(item, Input)
        lane.add(item)
        for executed, _ in lane.execute_ready():
            yield lane, executed


@pytest.fixture(scope="module")
def settings() -> SimulationSettings:
    return SimulationSettings(seed=11, blocks=60, candidates_per_block=4, session_length_blocks=6)


def test_levels_are_what_the_state_says(settings: SimulationSettings) -> None:
    seen = {"upward": 0, "downward": 0, "waiting": 0, "lag": 0}
    for lane, executed in blocks_of(settings):
        now, state = executed.receipt.block, view(lane.rules.state)
        levels = lane.rules.levels(now, ALL)
        assert [para.para_id for para in levels.paras] == state["valid_paras"]
        assert [f"{each.sender}->{each.recipient}" for each in levels.channels] == state["channel_set"]
        assert levels.left_out == 0
        for para in levels.paras:
            name = str(para.para_id)
            queue = state["ump_queues"].get(name, [])
            downward = state["dmq"].get(name, [])
            assert (para.upward_messages, para.upward_bytes) == (len(queue), sum(len(each) // 2 for each in queue))
            assert (para.upward_head.hex() if isinstance(para.upward_head, bytes) else None) == next(iter(queue), None)
            assert para.downward_messages == len(downward)
            assert para.downward_bytes == sum(len(each["msg"]) // 2 for each in downward)
            assert para.downward_oldest == (downward[0]["sent_at"] if downward else None)
            digests = state["digests"].get(name, [])
            expected = now - state["watermarks"].get(name, digests[0][0] - 1) if digests else 0
            assert para.watermark_lag == expected
            seen["upward"] += para.upward_messages
            seen["downward"] += para.downward_messages
            seen["lag"] += para.watermark_lag
        for channel in levels.channels:
            kept = state["channels"][f"{channel.sender}->{channel.recipient}"]
            contents = state["contents"].get(f"{channel.sender}->{channel.recipient}", [])
            used = (channel.messages, channel.bytes, channel.messages_max, channel.bytes_max)
            limits = ("used_places", "used_bytes", "limit_used_places", "limit_used_bytes")
            assert used == tuple(kept[name] for name in limits)
            assert channel.oldest == (contents[0]["sent_at"] if contents else None)
            assert channel.messages_sent >= channel.messages
            assert channel.bytes_sent >= channel.bytes
            seen["waiting"] += channel.messages
    assert all(seen.values()), seen


def test_bytes_sent_grow_with_the_messages(settings: SimulationSettings) -> None:
    sent: dict[tuple[int, int], int] = {}
    for lane, executed in blocks_of(settings):
        for channel in lane.rules.levels(executed.receipt.block, ALL).channels:
            before = sent.get((channel.sender, channel.recipient), 0)
            assert channel.bytes_sent >= before or channel.messages_sent == 0
            sent[channel.sender, channel.recipient] = channel.bytes_sent
    assert any(sent.values())


def test_requests_that_expire_were_announced(settings: SimulationSettings) -> None:
    expired = announced = 0
    before = None
    for lane, executed in blocks_of(settings):
        level = lane.rules.levels(executed.receipt.block, ALL).lane
        count = of_kind(executed, ChannelEventKind.REQUEST_EXPIRED)
        if count:
            assert before is not None
            # a request of this very block may expire as well: nothing could announce it
            announced += before.expiring + of_kind(executed, ChannelEventKind.REQUESTED)
            assert count <= before.expiring + of_kind(executed, ChannelEventKind.REQUESTED)
        expired += count
        before = level
    assert 0 < expired <= announced


def test_pending_candidates_are_counted(settings: SimulationSettings) -> None:
    from dataclasses import replace

    seen = 0
    for lane, executed in blocks_of(replace(settings, enactment="on-inclusion")):
        state = lane.rules.state
        level = lane.rules.levels(executed.receipt.block, ALL).lane
        assert level.pending == sum(map(len, state.pending_candidates.values()))
        oldest = [each.backed_at for queue in state.pending_candidates.values() for each in queue]
        assert level.pending_oldest == min(oldest, default=None)
        seen += level.pending
    assert seen


def of_kind(executed: Executed, kind: ChannelEventKind) -> int:
    return sum(event.event is kind for event in executed.channel_events)
