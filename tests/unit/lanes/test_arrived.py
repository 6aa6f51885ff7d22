# SPDX-License-Identifier: Apache-2.0
"""What a batch brings for a lane is bounded in bytes; beyond that the lane holds it, and takes it in shares."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.unit.lanes.running import FAULTY_BATCH, Running, batches_of, failing, make, undisturbed
from validator.codec.inflight import Arrival, pack
from validator.codec.json_form import to_json
from validator.codec.orders import LaneOrder
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.lanes import arrived as module
from validator.lanes import parking as parking_module
from validator.lanes.arrived import Chunk, arrived, runs
from validator.lanes.parked import Fault, Place, Span, says_parked
from validator.lanes.parking import LaneBatch

__all__ = ["make"]


def letters(topic: str, partition: int, offsets: range, size: int = 10) -> list[Arrival]:
    return [DeadLetter("a", DeadReason.LIMIT, "", Source(topic, partition, at), b"x" * size) for at in offsets]


def chunk(items: list[Arrival]) -> Chunk:
    return Chunk(*items[0].source, pack(items))


ORDER = LaneOrder("a", frozenset({Source("t", 0, 3)}), Source("u", 1, 9))
PARTS = [letters("t", 0, range(3, 6)), letters("t", 0, range(8, 10)), letters("u", 1, range(5, 8)), [ORDER]]


def test_inputs_are_in_order_whatever_the_order_of_their_chunks() -> None:
    shuffled = random.Random(5).sample(PARTS, len(PARTS))
    found = arrived(map(chunk, shuffled), 10_000)
    assert found == ([item for part in PARTS for item in part], {}, "")
    assert [item for run in runs(map(chunk, PARTS), 1) for item in run] == found.items
    assert [len(run) for run in runs(map(chunk, PARTS), 1)] == [3, 2, 3, 1, 0]


def test_of_what_is_too_large_only_orders_and_places_are_kept() -> None:
    most = sum(len(chunk(part).packed) for part in PARTS)
    assert arrived(map(chunk, PARTS), most).left == {}
    for bytes_max in (0, most // 2, most - 1):
        found = arrived(map(chunk, PARTS), bytes_max)
        assert found.items == [ORDER]
        assert found.left == {("t", 0): Span(3, 10), ("u", 1): Span(5, 10)}
        assert found.too_large == f"its records in one batch have more than {bytes_max} bytes"


def test_what_does_not_fit_in_memory_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    unpack, calls = module.unpack, iter(range(100))

    def fails_once(packed: bytes) -> list[Arrival]:
        if next(calls) == 2:
            raise MemoryError
        return unpack(packed)

    monkeypatch.setattr(module, "unpack", fails_once)
    found = arrived(map(chunk, PARTS), 10_000)
    assert (found.items, found.left) == ([ORDER], {("t", 0): Span(3, 10), ("u", 1): Span(5, 10)})
    assert "do not fit in the worker's memory" in found.too_large


def test_lane_with_too_large_a_batch_is_parked_and_takes_it_in_shares(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    batches = batches_of(running.chain)
    with monkeypatch.context() as patched:
        patched.setattr("tests.unit.lanes.running.LaneBatch", _of_places)
        running.run(batches[0])
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.MEMORY
    assert parked.reason == "lane polkadot: its records in one batch have more than 1 bytes"
    assert parked.resuming
    assert running.output() == []
    monkeypatch.setattr(parking_module, "RESUMED_OFFSETS_MAX", 20)
    for items in batches[1:]:
        before = running.parked()
        running.run(items)
        after = running.parked()
        assert before is None or after is None or after.held != before.held, "each batch takes a share"
    assert running.output() != []
    while running.parked() is not None:
        running.order()
    assert running.output() == undisturbed(running).output()


def _of_places(
    definition: object, backend: object, cache: object, items: list[Arrival], *rest: object, **more: object
) -> LaneBatch:
    found = arrived([chunk([item]) for item in items], 1)
    return LaneBatch(definition, backend, cache, found.items, *rest, left=found.left, too_large=found.too_large, **more)  # type: ignore[arg-type]


def test_shares_stay_in_proportion_if_one_partition_has_too_many_bytes(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    _park(running, monkeypatch)
    parked = running.parked()
    assert parked is not None
    before = dict(parked.held)
    heavy = max(before, key=lambda place: before[place].end - before[place].first)
    held = running.held

    def some(lane: str, place: Place, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        items, end = held(lane, place, span, bytes_max)
        if place != heavy:
            return items, end
        end = span.first + (span.end - span.first) // 4
        return [item for item in items if item.source.offset < end], end

    monkeypatch.setattr(running, "held", some)
    running.order()
    parked = running.parked()
    assert parked is not None
    assert parked.resuming
    for place, span in before.items():
        size = span.end - span.first
        assert (parked.held[place].first - span.first) / size <= 0.25 + 1 / size, place
    monkeypatch.setattr(running, "held", held)
    running.order()
    assert running.parked() is None
    assert sorted(running.output()) == sorted(undisturbed(running).output())


def test_lane_that_has_no_memory_to_read_its_inputs_again_stays_parked(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    _park(running, monkeypatch)

    def fails(*_: object) -> Iterator[None]:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(running, "held", fails)
        running.order()
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.MEMORY, False)
    assert [to_json("lanes", each.value)["state"] for each in running.log.records if says_parked(each)] == [
        "parked"
    ] * 2
    running.order()
    assert running.parked() is None


def _park(running: Running, patch: pytest.MonkeyPatch) -> None:
    for number, items in enumerate(batches_of(running.chain)):
        with patch.context() as patched:
            if number == FAULTY_BATCH:
                failing(MemoryError)(patched, running)
            running.run(items)
