# SPDX-License-Identifier: Apache-2.0
"""What a decode task passes on is bounded in bytes for each lane, whatever its records decompress to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from validator_simulators import SimulationSettings

from streaming import decode_stage as decode_stage_module
from streaming import workers
from streaming.decode_stage import DecodeSettings
from streaming.options import BATCH_BYTES_MAX, batch_bytes_max
from streaming.range_source import OffsetRange
from tests.unit.lanes.chains import PREFIX, chain, definition_of, inputs_of
from validator.codec.framing import id_header
from validator.codec.inflight import Arrival, unpack
from validator.codec.orders import LaneOrder, encode_order
from validator.codec.schemas import HEADER_SIZE
from validator.core.inputs import DeadLetter, DeadReason, Input, Source, Withheld
from validator.core.limits import DEAD_LETTER_END_BYTES
from validator.lanes.arrived import Chunk, arrived
from validator.lanes.definition import job_codec
from validator.topics import INPUT_TOPICS

CHAIN = chain(SimulationSettings(seed=3, blocks=8, candidates_per_block=4, session_length_blocks=5))
DEFINITIONS = {CHAIN.lane: definition_of(CHAIN)}
ITEMS = inputs_of(CHAIN.records)
KINDS = {PREFIX + topic: kind for topic, kind in INPUT_TOPICS.items()}
ORDER = (f"{PREFIX}blocks", 7, 3, CHAIN.lane.encode(), encode_order(CHAIN.lane, frozenset()))


@pytest.fixture(autouse=True)
def _without_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_tuned", True)


def rows() -> list[tuple[Any, ...]]:
    return [*((*item.source, CHAIN.lane.encode(), item.raw) for item in ITEMS), ORDER]


def decoded(
    records: Iterable[tuple[Any, ...]], bytes_max: int, ids: Mapping[bytes, bytes] | None = None
) -> list[dict[str, Any]]:
    """Return the chunks of one task."""
    decoder = DecodeSettings(KINDS, DEFINITIONS, ids or {}, bytes_max).opened()()
    chunks = [decoder.add(*row, len(row[-1])) for row in records]
    return [row for chunk in (*chunks, decoder.take()) if chunk is not None for row in chunk.to_pylist()]


def items_of(chunks: list[dict[str, Any]]) -> list[Arrival]:
    return [item for each in chunks for item in unpack(each["chunk"])]


def test_of_what_exceeds_a_lanes_bytes_only_the_places_are_passed_on() -> None:
    everything = decoded(rows(), BATCH_BYTES_MAX)
    assert not any(isinstance(item, Withheld) for item in items_of(everything))
    whole = sum(len(item.raw) for item in ITEMS)
    largest = max(len(item.raw) for item in ITEMS)
    for bytes_max in (0, whole // 3, whole - 1):
        chunks = decoded(rows(), bytes_max)
        items = items_of(chunks)
        passed = sum(len(item.raw) for item in items if isinstance(item, Input))
        assert bytes_max < passed <= bytes_max + largest
        assert {item.source for item in items} == {item.source for item in items_of(everything)}
        # the lane finds that it is too much, and holds all of it
        found = arrived(
            (
                Chunk(
                    *(each[name] for name in ("topic", "partition", "first_offset", "end_offset", "records", "chunk"))
                )
                for each in chunks
            ),
            bytes_max,
        )
        assert found.too_large
        assert [type(item) for item in found.items] == [LaneOrder]
        for item in ITEMS:
            span = found.left[item.source[:2]]
            assert span.first <= item.source.offset < span.end


def test_orders_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to `blocks` may write orders, which are no inputs: none of the other bounds counts them."""
    skips = frozenset(Source("a" * 200, 0, offset) for offset in range(1_000))
    value = encode_order(CHAIN.lane, skips)
    monkeypatch.setattr(decode_stage_module, "ORDER_BYTES_MAX", 3 * len(value))
    monkeypatch.setattr(decode_stage_module, "CHUNK_BYTES", len(value))
    records = [(f"{PREFIX}blocks", 0, at, CHAIN.lane.encode(), value) for at in range(5)]
    chunks = decoded([*records, *rows()], BATCH_BYTES_MAX)
    assert max(len(each["chunk"]) for each in chunks) < 2 * len(value), "a chunk ends with the order that fills it"
    items = items_of(chunks)
    orders = [item for item in items if isinstance(item, LaneOrder)]
    assert [each.source.offset for each in orders] == [0, 1, 2, 3, 4, 3]
    assert [each.skips for each in orders] == [skips] * 3 + [frozenset()] * 3
    assert sum(isinstance(item, Input) for item in items) == sum(isinstance(item, Input) for item in ITEMS)


def test_of_what_belongs_to_no_lane_only_the_ends_are_passed_on() -> None:
    value = bytes(range(256)) * 256
    records = [(f"{PREFIX}blocks", 0, at, b"nobody", value) for at in range(9)]
    letters = items_of(decoded(records, 3 * len(value)))
    assert all(isinstance(letter, DeadLetter) and letter.reason is DeadReason.UNDECODABLE for letter in letters)
    assert [letter.source for letter in letters] == [Source(f"{PREFIX}blocks", 0, at) for at in range(9)]
    assert [len(letter.raw) for letter in letters] == [len(value)] * 4 + [2 * DEAD_LETTER_END_BYTES] * 5  # type: ignore[union-attr]
    assert [letter.whole and letter.whole.size for letter in letters] == [None] * 4 + [len(value)] * 5  # type: ignore[union-attr]


def test_lane_takes_an_eighth_of_its_workers_memory() -> None:
    assert batch_bytes_max(None) == batch_bytes_max(64 * 1024**3) == BATCH_BYTES_MAX
    assert batch_bytes_max(1024**3) == 128 * 1024**2


def test_framed_records_are_passed_on_as_the_plain_ones() -> None:
    """So the journal and everything behind it need no registry, and a repeated batch reads the same."""
    codec = job_codec(DEFINITIONS.values())
    ids = {id_header(number): header for number, header in enumerate(sorted(codec.by_header))}
    frames = {header: frame for frame, header in ids.items()}
    framed = [(*row[:-1], frames[row[-1][:HEADER_SIZE]] + row[-1][HEADER_SIZE:]) for row in rows()]
    assert decoded(framed, BATCH_BYTES_MAX, ids) == decoded(rows(), BATCH_BYTES_MAX)
    unknown = items_of(decoded(framed, BATCH_BYTES_MAX, {id_header(999): b""}))
    assert {type(item) for item in unknown} == {DeadLetter}
    assert {item.reason for item in unknown if isinstance(item, DeadLetter)} == {DeadReason.UNKNOWN_SCHEMA}


def test_what_is_passed_over_is_one_letter_of_no_lane() -> None:
    decoder = DecodeSettings(KINDS, DEFINITIONS).opened()()
    decoder.pass_over(OffsetRange("p.blocks", 3, 5, 9))
    chunk = decoder.take()
    assert chunk is not None
    (row,) = chunk.to_pylist()
    (letter,) = unpack(row["chunk"])
    assert (row["lane"], row["records"], letter.source) == ("", 1, Source("p.blocks", 3, 5))
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, letter.raw, letter.whole) == (DeadReason.LIMIT, b"", None)
    assert letter.detail.startswith("offsets 5 to 8 are a compressed batch that does not fit")
