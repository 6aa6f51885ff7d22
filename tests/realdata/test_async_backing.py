# SPDX-License-Identifier: Apache-2.0
"""Recorded blocks under async backing: the rules of 2025 accept what those of router.txt refuse (docs/real-data.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.realdata.convert import convert, definition, seed
from tests.realdata.raw import FOLDER, raw_blocks
from tests.realdata.recorded import needs_data, runs
from tests.realdata.runs import Followed, follow
from tests.realdata.test_every_block import ASYNC_BACKING
from validator.core.outcomes import InputKind

FILE = "rebuilt/23075458-23075466.jsonl.gz"

pytestmark = [
    needs_data,
    pytest.mark.skipif(not (FOLDER / FILE).exists(), reason=f"no raw blocks: {FOLDER / FILE} is absent"),
]

UNRECORDED_DOWNWARD = {23_075_459: 1000}
"""A message that was not recorded but processed by a candidate of the following block: para by block."""


def followed(tmp_path: Path, profile: str, downward: dict[int, int] | None = None) -> Followed:
    blocks = raw_blocks(FILE)
    state = seed("polkadot", min(blocks))
    paras = {candidate["para"] for block in blocks.values() for candidate in block["candidates"]}
    state["state"]["valid_paras"] = sorted(paras.union(state["state"]["valid_paras"]))
    records = convert("polkadot", blocks, downward, blocks).records
    return follow(definition("polkadot", state, tmp_path, profile=profile), records)


def refused(run: Followed) -> list[tuple[int, int, str]]:
    return [(block, para, error) for kind, block, para, error in run.rejected() if kind == "candidate"]


def test_rules_of_2025_accept_the_whole_run(tmp_path: Path) -> None:
    run = followed(tmp_path, "router/2025-07", UNRECORDED_DOWNWARD)
    verdicts = run.verdicts(InputKind.CANDIDATE)
    assert (len(verdicts), refused(run)) == (222, [])


def test_only_the_unrecorded_message_is_missing(tmp_path: Path) -> None:
    run = followed(tmp_path, "router/2025-07")
    assert refused(run) == [(23_075_460, 1000, "ProcessedDownwardMessages/Underflow")]


@pytest.mark.parametrize(
    ("profile", "error"),
    [("router/seed", "HrmpWatermark/AdvancementRule"), ("router/2023-04", "HrmpWatermark/AdvancementRule")],
)
def test_strict_watermark_refuses_those_that_repeat(tmp_path: Path, profile: str, error: str) -> None:
    run = followed(tmp_path, profile, UNRECORDED_DOWNWARD)
    assert refused(run) == [(23_075_461, para, error) for para in (2043, 2046, 3338)]


def test_rules_of_2025_accept_every_other_block_after_async_backing(tmp_path: Path) -> None:
    count = 0
    for run in runs("polkadot"):
        if run.start >= ASYNC_BACKING:
            records = convert("polkadot", run).records
            lane = definition("polkadot", seed("polkadot", run.start), tmp_path, profile="router/2025-07")
            outcome = follow(lane, records)
            assert refused(outcome) == []
            count += len(outcome.verdicts(InputKind.CANDIDATE))
    assert count == 445
