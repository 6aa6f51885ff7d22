# SPDX-License-Identifier: Apache-2.0
"""Records that compress well do not fill the memory of a sparing reader."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from confluent_kafka import Producer

from validator.kafka.settings import MESSAGE_BYTES_MAX
from validator.kafka.topics import create_topics

PREFIX = "sparing."
RECORDS, MIB = 60, 1024 * 1024
SIZE = 7 * MIB

READ = """
import json, resource, sys
from validator.kafka.settings import SPARING
from validator.kafka.reader import TopicReader
with TopicReader(json.loads(sys.argv[1]), sys.argv[2], ["candidates"], reading=SPARING) as reader:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = [len(record.value) for record in reader.read_to_end()]
print(json.dumps([sizes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))
"""


def test_reader_holds_a_small_part_of_what_a_fetch_decompresses_to(kafka: dict[str, Any]) -> None:
    create_topics(kafka, prefix=PREFIX)
    producer = Producer({**kafka, "compression.type": "zstd", "message.max.bytes": 2 * MESSAGE_BYTES_MAX})
    for _ in range(RECORDS):
        producer.produce(f"{PREFIX}candidates", bytes(SIZE), b"a", partition=0)
        producer.flush()
    read = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(kafka), PREFIX], capture_output=True, text=True, check=True
    )
    sizes, grown_mib = json.loads(read.stdout)
    assert sizes == [SIZE] * RECORDS
    assert grown_mib < RECORDS * SIZE / MIB / 2, "all of them are 420 MiB"
