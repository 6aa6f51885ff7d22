# SPDX-License-Identifier: Apache-2.0
"""What a batch brings for a lane is bounded in bytes; beyond that the lane holds it, and takes it in shares."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.unit.lanes.running import BATCHES, FAULTY_BATCH, Running, batches_of, chunk, failing, undisturbed
from validator.codec.inflight import Arrival
from validator.codec.json_form import to_json
from validator.codec.orders import LaneOrder
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.lanes import arrived as module
from validator.lanes import parking as parking_module
from validator.lanes.arrived import Chunk, Inputs, arrived, runs
from validator.lanes.marker import consumed_by
from validator.lanes.parked import Fault, Partition, Span, held_with, says_parked
from validator.lanes.parking import LaneBatch
from validator.lanes.store import LaneCache


def letters(topic: str, partition: int, offsets: Iterable[int], size: int = 10) -> list[Arrival]:
    return [DeadLetter("a", DeadReason.LIMIT, "", Source(topic, partition, at), b"x" * size) for at in offsets]


ORDER = LaneOrder("a", frozenset({Source("t", 0, 3)}), Source("u", 1, 9))
PARTS = [letters("t", 0, range(3, 6)), letters("t", 0, range(8, 10)), letters("u", 1, range(5, 8)), [ORDER]]


def test_inputs_are_in_order_whatever_the_order_of_their_chunks() -> None:
    shuffled = random.Random(5).sample(PARTS, len(PARTS))
    found = arrived(map(chunk, shuffled), 10_000)
    assert (found.left, found.too_large) == ({}, "")
    assert list(found.items) == [item for part in PARTS for item in part]
    assert [item for run in runs(map(chunk, PARTS), 1) for item in run] == list(found.items)
    assert [len(run) for run in runs(map(chunk, PARTS), 1)] == [3, 2, 3, 1, 0]


def test_of_what_is_too_large_only_orders_and_places_are_kept() -> None:
    most = sum(len(chunk(part).packed) for part in PARTS)
    assert arrived(map(chunk, PARTS), most).left == {}
    for bytes_max in (0, most // 2, most - 1):
        found = arrived(map(chunk, PARTS), bytes_max)
        assert list(found.items) == [ORDER]
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
    assert (list(found.items), found.left) == ([ORDER], {("t", 0): Span(3, 10), ("u", 1): Span(5, 10)})
    assert "do not fit in the worker's memory" in found.too_large


@pytest.mark.parametrize("seed", range(20))
def test_parts_follow_from_the_batch_and_not_from_its_chunks(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each has the same share of every partition's offsets, whatever chunks came in whatever order."""
    rng = random.Random(seed)
    offsets = {
        place: sorted(rng.sample(range(1_000, 1_000 + 3 * count), count))
        for place, count in ((("t", 0), 400), (("t", 1), 200), (("u", 0), rng.choice([1, 5])))
    }
    monkeypatch.setattr(module, "PART_RECORDS", 60)
    items = [item for place, found in offsets.items() for item in letters(*place, found)]
    parts, again = (list(arrived(_chunks(items, rng), 10**6).items.parts()) for _ in range(2))
    assert parts == again
    assert len(parts) == -(-len(items) // 60)
    assert sorted(item for part in parts for item in part) == items
    for part in parts:
        assert [item.source for item in part] == sorted(item.source for item in part)
    for place, found in offsets.items():
        span, at = found[-1] + 1 - found[0], 0
        for number, part in enumerate(parts, start=1):
            here = [item.source.offset for item in part if item.source[:2] == place]
            assert here == found[at : at + len(here)]
            at += len(here)
            assert all(each < found[0] + span * number / len(parts) for each in here)
            assert at == len(found) or found[at] >= found[0] + span * number // len(parts)


def _chunks(items: list[Arrival], rng: random.Random) -> list[Chunk]:
    runs: list[list[Arrival]] = []
    for item in items:
        if not runs or runs[-1][-1].source[:2] != item.source[:2] or rng.random() < 0.05:
            runs.append([])
        runs[-1].append(item)
    return rng.sample(list(map(chunk, runs)), len(runs))


def test_small_batch_has_one_part() -> None:
    assert list(arrived(map(chunk, PARTS), 10_000).items.parts()) == [[item for part in PARTS for item in part]]
    assert list(arrived([], 1).items.parts()) == list(Inputs([]).parts()) == [[]]


@pytest.mark.parametrize("parts", [2, 7, 60])
def test_lane_gives_the_same_for_a_batch_in_parts(make: Callable[..., Running], parts: int) -> None:
    running, whole = make(), undisturbed(make())
    running.parts = parts
    for items in batches_of(running.chain):
        running.run(items)
        assert consumed_by(items, running.log.last.consumed) == running.log.last.consumed
    assert running.output("dead-letters") == whole.output("dead-letters")
    assert sorted(running.output()) == sorted(whole.output())
    assert _statuses(running) == _statuses(whole)
    assert parts * BATCHES / 2 < len(running.store.committed.journal) <= parts * BATCHES
    before = running.cache.take("polkadot")
    running.cache = LaneCache()  # another worker
    running.run([])
    after = running.cache.take("polkadot")
    assert before is not None
    assert after is not None
    assert after.processor.snapshot() == before.processor.snapshot()


def _statuses(running: Running) -> list[bytes]:
    return [each.value for each in running.log.records if each.topic == "lanes"]


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
@pytest.mark.parametrize("part", [0, 1, 4])
def test_fault_in_a_later_part_parks_the_lane_with_the_whole_batch(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, error: type[Exception], part: int
) -> None:
    running = make()
    running.parts = 5
    for number, items in enumerate(batches_of(running.chain)):
        with monkeypatch.context() as patched:
            if number == FAULTY_BATCH:
                _fails_at(patched, part, error)
            running.run(items)
        if number == FAULTY_BATCH:
            parked = running.parked()
            assert parked is not None
            assert parked.fault is (Fault.MEMORY if error is MemoryError else Fault.BUG)
            assert parked.resuming == (error is MemoryError), "what does not fit is taken in shares"
            assert parked.held == held_with({}, items)
    while running.parked() is not None:
        running.order()
    assert sorted(running.output()) == sorted(undisturbed(running).output())


def _fails_at(patch: pytest.MonkeyPatch, part: int, error: type[Exception]) -> None:
    """Let the unpacking of a part fail, once."""
    unpack, calls = module.unpack, iter(range(100))

    def fails(packed: bytes) -> list[Arrival]:
        if next(calls) == part:
            raise error
        return unpack(packed)

    patch.setattr(module, "unpack", fails)


def test_share_that_does_not_fit_stays_with_the_lane_until_an_order(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not fit in the next batch either."""
    running = make()
    _park(running, monkeypatch)
    with monkeypatch.context() as patched:
        failing(MemoryError)(patched, running)
        running.order()
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.MEMORY, False)
    running.order()
    assert running.parked() is None


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
    definition: object, backend: object, cache: object, items: Inputs, *rest: object, **more: object
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

    def some(lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
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
