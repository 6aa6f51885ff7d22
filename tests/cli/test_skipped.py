# SPDX-License-Identifier: Apache-2.0
"""A lane that skipped a record on an operator's order: commands that execute its inputs again leave the record out, too."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, invoke, lines
from tests.cli.stored_job import Job
from tests.sending import send
from validator.checkpoint.markers import read_markers
from validator.codec.encode import encode_dead_letter
from validator.core.inputs import DeadLetter, DeadReason
from validator.core.types import BlockNumber
from validator.history.emitted import compare_lanes
from validator.lanes.configured import lane_definitions
from validator.lanes.kept_start import NOTHING
from validator.lanes.marker import Marker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLOCKS = 30


@dataclass
class Skipping:
    """A job whose lane skipped the first of two records for one place, and took the other one."""

    job: Job
    at: int
    records: list[tuple[str, dict[str, Any]]]


@pytest.fixture
def skipping(job: Callable[..., Job]) -> Skipping:
    followed = job(blocks=BLOCKS)
    records = followed.chain.records
    accepted = {
        (each["block"], each["index"]) for each in followed.chain.expected if each["kind"] == "candidate" and each["ok"]
    }
    at = next(
        at
        for at, (kind, record) in enumerate(records)
        if kind == "candidates" and record["block"] > 5 and (record["block"], record["index"]) in accepted
    )
    kind, wrong = deepcopy(records[at])
    wrong["hrmp_watermark"] = 1
    sent = [*records[:at], (kind, wrong), *records[at:]]
    followed.follow(sent, skips=[at])
    return Skipping(followed, at, sent)


def test_rebuild_compares_without_skipped_records(skipping: Skipping) -> None:
    config = skipping.job.chain.config
    marker = Marker(BlockNumber(BLOCKS), skipping.job.consumed)
    send(config.kafka, config.topics.prefix, [marker.encode(LANE)[:3]])
    compared: list[tuple[str, BlockNumber]] = []
    emitted = {lane: marker.block for lane, marker in read_markers(config.kafka, config.topics.prefix).items()}
    definitions = lane_definitions(config)
    compare_lanes(config, definitions, emitted, NOTHING, {}, lambda lane, block: compared.append((lane, block)))
    assert compared == [(LANE, BLOCKS)]


def test_audit_executes_without_skipped_records(skipping: Skipping) -> None:
    result = invoke("audit", f"--lane={LANE}", skipping.job.chain.option(), "--json")
    assert result.exit_code == 0, result.output
    *_, summary = lines(result.stdout)
    assert (summary["ok"], summary["checks"]["verdicts"], summary["checks"]["stored pages"]) == (True, BLOCKS, 1)


def test_state_equals_the_topics_without_skipped_records(skipping: Skipping) -> None:
    result = skipping.job.verify()
    assert result.exit_code == 0, result.output
    printed = json.loads(skipping.job.verify("--json").stdout)
    assert (printed["ok"], printed["records"]) == (True, len(skipping.records))


def test_record_that_was_skipped_after_the_checkpoint_still_waits_in_it(job: Callable[..., Job]) -> None:
    """The job continues while its checkpoint is read."""
    followed = job()
    followed.follow(followed.chain.records[:-1])
    waiting = [item for _, block in followed.worker().lane.waiting() for item in block.places.values()]
    letter = DeadLetter(LANE, DeadReason.SKIPPED, "skipped", waiting[0].source, waiting[0].raw)
    followed.emit([encode_dead_letter(letter)])
    result = followed.verify()
    assert result.exit_code == 0, result.output


def test_what_if_replays_without_skipped_records(skipping: Skipping) -> None:
    path = skipping.job.chain.config_path
    result = invoke("what-if", f"--lane={LANE}", f"--own={path}", f"--config={path}")
    assert result.exit_code == 0, result.output
    assert f"{BLOCKS} blocks, {len(skipping.records) - 1} records, 1 dead letters left out" in result.stdout


def test_export_leaves_skipped_records_out_and_says_so(skipping: Skipping, tmp_path: Path) -> None:
    option = skipping.job.chain.option()
    result = invoke("export", f"--lane={LANE}", f"--out={tmp_path / 'one'}", option)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[-1] == "left out, as an operator ordered the lane to continue without them: 1"
    document = json.loads(invoke("export", f"--lane={LANE}", f"--out={tmp_path / 'two'}", option, "--json").stdout)
    assert (document["skipped"], document["unreadable"]) == (1, 0)
    written = sum(document[topic] for topic in ("blocks", "candidates", "channel-requests", "downward-messages"))
    assert written == len(skipping.records) - 1
    again = invoke("audit", f"--lane={LANE}", option, f"--records={tmp_path / 'one'}")
    assert again.exit_code == 0, again.output
