# SPDX-License-Identifier: Apache-2.0
"""Traffic recorded on live relay chains, found next to the repository; tests that need it are skipped if it is absent."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Json: TypeAlias = dict[str, Any]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

needs_data = pytest.mark.skipif(
    not (DATA / "real_events.jsonl").exists(),
    reason="no recorded chain data: ../shared/data/real_events.jsonl is absent",
)


@cache
def events() -> dict[str, list[Json]]:
    """Return the recorded facts by kind."""
    by_kind: dict[str, list[Json]] = defaultdict(list)
    with (DATA / "real_events.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            by_kind[event["kind"]].append(event)
    return dict(by_kind)


@cache
def blocks(chain: str) -> dict[int, Json]:
    """Return a chain's recorded blocks by number, ascending, each with its candidates in order."""
    found = {
        event["number"]: event | {"candidates": []} for event in events()["relay_block"] if event["chain"] == chain
    }
    for candidate in events()["candidate"]:
        if candidate["chain"] == chain:
            found[candidate["relay_block"]]["candidates"].append(candidate)
    for block in found.values():
        assert len(block["candidates"]) == block["n_candidates"]
    return dict(sorted(found.items()))


def runs(chain: str) -> list[range]:
    """Return the longest runs of consecutive recorded blocks."""
    found: list[range] = []
    for number in blocks(chain):
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


@cache
def links() -> list[Json]:
    """Return channels whose head was recorded before and after a message."""
    loaded: list[Json] = json.loads((DATA / "mqc_links.json").read_text(encoding="utf-8"))["links"]
    return loaded


def topology(chain: str) -> list[dict[str, str]]:
    """Return the rows of a chain's table of channels."""
    with (DATA / f"topology_{chain}.csv").open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))
