# SPDX-License-Identifier: Apache-2.0
"""The pages that a state file was made into are kept, and made again where anything about them has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lanes.chains import Chain, chain, config_of
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.lanes import configured
from validator.lanes.configured import lane_definition, lane_definitions
from validator.lanes.genesis import encode_genesis, kept_genesis
from validator.simulate.settings import SimulationSettings

KEY = b"k" * 32
PAGES = [b"one", b"", b"three" * 100]


class Maker:
    """Makes pages, and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> tuple[BlockNumber, list[bytes]]:
        self.made += 1
        return 7, PAGES


def test_pages_are_made_once(tmp_path: Path) -> None:
    maker, path = Maker(), tmp_path / "lanes" / "polkadot.genesis"
    for _ in range(3):
        assert kept_genesis(path, KEY, maker) == (7, tuple(PAGES))
    assert maker.made == 1
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        encode_genesis(b"o" * 32, 7, PAGES),
        encode_genesis(KEY, 7, PAGES)[:-1],
        encode_genesis(KEY, 7, PAGES)[:200] + b"x" + encode_genesis(KEY, 7, PAGES)[201:],
        b"\x02" + encode_genesis(KEY, 7, PAGES)[1:],
    ],
    ids=["empty", "cut after its version", "of something else", "cut at its end", "damaged", "of another version"],
)
def test_pages_that_are_not_what_was_asked_for_are_made_again(data: bytes, tmp_path: Path) -> None:
    maker, path = Maker(), tmp_path / "polkadot.genesis"
    path.write_bytes(data)
    assert kept_genesis(path, KEY, maker) == (7, tuple(PAGES))
    assert kept_genesis(path, KEY, maker) == (7, tuple(PAGES))
    assert maker.made == 1


def test_the_job_reads_a_state_file_once_per_state_and_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = chain(SimulationSettings(seed=5, blocks=1, first_block=1000))
    state = tmp_path / "state.json"
    reads: list[Path] = []
    read = configured.read_state_file
    monkeypatch.setattr(configured, "read_state_file", lambda path, given: (reads.append(path), read(path, given))[1])

    def load(**changed: Any) -> None:
        kept = {key: value for key, value in of.table.items() if key != "genesis_paras"}
        table = {**kept, "state": str(state), **changed}
        config = config_of(Chain(of.lane, table, (), ()), job={"directory": str(tmp_path / "job")})
        definition = lane_definitions(config)[of.lane]
        before = len(reads)
        assert definition == lane_definition(config, of.lane)
        del reads[before:]

    state.write_text(json.dumps({"valid_paras": [2000]}))
    load()
    load()
    assert len(reads) == 1
    state.write_text(json.dumps({"valid_paras": [2000, 2001]}))
    load()
    load()
    assert len(reads) == 2
    load(first_block=1001)
    assert len(reads) == 3
    state.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        load()
