# SPDX-License-Identifier: Apache-2.0
"""Dead letters of records that are larger than a producer may send: `validator dead-letters show|replay` fetch them."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, Producer

from tests.cli.follower import lines
from tests.cli.test_dead_letters import Letters, letters
from validator.core.inputs import DeadReason, Source
from validator.kafka.settings import producer_config

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["letters"]


def test_oversized_record_is_fetched_from_where_it_was_read(
    letters: Letters,
    tmp_path: Path,
) -> None:
    raw = bytes(10 << 20)  # a broker checks the size of the compressed batch, and takes it
    topic = letters.prefix + "candidates"
    placed: list[Source] = []
    large = {"message.max.bytes": 16 << 20, "compression.type": "zstd"}
    producer = Producer(producer_config(letters.kafka) | large)

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        placed.append(Source(topic, message.partition() or 0, message.offset() or 0))

    producer.produce(topic, raw, b"polkadot", on_delivery=delivered)
    assert producer.flush(60) == 0
    place = letters.put(raw, reason=DeadReason.LIMIT, source=placed[0])
    other = letters.put(bytes(9 << 20), reason=DeadReason.LIMIT, source=placed[0])
    gone = letters.put(raw, reason=DeadReason.LIMIT, source=placed[0]._replace(offset=placed[0].offset + 1000))

    digest = f"0x{blake2b(raw, digest_size=32).hexdigest()}"
    file = tmp_path / "raw"
    (shown,) = lines(letters.run("show", place, "--json", "--raw", str(file)).stdout)
    assert (shown["bytes"], shown["whole_hash"], shown["raw"]) == (len(raw), digest, f"0x{bytes(8192).hex()}")
    assert file.read_bytes() == raw
    text = letters.run("show", place).stdout
    assert f"{len(raw)}: too many to keep, so here are the first and last 4096; BLAKE2b-256 of all is {digest}" in text

    refused = letters.run("replay", place)
    assert refused.exit_code == 1
    assert f"LIMIT: expected at most 8388608 bytes, found {len(raw)}" in refused.stderr
    replaced = letters.run("replay", other, "--force")
    assert "holds another record: expected 9437184 bytes" in replaced.stderr
    assert "is gone" in letters.run("replay", gone).stderr
