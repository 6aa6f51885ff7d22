# SPDX-License-Identifier: Apache-2.0
"""chopsticks, a node that others wrote, forks from the mock node's recorded chain: the plugin follows it by both kinds of JSON-RPC."""

from __future__ import annotations

import gzip
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from minimal_wasm import runtime_of
from relay_recordings import RECORDED, needs_recordings
from relay_world import LANE, Collected, load, source
from validator_relay_chain.follow import Follower
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.modern import ModernConnection
from validator_relay_chain.pool import Clock, NodePool, open_wire
from validator_relay_chain.prepare import Prepared, prepare
from validator_relay_chain.source import Chain
from validator_simulators.relay_chain import MockNode, Recording
from validator_simulators.relay_chain.modern import _version
from validator_simulators.relay_chain.recording import SHIPPED

from validator.plugin.api import Writer

PACKAGE: Final = "@acala-network/chopsticks@1"
INSTALL_S_MAX, START_S_MAX = 600.0, 120.0
CODE: Final = "0x3a636f6465"
"""The storage key of the runtime."""

pytestmark = [pytest.mark.long, needs_recordings]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return chopsticks: the one that CHOPSTICKS names, or one that npm installs."""
    named = os.environ.get("CHOPSTICKS")
    if named is not None:
        return Path(named)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and CHOPSTICKS names no program")
    folder = tmp_path_factory.mktemp("npm")
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), PACKAGE]
    done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-200:]}")
    return folder / "node_modules" / ".bin" / "chopsticks"


@pytest.fixture(scope="module")
def upstream() -> Iterator[MockNode]:
    """Serve the shipped blocks with whole metadata, and a runtime that gives them."""
    recording = Recording.load(SHIPPED)
    metadata = gzip.decompress((RECORDED / "metadata" / "9430.scale.gz").read_bytes())
    recording.put_metadata("9430", metadata)
    last = recording.blocks[recording.canonical[recording.last]]
    out = Writer()
    out.bytes(metadata)
    version = _version(recording.runtime_version(last))
    runtime = runtime_of({"Core_version": version, "Metadata_metadata": bytes(out.buffer)})
    recording.put_storage(0, {CODE: f"0x{runtime.hex()}"})
    with MockNode(recording) as node:
        yield node


@pytest.fixture(scope="module")
def chopsticks(program: Path, upstream: MockNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a simulator that forks after the last recorded block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("chopsticks") / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [program, "--endpoint", upstream.url, "--port", str(port)], stdout=stream, stderr=stream, cwd=log.parent
        )
        try:
            deadline = time.monotonic() + START_S_MAX
            while "listening on" not in log.read_text(errors="replace"):
                assert process.poll() is None, log.read_text(errors="replace")[-2_000:]
                assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
                time.sleep(0.2)
            yield f"ws://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30.0)


def joined(url: str, open_: Any, folder: Path, from_block: int | None) -> tuple[Prepared, Collected]:
    """Prepare a lane with a node, and follow it to the last block."""
    pool = NodePool([url], Clock(), open_=open_)
    try:
        chain = Chain(pool, MetadataCache(folder / "metadata"), load)
        prepared = prepare(chain, LANE, folder / LANE, from_block=from_block)
        out = Collected()
        out.commit(prepared.seed.records, prepared.seed.position)
        last = Recording.load(SHIPPED).last
        Follower(LANE, source(url, to_block=last), chain, Clock(), prepared.seed.position, out).run()
    finally:
        pool.close()
    return prepared, out


def test_simulator_is_followed_from_the_first_recorded_block(
    chopsticks: str, upstream: MockNode, tmp_path: Path
) -> None:
    first = upstream.recording.first + 1
    expected, records = joined(upstream.url, open_wire, tmp_path / "mock", first)
    found, out = joined(chopsticks, open_wire, tmp_path / "chopsticks", first)
    assert found.seed.state == expected.seed.state
    assert out.records == records.records
    assert out.blocks()[-1] == upstream.recording.last


def test_newer_methods_of_the_simulator_give_the_same_state(
    chopsticks: str, upstream: MockNode, tmp_path: Path
) -> None:
    expected, _ = joined(upstream.url, open_wire, tmp_path / "mock", None)
    found, _ = joined(chopsticks, ModernConnection, tmp_path / "chopsticks", None)
    assert found.seed.state == expected.seed.state
    assert found.seed.records == expected.seed.records
    assert found.header == expected.header
