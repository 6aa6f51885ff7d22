# SPDX-License-Identifier: Apache-2.0
"""`validator follow`: what it writes, and one line for each mistake."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay_world import shipped
from typer.testing import CliRunner
from validator_relay_chain import pool
from validator_simulators.relay_chain import Fault, FaultKind, MockNode

from validator.cli.main import app

FIRST = 17_844_553


@pytest.fixture
def node() -> Iterator[MockNode]:
    with MockNode(shipped()) as node:
        yield node


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["follow", *arguments])
    return result.exit_code, result.stderr.strip()


def test_configuration_and_state_are_written_and_nothing_is_written_twice(
    node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = ("--rpc", node.url, "--from-block", str(FIRST))
    code, text = run(monkeypatch, tmp_path, *begin, "--to-block", str(FIRST + 2), "--prepare")
    assert (code, "validator.toml: written; the lane begins with block 17844553" in text) == (0, True), text
    config = tomllib.loads((tmp_path / "validator.toml").read_text())
    chain = config["chains"]["polkadot"]
    assert (chain["enactment"], chain["balances"], chain["state"]) == (
        "on-inclusion",
        "unlimited",
        "polkadot/STATE.json",
    )
    source = config["transports"]["relay-chain"]["chains"]["polkadot"]
    assert (source["rpc"], source["folder"], source["to_block"]) == ([node.url], "polkadot", FIRST + 2)
    assert {path.name for path in (tmp_path / "polkadot").iterdir()} == {
        "STATE.json",
        "rules.json",
        "start.json",
        "seed.jsonl.gz",
        "metadata",
    }
    before = node.requests.total()
    assert run(monkeypatch, tmp_path, "--prepare")[0] == 0
    assert node.requests.total() == before
    for arguments, line in (
        (begin, "--from-block: expected only without validator.toml, in which the lane has begun already"),
        (
            ("--lane", "kusama"),
            "--lane: expected one with [transports.relay-chain.chains.kusama] in validator.toml, found none: it follows polkadot;",
        ),
        (
            ("--lane", "polkdot"),
            "--lane: expected one with [transports.relay-chain.chains.polkdot] in validator.toml, found none: did you mean 'polkadot'?",
        ),
        (("--rpc", "ws://elsewhere"), f"--rpc: expected the nodes of validator.toml, {node.url}, found ws://elsewhere"),
    ):
        code, text = run(monkeypatch, tmp_path, *arguments, "--prepare")
        assert (code, text.startswith(f"validator: {line}")) == (2, True), text
    path = tmp_path / "validator.toml"
    path.write_text(path.read_text() + path.read_text().split("\n\n")[-1].replace(".polkadot]", ".kusama]"))
    for arguments, line in (
        (("--to-block", "9", "--prepare"), "--to-block: expected only without --prepare, which does not change"),
        (
            ("--to-block", str(FIRST - 1)),
            f"--to-block: expected a block after {FIRST - 1}, after which the lane begins, found {FIRST - 1}",
        ),
    ):
        code, text = run(monkeypatch, tmp_path, *arguments)
        assert (code, f"validator: {line}" in text) == (2, True), text
    path.write_text(re.sub(r"(kusama\](?:.|\n)*)to_block.*", r"\1", path.read_text()))
    code, text = run(monkeypatch, tmp_path, "--to-block", str(FIRST))
    assert (code, "found kusama without to_block in validator.toml" in text) == (2, True), text


def test_mistakes_are_one_line(node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MockNode(shipped()) as gone:
        nowhere = gone.url
    for arguments, line in (
        ((), "--rpc: expected the address of a node, since there is no validator.toml yet"),
        (
            ("--rpc", "http://node"),
            "--rpc: node: expected an address ws://HOST:PORT or wss://HOST, found 'http://node'",
        ),
        (("--rpc", nowhere), f"{nowhere}: no connection: "),
        (("--lane", "A B", "--rpc", node.url), "--lane: expected 1 to 64 of a-z 0-9 . _ -, found 'A B'"),
        (
            ("--rpc", node.url, "--from-block", "99999999"),
            "--from-block: expected at most 17844557, the block after the last",
        ),
    ):
        code, text = run(monkeypatch, tmp_path, *arguments)
        assert (code, text.splitlines()[-1].startswith(f"validator: {line}")) == (2, True), text
        assert "Traceback" not in text
        assert not (tmp_path / "validator.toml").exists()


def test_block_that_the_node_does_not_know_is_one_line(
    node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PAUSE_S_MAX", 0.0)
    code, text = run(monkeypatch, tmp_path, "--rpc", node.url, "--from-block", "5", "--prepare")
    assert code == 2
    assert text.splitlines()[-1] == (
        f"validator: --from-block 5: {node.url}: the hash of block 4 is not known here; a lane that begins there needs the state after "
        "block 4: give --rpc of an archive node (--state-pruning archive), or leave --from-block out"
    )


def test_pruned_state_is_one_line(node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.order(Fault(FaultKind.PRUNED, "state_getKeysPaged", count=None))
    code, text = run(monkeypatch, tmp_path, "--rpc", node.url, "--from-block", str(FIRST))
    assert code == 2
    line = text.splitlines()[-1]
    assert line.startswith(f"validator: --from-block {FIRST}: ")
    assert "the node has discarded the state of this block, an archive node is needed" in line
    assert f"needs the state after block {FIRST - 1}: give --rpc of an archive node (--state-pruning archive)" in line
