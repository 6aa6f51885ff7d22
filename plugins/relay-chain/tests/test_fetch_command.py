# SPDX-License-Identifier: Apache-2.0
"""`validator fetch`: files, what it says, and one line for each mistake."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relay_world import LAST
from typer.testing import CliRunner
from validator_relay_chain.archive import ranges_of
from validator_relay_chain.pool import NodePool
from validator_simulators.relay_chain import Fault, FaultKind, MockNode

from validator.cli.main import app

BEGIN = 102


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stderr.strip()


@pytest.fixture
def lane(node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a lane that is prepared, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    code, text = run("follow", "--prepare", "--rpc", node.url, "--from-block", str(BEGIN))
    assert code == 0, text
    return tmp_path


@pytest.mark.parametrize("how", [(), ("--processes", "2"), ("--spark", "local[2]")], ids=["one", "processes", "spark"])
def test_files_are_written_once_and_need_no_node_afterwards(
    how: tuple[str, ...], node: MockNode, lane: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = run("fetch", *how)
    assert code == 0, text
    folder = Path("polkadot/blocks")
    assert [tuple(each) for each in ranges_of(folder)] == [(BEGIN, LAST)]
    assert f"{LAST - BEGIN + 1} blocks fetched in " in text
    line = rf"polkadot/blocks: blocks {BEGIN} to {LAST}, 0\.\d MB; next: validator follow --lane polkadot --to-block {LAST}, without a node"
    assert re.search(line, text), text

    def asked(*_: object, **__: object) -> None:
        raise AssertionError("a node was asked")

    monkeypatch.setattr(NodePool, "use", asked)
    assert run("fetch", "--to-block", str(LAST))[0] == 0


def test_mistakes_are_one_line(node: MockNode, lane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, line in (
        (("--lane", "kusama"), "--lane: expected one with [transports.relay-chain.chains.kusama] in validator.toml, found polkadot"),
        (("--to-block", "5"), f"--to-block: expected a block from {BEGIN} on, with which the lane begins, found 5"),
        (("--to-block", "999"), f"--to-block: expected a finalised block, of which the last is {LAST}, found 999"),
        (("--config", "other.toml"), "other.toml: "),
    ):  # fmt: skip
        code, text = run("fetch", *arguments)
        assert (code, text.startswith(f"validator: {line}"), "Traceback" in text) == (2, True, False), text
    with Path("polkadot/blocks/fetch.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run("fetch") == (2, "validator: polkadot/blocks: another `validator fetch` is writing to it")
    node.order(Fault(FaultKind.PRUNED, "state_queryStorageAt", count=None))
    code, text = run("fetch")
    assert code == 2
    assert f"validator: blocks {BEGIN} to {LAST}: " in text
    assert "an archive node is needed" in text


def test_it_can_be_stopped_and_killed_and_leaves_no_process(node: MockNode, lane: Path) -> None:
    node.order(Fault(FaultKind.DELAY, "chain_getBlock", count=None, value=0.5))
    program = (sys.executable, "-m", "validator", "fetch", "--in-flight", "1", "--processes", "2")
    for sent, code in ((signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, -9)):
        asked = node.requests["chain_getBlock"]
        process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert node.wait_for(lambda counts, asked=asked: counts["chain_getBlock"] > asked + 2), "nothing was fetched"
        process.send_signal(sent)
        _, text = process.communicate(timeout=60)
        assert process.returncode == code, text
        assert code < 0 or "stopped: 0 of 29 blocks fetched; the same command continues" in text
        deadline = time.monotonic() + 60
        while _is_there(process.pid):
            assert time.monotonic() < deadline, "a process is left"
            time.sleep(0.1)
    node.faults.faults.clear()
    assert run("fetch")[0] == 0
    assert {path.name for path in Path("polkadot/blocks").iterdir()} == {"fetch.lock", "0000000102-0000000130.avro"}


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
