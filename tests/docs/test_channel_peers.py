# SPDX-License-Identifier: Apache-2.0
"""docs/channel-peers.md works: the test writes every file, runs every command and compares the output."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, read_main

from tests.docs.test_write_a_handler import Block, blocks, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "channel-peers.md"
PROGRAM = "## In a program"
"""The heading after which nothing is run."""


def test_every_block_is_a_file_or_commands() -> None:
    found = walkthrough()
    assert [(block.language, block.file) for block in found if block.language != "console"] == [
        ("toml", "peers.toml"),
        ("toml", "validator.toml"),
        ("toml", "channel.toml"),
        ("json", "candidates.jsonl"),
        ("json", "blocks.jsonl"),
    ]


@pytest.mark.spark
@pytest.mark.broker
def test_page_works(tmp_path: Path) -> None:
    run(walkthrough(), tmp_path, ["export PYTHONPATH="]).check()


def test_messages_and_topics_are_those_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    messages = re.findall(r"^\| (?:gateway|peer) \| `(\{.*?\})`", text, re.MULTILINE)
    assert len(messages) == 4
    for message in messages:
        read_main(json.dumps(json.loads(message)).encode())
    rows = dict(re.findall(r"\| `([a-z-]+)` \| ([0-9]+) (?=\|)", text))
    assert {name: int(number) for name, number in rows.items()} == {**SUBMIT_TOPICS, **WATCH_TOPICS}


def walkthrough() -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    return blocks(text[: text.index(PROGRAM)])
