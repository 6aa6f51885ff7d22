# SPDX-License-Identifier: Apache-2.0
"""Lanes are divided as Spark divides them (`tests/streaming/test_options.py` compares the hash), and a bad division is noticed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streaming.stages import better_number, divided, note_division, partition_of

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


def test_uneven_division_is_logged() -> None:
    said: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda event, **fields: said.append({"event": event, **fields}))
    note_division(CHAINS, 5, log)
    assert said == []
    note_division(CHAINS, 2, log)
    assert said == [{"event": "uneven", "state_partitions": 2, "lanes": [sorted(CHAINS)], "better": 5}]
