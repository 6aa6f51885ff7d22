# SPDX-License-Identifier: Apache-2.0
"""Every JSON example of README, docs/ and examples/ is a record as `validator submit` takes it or `watch --json` prints it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.codecs import codec_for
from tests.docs.pages import DOCS, blocks
from validator.client.topics import readable_topics
from validator.codec.json_form import encode_input, encode_json
from validator.config import Config
from validator.errors import UserError
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = [
    DOCS.parent / "README.md",
    *(path for path in sorted(DOCS.rglob("*.md")) if not path.name.startswith("channel-")),
]
OTHERS = {
    ("real-data.md", "STATE.json"),
    ("trace-format.md", "trace.json"),
    ("checks-in-ci.md", "channel.json"),
    ("checks-in-ci.md", "STATE.json"),
    ("write-a-protocol.md", "src/validator_turns/conformance/turns.json"),
}
"""Files that are no records: the test of their page runs a command on each."""


def values(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON values of a block, one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        yield value


def examples() -> list[Any]:
    found = [
        pytest.param(value, id=f"{page.name}-{number}")
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language == "json" and (page.name, block.file) not in OTHERS
        for number, value in enumerate(values(block.content))
    ]
    assert len(found) > 20
    return found


def is_input(record: dict[str, Any]) -> bool:
    for kind in INPUT_TOPICS.values():
        try:
            encode_input(codec_for(), kind, record, "router")
        except UserError:
            continue
        return True
    return False


def is_output(record: dict[str, Any]) -> bool:
    """Return whether `watch --json` prints these members in this order, and others only if they are empty; it adds an error's `rule`."""
    bare = dict(record)
    if isinstance(bare.get("error"), dict):
        bare["error"] = {name: value for name, value in bare["error"].items() if name != "rule"}
    for topic in readable_topics(Config()).values():
        for schema in topic.schemas:
            try:
                shown = topic.decode(encode_json(schema, bare)).items()
            except UserError:
                continue
            if json.dumps({key: each for key, each in shown if key in bare or each not in (None, [])}) == json.dumps(
                bare
            ):
                return True
    return False


@pytest.mark.parametrize("record", examples())
def test_example_is_a_record(record: dict[str, Any]) -> None:
    assert is_input(record) or is_output(record)
    assert ("rule" in record.get("error", ())) == (record.get("ok") is False)
