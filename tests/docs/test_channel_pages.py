# SPDX-License-Identifier: Apache-2.0
"""The pages about Channel agree with the program: modes of files, keys of the registry, topics, messages on the main stream."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

from typer.testing import CliRunner
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, read_main
from validator_channel.command import app
from validator_channel.errors import ErrorCode
from validator_channel.gateway.registry import KEYS
from validator_channel.net.outcomes import CLOSED_DURING_TLS, SILENT

from tests.docs.pages import DOCS
from validator.core.limits import DUPLICATE_WINDOW_BLOCKS_DEFAULT, DUPLICATE_WINDOW_BYTES_MAX

THREATS = (DOCS / "channel-threats.md").read_text(encoding="utf-8")
PEERS = (DOCS / "channel-peers.md").read_text(encoding="utf-8")
OPERATIONS = (DOCS / "channel-operations.md").read_text(encoding="utf-8")


def rows(text: str, heading: str) -> dict[str, list[str]]:
    """Return the rows of the table under a heading by the text of their first cell."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    return {cells[0]: cells[1:] for cells in lines}


def test_files_have_the_modes_of_the_page(tmp_path: Path) -> None:
    def keys(*arguments: str) -> None:
        result = CliRunner().invoke(app, ["keys", *arguments])
        assert result.exit_code == 0, result.output

    ca = str(tmp_path / "ca")
    keys("new-ca", ca)
    for name in ("gateway", "acala"):
        keys("issue", name, "--ca", ca, "--peer", "0123456789abcdef0011223344556677", "--out", str(tmp_path))
    found = rows(THREATS, "Keys: where they are, and who may read them")
    for cell, (_, mode, secret) in found.items():
        paths = [path for name in re.findall(r"`([^`]+)`", cell) for path in tmp_path.glob(name.rstrip("/"))]
        if cell not in ("`psk_file`", "`peers.toml`"):  # other programs write these two
            assert paths, cell
        for path in paths:
            assert f"{stat.S_IMODE(path.stat().st_mode):04o}" == mode, path
            assert (path.stat().st_mode & 0o077 == 0) == (secret == "yes"), path


def test_table_of_the_registry_has_every_key_and_topic() -> None:
    found = rows(OPERATIONS, "The registry")
    named = {name for cell in found for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(KEYS)
    assert set(WATCH_TOPICS) == set(re.findall(r"`([a-z-]+)`", found["`watch`"][0]))


def test_messages_and_topics_are_those_of_the_program() -> None:
    messages = re.findall(r"^\| (?:gateway|peer) \| `(\{.*?\})`", PEERS, re.MULTILINE)
    assert messages
    for message in messages:
        read_main(json.dumps(json.loads(message)).encode())
    numbers = re.findall(r"\| `([a-z-]+)` \| ([0-9]+) (?=\|)", PEERS)
    assert {name: int(number) for name, number in numbers} == {**SUBMIT_TOPICS, **WATCH_TOPICS}


def test_pages_and_help_say_for_how_many_blocks_a_copy_is_recognised() -> None:
    """A peer has only these to know it from: its package does not import the product, whose limit it is."""
    text = " ".join(
        CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output.replace("│", " ").split()
    )
    blocks = DUPLICATE_WINDOW_BLOCKS_DEFAULT
    assert f"Once {blocks} further blocks are executed (the validator's job.duplicate_window_blocks), the copy" in text
    assert f"once {blocks} further blocks are executed (`[job] duplicate_window_blocks`" in " ".join(PEERS.split())
    assert f"the last {blocks} executed blocks (`[job] duplicate_window_blocks`)" in " ".join(OPERATIONS.split())
    assert f"[{DUPLICATE_WINDOW_BYTES_MAX >> 20} MiB](limits.md)" in OPERATIONS


def test_reasons_of_a_missing_session_are_those_of_the_program() -> None:
    said = [SILENT, CLOSED_DURING_TLS, *map(str, ErrorCode), "nothing listens there", "certificate refused: ", "CRL: "]
    said += ["the certificate does not belong to the expected peer", "the other end has refused us: "]
    said += [f"the session has ended: {ErrorCode.TRANSPORT_LOST}"]
    for cell in rows(PEERS, "When there is no session"):
        shown = cell.strip("`").partition("...")[0]
        assert any(text.startswith(shown) for text in said), cell
