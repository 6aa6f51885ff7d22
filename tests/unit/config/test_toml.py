# SPDX-License-Identifier: Apache-2.0
"""Written TOML reads back as the same table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from validator_simulators import settings_of_profile
from validator_simulators.demo.command import configuration
from validator_simulators.router.traffic import RouterSimulation

from validator.config import load_config
from validator.config.toml import to_toml


def test_none_is_left_out() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": 1})) == {"b": 1}


@pytest.mark.parametrize("enactment", ["immediate", "on-inclusion"])
def test_configuration_of_simulated_chain_loads(tmp_path: Path, enactment: str) -> None:
    chain = RouterSimulation(settings_of_profile("demo", seed=3, blocks=1, enactment=enactment)).chain()
    path = tmp_path / "validator.toml"
    path.write_text(to_toml(configuration(chain, tmp_path)), encoding="utf-8")
    config = load_config(path).chains["polkadot"]
    assert {para.para_id: para.balance for para in config.core_paras()} == {
        p["para_id"]: p["balance"] for p in chain["genesis_paras"]
    }
    assert config.enactment == enactment
    assert config.limit_tables()["host_configuration"]["hrmp_sender_deposit"] == chain["config"]["hrmp_sender_deposit"]
    assert {payload.hex(): weight for payload, weight in config.core_ump_weights().items()} == chain["ump_weights"]
