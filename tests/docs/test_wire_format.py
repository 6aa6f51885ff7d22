# SPDX-License-Identifier: Apache-2.0
"""docs/wire-format.md shows the bytes that the product reads; test_first_channel.py runs its programs."""

from __future__ import annotations

import json
import re

import pytest

from tests.codecs import codec_for, decoded, encoded
from tests.docs.pages import DOCS
from validator.codec.dry_runs import DryRunRequest, encode_request
from validator.codec.encode import verdict_id
from validator.core.inputs import DeadLetter, Source
from validator.topics import INPUT_TOPICS, OUTPUT_TOPICS

TEXT = (DOCS / "wire-format.md").read_text(encoding="utf-8")
HEADINGS = {
    "blocks": "A block",
    "candidates": "A candidate",
    "channel-requests": "A channel request",
    "downward-messages": "A downward message",
}


def section(kind: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """Return the record of a kind and its rows: bytes and field."""
    text = TEXT.partition(f"### {HEADINGS[kind]}\n")[2]
    text = re.split(r"^##", text, flags=re.MULTILINE)[0]
    record = re.search(r"```json\n(.*)\n```", text)
    assert record is not None
    rows = re.findall(r"^\| `([0-9a-f ]+)` \| (.*?) \|", text, re.MULTILINE)
    return json.loads(record[1]), [(data, field.strip("` ")) for data, field in rows]


@pytest.mark.parametrize("kind", INPUT_TOPICS)
def test_every_byte_is_that_of_the_encoder(kind: str) -> None:
    record, rows = section(kind)
    value = bytes.fromhex(" ".join(data for data, _ in rows))
    assert value == encoded(kind, record)
    assert not isinstance(decoded(kind, value, Source(kind, 0, 0)), DeadLetter)


@pytest.mark.parametrize("kind", INPUT_TOPICS)
def test_every_field_of_the_record_has_its_row_in_order(kind: str) -> None:
    _, rows = section(kind)
    schema = codec_for().input_schema(INPUT_TOPICS[kind], "router")
    fields = [field["name"] for field in schema.source["fields"]]
    named = list(dict.fromkeys(re.split(r"[.\[]", field)[0] for _, field in rows if field))
    assert [name for name in named if name in fields] == fields


def test_request_of_a_dry_run_is_that_of_the_encoder() -> None:
    text = re.split(r"^##", TEXT.partition("### A dry run\n")[2], flags=re.MULTILINE)[0]
    asked = re.search(r"`(\{.*\})`", text)
    assert asked is not None
    value = bytes.fromhex(" ".join(re.findall(r"^\| `([0-9a-f ]+)` \|", text, re.MULTILINE)))
    assert value == encode_request(DryRunRequest("polkadot", b"\x2a", "candidates", asked[1]))


def test_recipe_for_ids_gives_the_id_of_the_encoder() -> None:
    text = TEXT.partition("### Ids\n")[2]
    named = re.search(r"printf (\S+)/(\d+)/(\S+)/(\d+) ", text)
    assert named is not None
    lane, block, kind, index = named.groups()
    shown = set(re.findall(r"\b(?:0x)?([0-9a-f]{32})\b", text))
    assert shown == {verdict_id(lane, int(block), kind, int(index)).hex()}


def test_every_output_topic_has_the_key_of_its_records() -> None:
    rows = re.findall(r"^\| (`[a-z`, -]+) \| .*$", TEXT.partition("| topic | key of a record |")[2], re.MULTILINE)
    named = {name.strip("` ") for row in rows for name in row.split(",")}
    assert set(OUTPUT_TOPICS) - {"markers"} <= named


def test_fingerprints_are_those_of_the_schemas() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| `(validator[\w.]+)` \| `([0-9a-f ]+)` \|$", TEXT, re.MULTILINE)
    assert {kind: (name, bytes.fromhex(data)) for kind, name, data in rows} == {
        kind: (schema.name, schema.header[2:])
        for kind in INPUT_TOPICS
        if (schema := codec_for().input_schema(INPUT_TOPICS[kind], "router"))
    }
