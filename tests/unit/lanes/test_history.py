# SPDX-License-Identifier: Apache-2.0
"""A chain that lives through all profiles: the same bytes for any batch borders, and for restarts that fall on a switch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from validator_simulators import SimulationSettings
from validator_simulators.settings import PROFILES

from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import Batch, rebuilt, run
from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of
from validator.codec.encode import OutputRecord
from validator.codec.json_form import to_json
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import LaneCache
from validator.protocols.router.features import table

SETTINGS = SimulationSettings(**{**PROFILES["history"], "seed": 5})


def history() -> Chain:
    """Return the chain, which takes seconds to simulate the first time."""
    return chain(SETTINGS)


def switches() -> list[int]:
    """Return the blocks in which the rules change."""
    return [entry["from_block"] for entry in history().table["rules"]]


def outputs(batches: Sequence[Batch], *, restart: bool) -> tuple[list[OutputRecord], list[bytes]]:
    """Return what a lane emits besides its status, and its state at the end; restarted, each batch has a new worker."""
    store, cache, emitted = Store(), LaneCache(), list[OutputRecord]()
    definition = definition_of(history())
    for batch in batches:
        records = run(definition, store, LaneCache() if restart else cache, batch)
        emitted += [record for record in records if record.topic != "lanes"]
    return emitted, rebuilt(definition, store)


def uninterrupted() -> tuple[list[OutputRecord], list[bytes]]:
    processor = LaneProcessor.create(definition_of(history()))
    emitted = [record for _, records in processor.process(inputs_of(history().records)) for record in records]
    return emitted, processor.snapshot()


def split(borders: Sequence[int]) -> list[Batch]:
    items = inputs_of(history().records)
    return [
        items[start:end] for start, end in pairwise([0, *sorted(dict.fromkeys(borders)), len(items)]) if start < end
    ]


def test_verdicts_match_the_model() -> None:
    emitted, _ = uninterrupted()
    verdicts = [to_json("verdicts", record.value) for record in emitted if record.topic == "verdicts"]
    assert len(verdicts) == len(history().expected)
    for verdict, expected in zip(verdicts, history().expected, strict=True):
        for key in ("block", "kind", "index", "ok"):
            assert verdict[key] == expected[key], (verdict, expected)
        assert expected["ok"] or verdict["error"]["kind"] == expected["error"]["kind"], (verdict, expected)


def test_history_holds_every_profile() -> None:
    assert [entry["profile"] for entry in history().table["rules"]] == [*table.PROFILES][1:]


@pytest.mark.parametrize("restart", [False, True], ids=["one worker", "a worker for each batch"])
def test_borders_on_each_switch_change_no_byte(*, restart: bool) -> None:
    records = history().records
    first = [next(at for at, record in enumerate(records) if record.block == switch) for switch in switches()]
    around = [position + step for position in first for step in (-1, 0, 1)]
    assert outputs(split(around), restart=restart) == uninterrupted()


@pytest.mark.parametrize("seed", range(3))
def test_random_borders_change_no_byte(seed: int) -> None:
    draws = Random(seed)
    borders = draws.sample(range(1, len(history().records)), 30)
    assert outputs(split(borders), restart=bool(seed % 2)) == uninterrupted()


def test_runtime_digest_changes_at_each_switch_and_only_there() -> None:
    emitted, _ = uninterrupted()
    digests: dict[int, str] = {}
    for record in emitted:
        if record.topic == "receipts":
            receipt = to_json("receipts", record.value)
            digests[receipt["block"]] = receipt["runtime_digest"]
    changed = [later for earlier, later in pairwise(sorted(digests)) if digests[earlier] != digests[later]]
    assert changed == switches()
    assert max(digests) > switches()[-1]
