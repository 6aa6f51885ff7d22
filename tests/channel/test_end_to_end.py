# SPDX-License-Identifier: Apache-2.0
"""The example in `examples/channel`: keys, registry, gateway, broker, job and peers, from records to verdicts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.channel.gateways import INJECT

DEMO = Path(__file__).resolve().parents[2] / "examples" / "channel" / "demo.py"


def run_demo(folder: Path, *options: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, str(DEMO), "--json", f"--directory={folder}", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    assert summary["problems"] == []
    assert re.search(r" s  [0-9]+ blocks: [0-9]+ records sent, ", done.stderr)  # progress, although it is no terminal
    return summary  # type: ignore[no-any-return]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_gw03_each_candidate_has_one_verdict_although_the_gateway_died_before_acknowledging(tmp_path: Path) -> None:
    """Every input of a simulated relay chain goes over Channel, and every verdict is as the model expects."""
    inject = {"PYTHONPATH": str(INJECT), "CHANNEL_DIES": "before-ack", "CHANNEL_DIES_AFTER": "150"}
    summary = run_demo(tmp_path, "--blocks=24", "--seed=3", **inject)
    assert (summary["blocks"], summary["gateway_restarts"]) == (24, 1)
    peers = summary["peers"]
    assert set(peers) > {"relay"}
    assert len(peers) == 4
    for name, peer in peers.items():
        assert peer["acknowledged"] == peer["sent"], name
        assert peer["verdicts"] == peer["expected_verdicts"] > 0, name
        assert peer["twice"] == peer["foreign"] == peer["refused"] == 0, name
        assert peer["wire_bytes_sent"] > 0, name
        assert peer["connections"] >= 2, name
    assert sum(peer["resubmitted"] for peer in peers.values()) >= 1
    assert peers["relay"]["rejected"] > 0
