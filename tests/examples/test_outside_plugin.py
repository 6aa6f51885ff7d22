# SPDX-License-Identifier: Apache-2.0
"""A plugin from outside the workspace: its wheel is built and installed into a folder, and a lane uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin-beacon"

# What the job does with a lane, without Spark: read validator.toml, take records, emit records.
PROGRAM = """
import json, sys
from pathlib import Path
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input, to_json
from validator.topics import INPUT_TOPICS
from validator.config import load_config
from validator.core.inputs import Source
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor

definition = lane_definition(load_config(Path("validator.toml")), "polkadot")
definition.check()
worker = LaneProcessor.create(definition)
codec = definition.codec
inputs = []
for offset, (topic, record) in enumerate(json.load(open("records.json"))):
    kind = INPUT_TOPICS[topic]
    inputs.append(decode_record(codec, kind, encode_input(codec, kind, record, "router"), Source(topic, 0, offset))[1])
for _, records in worker.process(inputs):
    for topic, _, value, *_ in records:
        if topic in ("dispatches", "verdicts"):
            print(json.dumps([topic, to_json(topic, value)]))
again = LaneProcessor.restore(definition, worker.snapshot())
assert again.lane.rules.state_root() == worker.lane.rules.state_root()
"""

CONFIG = """
[chains.polkadot]
host_configuration.preset = "polkadot-2023"
genesis_paras = [{ para_id = 2000 }, { para_id = 2001 }]

[[chains.polkadot.handlers]]
name = "beacon"
config = { listener = 2001 }
"""


def block(number: int, candidates: int) -> dict[str, Any]:
    nothing = {"requests": 0, "downward": 0, "included": [], "timed_out": [], "session_change": None}
    parents = {"parent_number": None, "block_hash": None}
    return {"lane": "polkadot", "block": number, **parents, "candidates": candidates, **nothing}


def candidate(number: int, upward: list[str]) -> dict[str, Any]:
    return {
        "lane": "polkadot",
        "block": number,
        "index": 0,
        "para_id": 2000,
        "relay_parent_number": None,
        "hrmp_watermark": number - 1,
        "upward_messages": upward,
        "processed_downward_messages": 0,
        "horizontal_messages": [],
        "candidate_hash": None,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip has installed the plugin's wheel and nothing else."""
    folder = tmp_path_factory.mktemp("outside")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=PLUGIN, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == "acme_beacon-2.1.0-py3-none-any.whl"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--no-deps", "--no-index", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def run(site: Path | None, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = [str(ROOT)] if site is None else [str(site), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_plugin_is_not_part_of_the_workspace() -> None:
    assert not (ROOT / "plugins" / "beacon").exists()
    assert "beacon" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_lane_uses_plugin_and_dispatches_name_it(site: Path, tmp_path: Path) -> None:
    records = [
        ("blocks", block(1, 1)),
        ("candidates", candidate(1, ["6265" + b"hello".hex(), "6265" + "00" * 33, "00"])),
    ]
    (tmp_path / "validator.toml").write_text(CONFIG)
    (tmp_path / "records.json").write_text(json.dumps(records))
    done = run(site, tmp_path, "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    (verdict,) = [record for topic, record in printed if topic == "verdicts"]
    dispatches = [record for topic, record in printed if topic == "dispatches"]
    assert verdict["ok"]
    assert [(each["outcome"], each["handler"], each["kind"]) for each in dispatches] == [
        ("ok", "beacon@2.1.0", "beacon"),
        ("failed", "beacon@2.1.0", "beacon"),
        ("no_handler", None, None),
    ]
    assert dispatches[0]["events"] == [{"name": "alive", "data": "01000000"}]
    assert dispatches[1]["failure"] == "OversizePayload: expected at most 34 bytes, found 35"
    assert {each["runtime_digest"] for each in dispatches} == {verdict["runtime_digest"]}


def test_chain_without_the_plugin_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "validator.toml").write_text(CONFIG)
    done = run(None, tmp_path, "-c", PROGRAM)
    assert done.returncode != 0
    assert (
        "UserError: chain polkadot: beacon: no installed plugin of group validator.handlers has this name"
        in (done.stderr.splitlines()[-1])
    )


def test_own_tests_of_installed_plugin_pass(site: Path) -> None:
    done = run(site, PLUGIN, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PLUGIN), "tests")
    assert done.returncode == 0, done.stdout + done.stderr
