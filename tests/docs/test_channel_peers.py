# SPDX-License-Identifier: Apache-2.0
"""docs/channel-peers.md works: the test writes every file, runs every command and compares the output."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, read_main

from tests.docs.pages import DOCS, Block, blocks, run

PAGE = DOCS / "channel-peers.md"
PACKAGE = DOCS.parent / "plugins" / "channel" / "src" / "validator_channel"
PROGRAM = "## In a program"
"""The heading after which nothing is run."""
PORT = "9443"
"""The port of the page, which another process may have."""


def test_every_block_is_a_file_or_commands() -> None:
    found = walkthrough()
    assert [(block.language, block.file) for block in found if block.language != "console"] == [
        ("toml", "peers.toml"),
        ("toml", "validator.toml"),
        ("toml", "channel.toml"),
        ("json", "candidates.jsonl"),
        ("json", "blocks.jsonl"),
        ("toml", "entry.toml"),
        ("toml", "moonbeam.toml"),
        ("json", "open.jsonl"),
        ("json", "accept.jsonl"),
        ("json", "more.jsonl"),
    ]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
def test_page_works(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    parts = [block._replace(content=block.content.replace(PORT, port)) for block in walkthrough()]
    run(parts, tmp_path, ["export PYTHONPATH="]).check()


def test_messages_and_topics_are_those_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    messages = re.findall(r"^\| (?:gateway|peer) \| `(\{.*?\})`", text, re.MULTILINE)
    assert len(messages) == 4
    for message in messages:
        read_main(json.dumps(json.loads(message)).encode())
    rows = dict(re.findall(r"\| `([a-z-]+)` \| ([0-9]+) (?=\|)", text))
    assert {name: int(number) for name, number in rows.items()} == {**SUBMIT_TOPICS, **WATCH_TOPICS}


def test_reasons_are_those_of_the_program() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## When there is no session\n")[2].partition("\n## ")[0]
    reasons = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    program = " ".join(
        (PACKAGE / name).read_text(encoding="utf-8") for name in ("net/reasons.py", "net/handshake.py", "errors.py")
    )
    assert len(reasons) >= 7
    for reason in reasons:
        for part in re.split(r"\.\.\.|: |\(|\)", reason):
            assert part.strip() in program, reason


def walkthrough() -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    return blocks(text[: text.index(PROGRAM)])
