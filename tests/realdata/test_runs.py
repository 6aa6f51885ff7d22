# SPDX-License-Identifier: Apache-2.0
"""Consecutive Polkadot blocks: the chain accepted every candidate in them, and so does a lane."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.realdata.convert import Records, definition, recorded_channels, seed
from tests.realdata.recorded import Json, blocks, needs_data
from tests.realdata.runs import LONG, RUNS, SHIPPED, SHORT, Followed, Run, follow
from validator.core.hashing import message_hash, mqc_link
from validator.core.outcomes import InputKind
from validator.core.types import ZERO_HASH

each_run = pytest.mark.parametrize(
    "run",
    [pytest.param(SHIPPED, id="shipped")]
    + [pytest.param(run, id=str(run.blocks.start), marks=needs_data) for run in RUNS],
)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Run], Followed]:
    made: dict[range, Followed] = {}

    def of(run: Run) -> Followed:
        if run.blocks not in made:
            lane = run.definition(tmp_path_factory.mktemp("lane"))
            made[run.blocks] = follow(lane, run.conversion().records)
        return made[run.blocks]

    return of


@each_run
def test_every_candidate_accepted_by_the_chain_is_accepted(run: Run, followed: Callable[[Run], Followed]) -> None:
    lane = followed(run)
    assert lane.rejected() == []
    candidates = lane.verdicts(InputKind.CANDIDATE)
    assert len(candidates) == run.candidates
    assert [(verdict.block, verdict.para_id) for verdict in candidates] == [
        (number, candidate["para"]) for number in run.blocks for candidate in blocks("polkadot")[number]["candidates"]
    ]
    assert len(lane.outcomes) == len(run.blocks)


@each_run
def test_included_candidates_are_enacted_and_the_rest_is_pending(run: Run, followed: Callable[[Run], Followed]) -> None:
    lane = followed(run)
    conversion = run.conversion()
    assert conversion.timed_out == 0
    included = lane.verdicts(InputKind.INCLUSION)
    recorded = [(number, event["para"]) for number in run.blocks for event in blocks("polkadot")[number]["events"]]
    assert [(verdict.block, verdict.para_id) for verdict in included] == recorded[conversion.skipped_inclusions :]
    # candidates backed before the run were included in its first block only
    assert {number for number, _ in recorded[: conversion.skipped_inclusions]} == {run.blocks.start}
    assert all(verdict.enacted for verdict in included)
    pending = lane.state.pending_candidates
    assert sum(map(len, pending.values())) == run.pending == run.candidates - len(included)
    last_blocks = {number for candidates in pending.values() for number, _ in candidates}
    assert last_blocks == {run.blocks.stop - 1}


@each_run
def test_watermarks_equal_those_of_last_included_candidates(run: Run, followed: Callable[[Run], Followed]) -> None:
    lane = followed(run)
    last: dict[int, int] = {}
    recorded = {
        (number, candidate["para"]): candidate["hrmp_watermark"]
        for number in run.blocks
        for candidate in blocks("polkadot")[number]["candidates"]
    }
    for _, record in run.conversion().records:
        for reference in record.get("included", ()):
            last[reference["para_id"]] = recorded[reference["backed_at"], reference["para_id"]]
    assert len(last) > 35
    assert lane.state.hrmp_watermarks == last


@needs_data
def test_messages_reach_the_recorded_recipients(followed: Callable[[Run], Followed]) -> None:
    lane = followed(LONG)
    queued = {
        (verdict.block, verdict.para_id): verdict.messages
        for verdict in lane.verdicts(InputKind.INCLUSION)
        if verdict.messages
    }
    # backed in 17844555 and 17844565, and linked with the number of the inclusion block
    assert [(place, message.recipient) for place, (message,) in queued.items()] == [
        ((17_844_556, 2004), 2034),
        ((17_844_566, 2000), 2012),
    ]
    for (block, sender), (message,) in queued.items():
        sent = next(each for each in blocks("polkadot")[block - 1]["candidates"] if each["para"] == sender)
        data = bytes.fromhex(sent["horizontal_messages"][0]["data"])
        assert message.mqc_head == mqc_link(ZERO_HASH, block, message_hash(data))
    # both recipients moved their watermark to the block of the message, which is not their relay parent: this needs a digest entry
    assert lane.state.hrmp_watermarks[2034] > 17_844_556
    for block, recipient, watermark in ((17_844_558, 2034, 17_844_556), (17_844_568, 2012, 17_844_566)):
        landed = next(each for each in blocks("polkadot")[block]["candidates"] if each["para"] == recipient)
        assert (landed["hrmp_watermark"], landed["relay_parent_number"]) == (watermark, block - 1)
    assert lane.state.hrmp_channel_contents == {}
    assert lane.state.hrmp_channel_digests == {}
    assert [candidate.horizontal_messages[0].recipient for _, candidate in lane.state.pending_candidates[1000]] == [
        2004
    ]
    assert lane.state.downward_message_queues == {}


# --- corrupted runs: the tests above can fail ---


def body(records: Records, topic: str, block: int, para: int | None = None) -> dict[str, Any]:
    return next(
        record
        for kind, record in records
        if kind == topic and record["block"] == block and (para is None or record["para_id"] == para)
    )


def watermark(block: int, para: int, value: int) -> Callable[[Records, Json], None]:
    def change(records: Records, state: Json) -> None:
        body(records, "candidates", block, para)["hrmp_watermark"] = value

    return change


def message_of(block: int, para: int, size: int) -> Callable[[Records, Json], None]:
    def change(records: Records, state: Json) -> None:
        body(records, "candidates", block, para)["horizontal_messages"][0]["data"] = "00" * size

    return change


def processes_nothing(records: Records, state: Json) -> None:
    body(records, "candidates", 17_844_553, 2000)["processed_downward_messages"] = 0


def no_waiting_message(records: Records, state: Json) -> None:
    del state["state"]["dmq"]


def no_channel(records: Records, state: Json) -> None:
    channels = recorded_channels("polkadot")
    del channels[2000, 2012]
    state.update(seed("polkadot", LONG.blocks.start, channels=channels, dmq=state["state"]["dmq"]))


def full_channel(records: Records, state: Json) -> None:
    state["state"]["channels"]["2000->2012"]["limit_used_places"] = 0


def same_recipient_twice(records: Records, state: Json) -> None:
    messages = body(records, "candidates", 17_844_565, 2000)["horizontal_messages"]
    messages.append(messages[0])


def not_included(records: Records, state: Json) -> None:
    included = body(records, "blocks", 17_844_556)["included"]
    included[:] = [reference for reference in included if reference["para_id"] != 2004]


def too_large_upward(records: Records, state: Json) -> None:
    body(records, "candidates", 17_844_565, 2000)["upward_messages"] = ["00" * 65_532]


WATERMARK, DOWNWARD, OUTBOUND = "HrmpWatermark/", "ProcessedDownwardMessages/", "OutboundHrmp/"


@needs_data
@pytest.mark.parametrize(
    ("change", "rejected"),
    [
        (watermark(17_844_558, 2034, 17_844_555), (17_844_558, 2034, WATERMARK + "AdvancementRule")),
        (watermark(17_844_553, 2000, 17_844_551), (17_844_553, 2000, WATERMARK + "LandsOnBlockWithNoMessages")),
        (watermark(17_844_558, 2034, 17_844_558), (17_844_558, 2034, WATERMARK + "AheadRelayParent")),
        (not_included, (17_844_558, 2034, WATERMARK + "LandsOnBlockWithNoMessages")),
        (no_waiting_message, (17_844_553, 2000, DOWNWARD + "Underflow")),
        (processes_nothing, (17_844_553, 2000, DOWNWARD + "AdvancementRule")),
        (no_channel, (17_844_565, 2000, OUTBOUND + "NoSuchChannel")),
        (message_of(17_844_555, 2004, 102_401), (17_844_555, 2004, OUTBOUND + "MaxMessageSizeExceeded")),
        (full_channel, (17_844_565, 2000, OUTBOUND + "CapacityExceeded")),
        (same_recipient_twice, (17_844_565, 2000, OUTBOUND + "NotSorted")),
        (too_large_upward, (17_844_565, 2000, "UpwardMessages/MessageSize")),
    ],
)
def test_corrupted_run_is_rejected_at_the_corruption(
    change: Callable[[Records, Json], None], rejected: tuple[int, int, str], tmp_path: Path
) -> None:
    records, state = deepcopy(LONG.conversion().records), LONG.state()
    change(records, state)
    # consequences (inclusion of a candidate that is not pending, a missing message later) would follow it
    records = [(topic, record) for topic, record in records if record["block"] <= rejected[0]]
    assert follow(definition("polkadot", state, tmp_path), records).rejected()[0] == ("candidate", *rejected)


@needs_data
def test_message_at_the_limit_is_accepted(tmp_path: Path) -> None:
    records, state = deepcopy(LONG.conversion().records), LONG.state()
    message_of(17_844_555, 2004, 102_400)(records, state)
    assert follow(definition("polkadot", state, tmp_path), records).rejected() == []


@needs_data
def test_second_run_without_its_unrecorded_message_is_rejected(tmp_path: Path) -> None:
    unsent = Run(SHORT.blocks, SHORT.candidates, SHORT.pending)
    lane = follow(unsent.definition(tmp_path), unsent.conversion().records)
    assert lane.rejected()[0] == ("candidate", 15_950_024, 2004, DOWNWARD + "Underflow")
    # the message cannot have been there from the start: the para's earlier candidates did not process it
    early = Run(SHORT.blocks, SHORT.candidates, SHORT.pending, seeded_downward=(2004, SHORT.blocks.start - 1))
    lane = follow(early.definition(tmp_path), early.conversion().records)
    assert lane.rejected()[0] == ("candidate", 15_950_018, 2004, DOWNWARD + "AdvancementRule")
