# SPDX-License-Identifier: Apache-2.0
"""The same lane inside Quix Streams, as a user would write it: at-least-once, the lane in memory."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from quixstreams import Application
from quixstreams.context import message_context
from quixstreams.kafka.configuration import ConnectionConfig
from quixstreams.models.serializers import Serializer

from streaming.workers import tune_garbage_collector
from validator.codec.decode import decode_record
from validator.codec.encode import OutputRecord
from validator.config import Config
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.lanes.configured import lane_definitions
from validator.lanes.processor import LaneProcessor
from validator.topics import INPUT_TOPICS

TOLD = ("verdicts", "dispatches", "channel-events", "headroom", "receipts", "dead-letters")


class ValueOfRecord(Serializer):
    """Writes an output record's value."""

    def __call__(self, record: OutputRecord, ctx: object) -> bytes:
        """Return the value."""
        return record.value


def main(configuration: str, total: int) -> None:
    """Process ``total`` records and print the seconds that this took."""
    config = Config.model_validate(json.loads(Path(configuration).read_text(encoding="utf-8")))
    prefix = config.topics.prefix
    (definition,) = lane_definitions(config).values()
    worker = LaneProcessor.create(definition)
    app = Application(
        broker_address=ConnectionConfig.from_librdkafka_dict(config.kafka, ignore_extras=True),
        consumer_group=f"quix-{uuid4()}",  # a separate group: one that has read the backlog would wait for more
        auto_offset_reset="earliest",
        auto_create_topics=False,
        use_changelog_topics=False,
        state_dir=Path(configuration).parent / "quix",
        loglevel="ERROR",
        producer_extra_config={"compression.type": "lz4", "enable.idempotence": True},
    )
    outputs = {
        name: app.topic(prefix + name, key_serializer="bytes", value_serializer=ValueOfRecord()) for name in TOLD
    }
    clock = {"seen": 0, "began": 0.0}

    def step(topic: str, kind: RecordKind) -> Any:
        def process(value: bytes) -> list[OutputRecord]:
            if not clock["seen"]:
                clock["began"] = time.perf_counter()
            clock["seen"] += 1
            context = message_context()
            decoded = decode_record(definition.codec, kind, value, Source(topic, context.partition, context.offset))
            item = decoded if isinstance(decoded, DeadLetter) else decoded[1]
            output = [record for _, records in worker.process([item]) for record in records]
            if clock["seen"] == total:
                app.stop()  # once this record's outputs are produced and its offset is committed
            return output

        return process

    for name, kind in INPUT_TOPICS.items():
        source = app.topic(prefix + name, value_deserializer="bytes", key_deserializer="bytes")
        output = app.dataframe(source).apply(step(prefix + name, kind), expand=True)
        output.to_topic(topic=lambda record, _key, _at, _headers: outputs[record.topic], key=lambda record: record.key)
    tune_garbage_collector()
    app.run()
    print(time.perf_counter() - clock["began"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
