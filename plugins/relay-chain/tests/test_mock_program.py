# SPDX-License-Identifier: Apache-2.0
"""The mock node as a program: it serves a folder until a signal, and refuses wrong arguments in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from relay_recordings import client_of


def program(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "validator_simulators.relay_chain", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def one_block(folder: Path) -> None:
    hash_ = f"0x{10:064x}"
    header = {"parentHash": f"0x{9:064x}", "number": "0xa", "stateRoot": "0x00"}
    line = {
        "number": 10, "specVersion": 9430, "chain_getBlockHash": hash_, "chain_getHeader": header,
        "chain_getBlock": {"block": {"header": header, "extrinsics": ["0x0405"]}}, "state_getStorage": {},
    }  # fmt: skip
    (folder / "blocks.jsonl").write_text(json.dumps(line) + "\n")


def test_program_serves_until_a_signal(tmp_path: Path) -> None:
    one_block(tmp_path)
    with program(tmp_path, "--port", "0", "--fault", "null:chain_getHeader") as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        assert said.endswith("serves blocks 10 to 10\n"), running.stderr and running.stderr.read()
        with client_of(said.split()[0]) as client:
            assert client.call("chain_getHeader", f"0x{10:064x}") is None
            assert client.call("chain_getHeader", f"0x{10:064x}")["number"] == "0xa"
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 0


@pytest.mark.parametrize("arguments", [["--fault", "no"], ["--head", "11"], ["--file", "no.jsonl"]])
def test_program_refuses_wrong_arguments_with_one_line(tmp_path: Path, arguments: list[str]) -> None:
    one_block(tmp_path)
    with program(tmp_path, *arguments) as running:
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said.count("\n")) == (2, 1), said
