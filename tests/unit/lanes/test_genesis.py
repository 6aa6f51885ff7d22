# SPDX-License-Identifier: Apache-2.0
"""Pages made from a state file are kept, and made again if anything about them has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import Chain, chain, config_of, definition_of
from validator.core.scale import DecodeError
from validator.errors import UserError
from validator.lanes import configured
from validator.lanes.configured import lane_definition, lane_definitions
from validator.lanes.definition import Genesis, genesis_path, keep_genesis, kept_genesis, read_genesis

GENESIS = 7, (b"one", b"", b"three" * 100)


class Maker:
    """Makes a genesis and counts the calls."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Genesis:
        self.made += 1
        return GENESIS


def test_genesis_is_made_once_and_replaces_older_one(tmp_path: Path) -> None:
    maker, folder = Maker(), tmp_path / "lanes"
    path = genesis_path(folder, "polkadot", bytes(32), 1)
    others = [genesis_path(folder, lane, b"o" * 32, 1) for lane in ("polkadot", "polkadot-2")]
    for other in others:
        keep_genesis(other, GENESIS)
    for _ in range(3):
        assert kept_genesis(path, maker) == GENESIS
    assert maker.made == 1
    assert sorted(folder.iterdir()) == sorted([path, others[1]])


def test_new_page_encoding_makes_new_genesis(tmp_path: Path) -> None:
    before, after = (genesis_path(tmp_path, "polkadot", bytes(32), version) for version in (1, 2))
    keep_genesis(before, (7, (b"older pages",)))
    assert kept_genesis(after, Maker()) == GENESIS
    assert list(tmp_path.iterdir()) == [after], "the pages of the older encoding are gone"


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_genesis_path_depends_on_page_encoding_of_protocol(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = definition_of(chain(SimulationSettings(seed=5, blocks=1), protocol))
    encoding_version = definition.protocol.encoding_version
    digest = definition.runtime_digest
    assert definition.genesis_path(tmp_path) == genesis_path(tmp_path, definition.name, digest, encoding_version)
    newer = replace(definition.protocol, encoding_version=encoding_version + 1)
    monkeypatch.setattr(type(definition), "protocol", newer)
    assert definition.genesis_path(tmp_path) == genesis_path(tmp_path, definition.name, digest, encoding_version + 1)


@pytest.mark.parametrize("cut", [0, 1, -1])
def test_damaged_genesis_is_made_again(cut: int, tmp_path: Path) -> None:
    maker, path = Maker(), genesis_path(tmp_path, "polkadot", bytes(32), 1)
    keep_genesis(path, GENESIS)
    data = path.read_bytes()
    for damaged in (data[:cut], data[:50] + b"x" + data[51:]):
        path.write_bytes(damaged)
        with pytest.raises(DecodeError, match="damaged"):
            read_genesis(path)
        assert kept_genesis(path, maker) == read_genesis(path) == GENESIS
    assert maker.made == 2


def test_job_reads_state_file_once_per_state_and_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = chain(SimulationSettings(seed=5, blocks=1, first_block=1000))
    state = tmp_path / "state.json"
    reads: list[Path] = []
    read = configured.read_state_file
    monkeypatch.setattr(configured, "read_state_file", lambda path, *more: (reads.append(path), read(path, *more))[1])

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
