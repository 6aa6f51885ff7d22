# SPDX-License-Identifier: Apache-2.0
"""Lanes are divided as Spark divides them (`tests/streaming/test_options.py` compares the hash), and a bad division is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming import run
from streaming.partitions import better_number, divided, partition_of
from validator.config import Config

CHAINS = ["westend", "polkadot", "paseo", "kusama"]


def test_lanes_are_divided_by_the_hash_of_their_names() -> None:
    assert divided(CHAINS, 2) == {1: ["kusama", "paseo", "polkadot", "westend"]}
    assert divided(CHAINS, 5) == {0: ["polkadot"], 1: ["paseo"], 3: ["kusama", "westend"]}
    assert divided([], 3) == {}
    assert {partition_of(f"chain-{at}", 7) for at in range(100)} == set(range(7))


@pytest.mark.parametrize(
    ("lanes", "partitions", "better"),
    [
        (CHAINS, 2, 5),
        (CHAINS, 4, 9),
        (CHAINS, 5, None),
        (CHAINS, 1, None),
        (CHAINS[:1], 4, None),
        (["kusama", "polkadot"], 2, 3),
        ([], 2, None),
        ([], 1, None),
        ([f"chain-{at}" for at in range(1_000)], 32, None),
    ],
)
def test_better_number_is_the_least_that_divides_evenly(lanes: list[str], partitions: int, better: int | None) -> None:
    assert better_number(lanes, partitions) == better
    if better is not None:
        even = -(-len(lanes) // partitions)
        assert max(map(len, divided(lanes, better).values())) <= even


@pytest.mark.parametrize("begun", [False, True])
def test_job_says_so_before_its_first_batch(tmp_path: Path, *, begun: bool) -> None:
    config = Config.model_validate({"job": {"directory": str(tmp_path), "state_partitions": 2}})
    if begun:
        (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
        (tmp_path / "checkpoint" / "offsets" / "0").touch()
    said: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda event, **fields: said.append({"event": event, **fields}))
    run._note_division(config, CHAINS, log)
    expected = {"event": "uneven", "state_partitions": 2, "lanes": [sorted(CHAINS)], "better": 5}
    assert json.loads(json.dumps(said)) == ([] if begun else [expected])
