# SPDX-License-Identifier: Apache-2.0
"""What a simulated chain puts on Kafka, with times of one block a second, and hostile records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from validator_journeys.job import open_job
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import Chain, chain, config_of, inputs_of
from validator.codec.encode import encode_dead_letter
from validator.codec.json_form import encode_json
from validator.codec.schemas import schemas
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.kafka.reader import TopicRecord
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor
from validator.plugin.job_api import JobContext, JobItem, JobRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

START_MS = 1_700_000_000_000
BLOCK_MS = 1_000
LATENCY_MS = 120
HOSTILE = "<script>document.title='owned'</script>\u202e\x1b[31m"


def simulated(blocks: int = 60, lane: str = "polkadot", seed: int = 11) -> Chain:
    """Return a chain in which every rule is broken now and then."""
    return chain(SimulationSettings(seed=seed, blocks=blocks, lane=lane))


def output_of(of: Chain, start_ms: int = START_MS) -> Iterator[TopicRecord]:
    """Yield the block records and all output of a chain, as they are written."""
    offsets: Counter[str] = Counter()

    def record(topic: str, key: bytes, value: bytes, time_ms: int) -> TopicRecord:
        offsets[topic] += 1
        return TopicRecord(topic, 0, offsets[topic] - 1, key, value, time_ms)

    config = config_of(of, job={"directory": "nowhere", "headroom_interval_blocks": 5})
    processor = LaneProcessor.create(lane_definition(config, of.lane))
    inputs = inputs_of(of.records)
    at = 0
    for number, block in enumerate(of.blocks):
        sent_ms = start_ms + number * BLOCK_MS
        count = len(block.records)
        for each in of.records[at : at + count]:
            if each.topic == "blocks":
                yield record("blocks", of.lane.encode(), each.value, sent_ms)
        outputs = [each for _, records in processor.process(inputs[at : at + count]) for each in records]
        outputs += processor.status().records
        for output in outputs:
            yield record(output.topic, output.key, output.value, sent_ms + LATENCY_MS + number % 7 * 20)
        at += count


def journeys_of(of: Chain) -> Iterator[TopicRecord]:
    """Yield the records that the job `journeys` writes about a chain."""
    job = open_job(JobContext("journeys", {}, {of.lane: {"protocol": "router"}}))
    inputs = [TopicRecord(each.topic, 0, at, None, each.value, START_MS) for at, each in enumerate(of.records)]
    records = [*inputs, *(each for each in output_of(of) if each.topic != "blocks")]
    items = [
        JobItem(each.topic, 0, each.offset, content)
        for topic in (*job.causes, *job.effects)
        for each in records
        if each.topic == topic
        for _, content in job.condense(JobRecord(topic, 0, each.offset, each.key, each.value))
    ]
    emitted = job.restore(job.keys[0], {}).process(items)
    for at, each in enumerate(emitted):
        yield TopicRecord(each.topic, 0, at, each.key, each.value or b"", START_MS)


def dead_letter(
    detail: str, raw: bytes, offset: int = 0, lane: str = "polkadot", topic: str = "validator.candidates"
) -> TopicRecord:
    """Return a dead letter."""
    output = encode_dead_letter(DeadLetter(lane, DeadReason.UNDECODABLE, detail, Source(topic, 0, offset), raw))
    return TopicRecord(output.topic, 0, offset, output.key, output.value, START_MS)


def verdict(lane: str, block: int, index: int, error: dict[str, Any] | None = None) -> TopicRecord:
    """Return a verdict on a candidate."""
    value: dict[str, Any] = {
        "lane": lane, "block": block, "kind": "candidate", "index": index, "para_id": 2000 + index % 50, "ok": error is None,
        "enacted": error is None, "messages": [], "runtime_digest": "00" * 32, "id": (block * 1000 + index).to_bytes(16).hex(),
    }  # fmt: skip
    if error is not None:
        value |= {"error": {**error, "clause": "router.txt verify_outbound_hrmp 1.4"}}
    offset = block * 1000 + index
    return TopicRecord(
        "verdicts", 0, offset, lane.encode(), encode_json(schemas()["validator.Verdict"], value), START_MS + block
    )
