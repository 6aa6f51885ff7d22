# SPDX-License-Identifier: Apache-2.0
"""The job with at-least-once output: the baseline for exactly-once.

`python -m benchmarks.at_least_once` is `python -m streaming` with an ordinary producer instead of transactions: no
marker, no fencing, and a repeated batch is emitted again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from streaming.run import run_job
from validator.codec.encode import BlockOutput
from validator.config import Config
from validator.kafka.settings import producer_config
from validator.lanes.marker import Consumed


class AtLeastOnceSink:
    """Produces every record it gets, and waits for the acknowledgements at the end of a batch."""

    def __init__(self, kafka: dict[str, Any], prefix: str) -> None:
        self._producer = Producer(producer_config(kafka))
        self._prefix = prefix

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Produce records."""
        for each in output:
            for topic, key, value, headers in each.records:
                while True:
                    try:
                        self._producer.produce(self._prefix + topic, value, key, headers=list(headers) or None)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
        self._producer.poll(0)

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Wait until everything is acknowledged."""
        self._producer.flush()
        return {}


@dataclass(frozen=True, slots=True)
class AtLeastOnceOutput:
    """Kafka, with one ordinary producer."""

    kafka: tuple[tuple[str, Any], ...]
    prefix: str

    def open(self) -> AtLeastOnceSink:
        """Open a sink in a worker."""
        return AtLeastOnceSink(dict(self.kafka), self.prefix)


if __name__ == "__main__":
    from benchmarks.at_least_once import AtLeastOnceOutput as Importable  # a worker has another __main__

    configured = Config.model_validate(json.load(sys.stdin))
    sys.exit(run_job(configured, Importable(tuple(sorted(configured.kafka.items())), configured.topics.prefix)))
