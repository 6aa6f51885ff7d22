# SPDX-License-Identifier: Apache-2.0
"""The job with a schema registry: it reads both forms, emits framed records exactly once, and its own comparisons see the plain form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.registries import RegistryServer
from tests.streaming.harness import (
    SAME_WHATEVER_ARRIVES,
    Outputs,
    consume,
    decoded,
    first_difference,
    last_status,
    of_lane,
    produce,
)
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, chains, reference
from validator import exit_codes
from validator.codec.framing import MAGIC, id_header, plain_form
from validator.codec.schemas import HEADER_SIZE
from validator.config import Config
from validator.job.schema_ids import records_of, register, schema_ids
from validator.kafka.topics import create_topics
from validator.lanes.configured import configured_codec

CHAIN = chains()[0]
UNKNOWN_ID = 2**31
EVERY = (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes")


def plain(kafka: dict[str, Any], prefix: str, headers: dict[bytes, bytes]) -> Outputs:
    """Return the outputs in their plain form, after checking that every one of them was framed."""
    found = consume(kafka, prefix, EVERY)
    for topic, records in found.items():
        assert all(value.startswith(MAGIC) for _, value in records), topic
    return {topic: [(key, plain_form(value, headers)) for key, value in records] for topic, records in found.items()}


def with_registry(configuration: Path, table: dict[str, str]) -> Path:
    """Add `[schema_registry]` to a configuration."""
    settings = json.loads(configuration.read_text(encoding="utf-8"))
    configuration.write_text(json.dumps({**settings, "schema_registry": table}), encoding="utf-8")
    return configuration


@pytest.mark.long
@pytest.mark.spark
def test_job_reads_both_forms_and_frames_what_it_emits(
    kafka: dict[str, Any], tmp_path: Path, registry_server: RegistryServer
) -> None:
    prefix = f"registry-{urlsplit(registry_server.url).port}."
    create_topics(kafka, prefix=prefix)
    table = {**registry_server.table, "write": "confluent"}
    configuration = with_registry(write_configuration(tmp_path, (CHAIN,), kafka, prefix), table)
    config = Config.model_validate(json.loads(configuration.read_text(encoding="utf-8")))
    records = records_of(configured_codec(config))
    list(register(config, records))
    headers = dict(schema_ids(config, records).headers)
    frames = {header: frame for frame, header in headers.items()}

    def framed(value: bytes) -> bytes:
        return frames[value[:HEADER_SIZE]] + value[HEADER_SIZE:]

    sent = [
        (each.topic, each.lane.encode(), framed(each.value) if at % 2 else each.value)
        for at, each in enumerate(CHAIN.records)
    ]
    unknown = id_header(UNKNOWN_ID) + CHAIN.records[0].value[HEADER_SIZE:]
    produce(kafka, prefix, [*sent, sent[0], ("candidates", CHAIN.lane.encode(), unknown)])
    with job(configuration) as running:
        running.wait_for_records(kafka, prefix, "receipts", len(CHAIN.blocks))
        running.wait_for_records(kafka, prefix, "dead-letters", 1)
        assert running.terminate() == exit_codes.OK
    first = plain(kafka, prefix, headers)
    assert first_difference(of_lane(first, CHAIN.lane), reference(IMMEDIATE)) is None
    assert not [value for _, value in consume(kafka, prefix, ["markers"])["markers"] if value.startswith(MAGIC)]
    (letter,) = decoded(first, "dead-letters")
    assert (letter["reason"], letter["raw"]) == ("UNKNOWN_SCHEMA", unknown.hex())
    assert f"found {UNKNOWN_ID}, which the schema registry did not have" in letter["detail"]

    # without the checkpoint, the job compares what it would emit with the framed records that are there, and emits nothing again;
    # a record that has arrived in the other form before is a duplicate
    produce(kafka, prefix, [("blocks", CHAIN.lane.encode(), _other_form(sent, headers, frames))])
    (tmp_path / "again").mkdir()
    rebuilding = with_registry(write_configuration(tmp_path / "again", (CHAIN,), kafka, prefix, rebuild=True), table)
    with job(rebuilding) as running:
        running.wait_for(lambda: any(each["unread"] == 0 for each in running.named("batch")), "all is taken again")
        assert running.terminate() == exit_codes.OK
    again = plain(kafka, prefix, headers)
    assert first_difference(of_lane(again, CHAIN.lane), reference(IMMEDIATE)) is None
    status = last_status(again, CHAIN.lane)
    assert (status["consumed"], status["duplicate"], status["dead"]) == (len(sent) + 3, 2, 1)
    assert len(again["dead-letters"]) == 1


def _other_form(sent: list[tuple[str, bytes, bytes]], headers: dict[bytes, bytes], frames: dict[bytes, bytes]) -> bytes:
    """Return the last block record in the form that it was not sent in."""
    value = [value for topic, _, value in sent if topic == "blocks"][-1]
    other = plain_form(value, headers)
    return other if other != value else frames[value[:HEADER_SIZE]] + value[HEADER_SIZE:]
