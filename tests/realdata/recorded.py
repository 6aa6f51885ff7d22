# SPDX-License-Identifier: Apache-2.0
"""Traffic recorded on live relay chains, found next to the repository; tests that need all of it are skipped if it is absent.

`shipped.jsonl.gz` is always there: the facts of six consecutive Polkadot blocks, from 17844552 on, in the same form, without what no test
reads. Their source is github.com/sodazone/ocelloids-services (test fixtures at fdf6b47b92 and earlier), under Apache-2.0.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Json: TypeAlias = dict[str, Any]

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EVERYTHING = DATA / "real_events.jsonl"
SHIPPED = Path(__file__).with_name("shipped.jsonl.gz")

needs_data = pytest.mark.skipif(
    not EVERYTHING.exists(),
    reason="no recorded chain data: ../shared/data/real_events.jsonl is absent",
)


@cache
def events() -> dict[str, list[Json]]:
    """Return the recorded facts by kind; only the shipped ones if the others are absent."""
    by_kind: dict[str, list[Json]] = defaultdict(list)
    for event in lines(EVERYTHING if EVERYTHING.exists() else SHIPPED):
        by_kind[event["kind"]].append(event)
    return dict(by_kind)


def lines(path: Path) -> list[Json]:
    """Return the facts of a file."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


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
