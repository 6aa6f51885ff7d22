# SPDX-License-Identifier: Apache-2.0
"""A plain consumer-producer loop in one process: at-least-once, and its state does not survive it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from streaming.workers import tune_garbage_collector
from validator.codec.decode import decode_record
from validator.config import Config
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.settings import COMMITS, consumer_config, producer_config
from validator.lanes.configured import lane_definitions
from validator.lanes.processor import LaneProcessor
from validator.topics import INPUT_TOPICS

CONSUMED_AT_ONCE = 10_000


def main(configuration: str, total: int) -> None:
    """Process ``total`` records and print the seconds that this took."""
    config = Config.model_validate(json.loads(Path(configuration).read_text(encoding="utf-8")))
    prefix = config.topics.prefix
    (definition,) = lane_definitions(config).values()
    worker = LaneProcessor.create(definition)
    kinds = {prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    names: dict[str, str] = {}
    producer = Producer(producer_config(config.kafka))
    consumer = Consumer(consumer_config(config.kafka, COMMITS, group_id="plain-loop"))
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in kinds])
    tune_garbage_collector()

    began, seen = 0.0, 0
    while seen < total:
        messages = consumer.consume(CONSUMED_AT_ONCE, 1.0)
        if messages and not began:
            began = time.perf_counter()
        seen += len(messages)
        items: list[Input | DeadLetter] = []
        for message in messages:
            topic = message.topic()
            decoded = decode_record(
                definition.codec,
                kinds[topic],
                message.value(),
                Source(topic, message.partition(), message.offset()),
                message.key(),
            )
            items.append(decoded if isinstance(decoded, DeadLetter) else decoded[1])
        for _, records in worker.process(items):
            for topic, key, value, _ in records:
                name = names.get(topic) or names.setdefault(topic, prefix + topic)
                while True:
                    try:
                        producer.produce(name, value, key)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
    producer.flush()
    print(time.perf_counter() - began)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
