# SPDX-License-Identifier: Apache-2.0
"""Ten lanes of which nine fail, each in another way: they are parked, the tenth continues, and nothing is lost or emitted twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.lanes.backend import Attempt, Store
from tests.unit.lanes.chains import PREFIX, Chain, chain, definition_of, inputs_of
from validator.codec.encode import BlockOutput, OutputRecord, reason_of
from validator.codec.inflight import Arrival
from validator.codec.json_form import to_json
from validator.codec.orders import LaneOrder, decode_order, encode_order
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import DeadReason, Input, RecordKind, Source, Unreadable
from validator.core.lane import Lane
from validator.core.scale import DecodeError
from validator.lanes import parking as parking_module
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, Parked, Place, Span, point_of, says_parked, stored_parts
from validator.lanes.parking import InputsGone, LaneBatch, Suspect
from validator.lanes.processor import LaneProcessor
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache, restore_lane
from validator.simulate import SimulationSettings

BATCHES = 6
FAULTY_BATCH = 3
ORDERS: Place = (f"{PREFIX}blocks", 9)


@dataclass
class Log:
    """What is committed of one lane (`validator.lanes.sink.BatchWriter`)."""

    records: list[OutputRecord] = field(default_factory=list)
    last: Marker = field(default_factory=Marker)
    open: list[OutputRecord] = field(default_factory=list)

    def is_current(self) -> bool:
        return True

    def marker(self, places: Any) -> Marker:
        return self.last.after(None, dict.fromkeys(places, 0))

    def written_dead_letters(self) -> set[bytes]:
        return {dict(each.headers)["source"] for each in self.records if each.topic == "dead-letters"}

    def write(self, records: Any) -> None:
        self.open += records

    def commit(self, marker: Marker) -> None:
        self.records += self.open
        self.open, self.last = [], marker


@dataclass
class Running:
    """One lane with its store, its log, and Kafka's copy of its inputs."""

    chain: Chain
    definition: LaneDefinition
    store: Store = field(default_factory=Store)
    cache: LaneCache = field(default_factory=LaneCache)
    log: Log = field(default_factory=Log)
    kafka: dict[Source, Arrival] = field(default_factory=dict)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    gone: bool = False
    noted: list[tuple[str, str]] = field(default_factory=list)

    def run(self, items: list[Arrival]) -> None:
        """Run one batch and commit it."""
        self.kafka |= {item.source: item for item in items}
        attempt = self.store.attempt()
        batch = LaneBatch(
            self.definition, attempt, self.cache, items, self.held, self.suspects,
            noted=lambda *point: self.noted.append(point), on_bug=lambda _: None,
        )  # fmt: skip
        sink = TransactionalSink(lambda _: self.log)
        sink.write(self.chain.lane, list(batch.run()))
        sink.commit(self.chain.lane, batch.consumed)
        self.store.commit(attempt)

    def held(self, lane: str, place: Place, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        """Read inputs again."""
        assert lane == self.chain.lane
        assert bytes_max > 0
        if self.gone:
            raise InputsGone("retention removed them")
        offsets = range(span.first, span.end)
        return [self.kafka[Source(*place, at)] for at in offsets if Source(*place, at) in self.kafka], span.end

    def order(self, *skips: Source) -> None:
        """Order the lane to continue."""
        orders = sum(source[:2] == ORDERS for source in self.kafka)
        self.run([LaneOrder(self.chain.lane, frozenset(skips), Source(*ORDERS, orders))])

    def parked(self) -> Parked | None:
        """Return how the lane is parked."""
        return stored_parts(self.store.committed.head)[0]

    def output(self, *but: str) -> list[OutputRecord]:
        """Return what is committed, without statuses and some topics."""
        return [each for each in self.log.records if each.topic not in ("lanes", *but)]


def _batches(of: Chain) -> list[list[Arrival]]:
    items: list[Arrival] = list(inputs_of(of.records))
    at = [len(items) * number // BATCHES for number in range(BATCHES + 1)]
    return [items[begin:end] for begin, end in pairwise(at)]


@pytest.fixture
def make() -> Callable[..., Running]:
    def running(seed: int = 3, lane: str = "polkadot") -> Running:
        of = chain(SimulationSettings(seed=seed, blocks=12, candidates_per_block=3, session_length_blocks=5, lane=lane))
        return Running(of, definition_of(of))

    return running


def undisturbed(running: Running) -> Running:
    """Return the same lane after the same batches without a fault."""
    alone = Running(running.chain, running.definition)
    for items in _batches(running.chain):
        alone.run(items)
    return alone


# --- nine ways to fail --------------------------------------------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch, Running], None]


def failing(make_error: Callable[[], BaseException]) -> Break:
    """Return a fault after a lane's first block of a batch."""

    def fail(patch: pytest.MonkeyPatch, running: Running) -> None:
        process = LaneProcessor.process

        def some(self: LaneProcessor, items: Any) -> Iterator[BlockOutput]:
            for at, output in enumerate(process(self, items)):
                if at == 1 and self.lane.name == running.chain.lane:
                    break
                yield output
            if self.lane.name == running.chain.lane:
                raise make_error()

        patch.setattr(LaneProcessor, "process", some)

    return fail


def worker_dies(_: pytest.MonkeyPatch, running: Running) -> None:
    running.suspects[running.chain.lane] = Suspect(point_of(running.store.committed.head), "its worker died 3 times")


def head_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    running.store.committed.head = (running.store.committed.head or b"")[:-5]


def page_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    slots = running.store.committed.slots
    number = min(slots)
    slots[number] = slots[number][:-1] + bytes([slots[number][-1] ^ 1])


def journal_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    running.store.committed.journal[0] = running.store.committed.journal[0][:-1]


def too_much_waits(patch: pytest.MonkeyPatch, running: Running) -> None:
    settings = replace(running.definition.settings, waiting_bytes_max=1)
    init = Lane.__init__

    def small(self: Lane, name: str, rules: Any, executed: int, _: Any = None) -> None:
        init(self, name, rules, executed, settings if name == running.chain.lane else None)

    patch.setattr(Lane, "__init__", small)
    running.cache.take(running.chain.lane)


FAULTS: dict[str, tuple[Break, Fault, str]] = {
    "handler": (failing(lambda: HandlerFault("tally", "a", "it did not end")), Fault.HANDLER, "it did not end"),
    "memory": (failing(MemoryError), Fault.MEMORY, r"raise \[job\] worker_memory"),
    "exits": (failing(lambda: SystemExit(3)), Fault.BUG, "SystemExit at test_parking.py"),
    "bug": (failing(lambda: KeyError("x")), Fault.BUG, "KeyError at test_parking.py"),
    "dies": (worker_dies, Fault.WORKER, "its worker died 3 times"),
    "head": (head_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "page": (page_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "journal": (journal_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "waiting": (too_much_waits, Fault.WAITING, "waiting_bytes_max"),
}  # fmt: skip


def test_nine_lanes_fail_in_nine_ways_and_the_tenth_goes_on(make: Callable[..., Running]) -> None:
    lanes = {name: make(seed, name) for seed, name in enumerate((*FAULTS, "healthy"), 30)}
    batches = {name: _batches(running.chain) for name, running in lanes.items()}
    before: dict[str, Attempt] = {}
    for number in range(BATCHES):
        for name, running in lanes.items():
            with pytest.MonkeyPatch.context() as patch:
                if number == FAULTY_BATCH and name in FAULTS:
                    committed = running.store.committed
                    before[name] = replace(committed, slots=dict(committed.slots), journal=list(committed.journal))
                    FAULTS[name][0](patch, running)
                running.run(batches[name][number])
    for name, (_, fault, reason) in FAULTS.items():
        parked = lanes[name].parked()
        assert parked is not None, name
        assert parked.fault is fault, parked
        assert re.search(reason, parked.reason), parked.reason
        assert parked.reason.startswith(f"lane {name}") or fault is Fault.WORKER
        rest = [item.source for number in range(FAULTY_BATCH, BATCHES) for item in batches[name][number]]
        for place, span in parked.held.items():
            offsets = [source.offset for source in rest if source[:2] == place]
            assert span == (min(offsets), max(offsets) + 1)
        assert {source[:2] for source in rest} == set(parked.held)
    alone = undisturbed(lanes["healthy"])
    assert lanes["healthy"].log.records == alone.log.records, "byte for byte what it emits without the others"

    for name, running in lanes.items():
        if name == "healthy":
            continue
        running.suspects.clear()
        _repair(running, before[name])
        running.order()
        assert running.parked() is None, name
        alone = undisturbed(running)
        assert sorted(running.output()) == sorted(alone.output())
        assert running.output("dead-letters") == alone.output("dead-letters"), name
        restored = restore_lane(running.definition, running.store.attempt())
        expected = restore_lane(running.definition, alone.store.attempt())
        assert restored is not None
        assert expected is not None
        assert restored.snapshot() == expected.snapshot()


def _repair(running: Running, before: Attempt) -> None:
    """Put the state of before the fault back, as a backup of the checkpoint would, with what is held."""
    parked = running.parked()
    assert parked is not None
    running.store.committed = replace(before, head=parked.encode(before.head))


# --- orders -------------------------------------------------------------------------------------------------------------------------------


def _park(
    running: Running, patch: pytest.MonkeyPatch, error: Callable[[], BaseException] = MemoryError
) -> list[list[Arrival]]:
    """Run the batches; the lane fails in one. Returns the batches."""
    batches = _batches(running.chain)
    for number, items in enumerate(batches):
        with patch.context() as patched:
            if number == FAULTY_BATCH:
                failing(error)(patched, running)
            running.run(items)
    assert running.parked() is not None
    return batches


def test_parked_lane_says_how_it_is_once(make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    running = make()
    _park(running, monkeypatch)
    (told,) = [to_json("lanes", each.value) for each in running.log.records if says_parked(each)]
    parked = running.parked()
    assert parked is not None
    executed = running.log.last.block
    assert (told["lane"], told["state"], told["fault"], told["since_block"]) == (
        "polkadot",
        "parked",
        "memory",
        executed,
    )
    assert told["reason"] == parked.reason
    commits = len(running.log.records)
    running.run([])
    assert len(running.log.records) == commits
    running.order()
    assert [to_json("lanes", each.value)["state"] for each in running.log.records if says_parked(each)] == [
        "parked",
        "running",
    ]


def test_resuming_lane_takes_its_share_of_each_partition_in_each_batch(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    _park(running, monkeypatch)
    monkeypatch.setattr(parking_module, "RESUMED_OFFSETS_MAX", 20)
    orders = 0
    while running.parked() is not None:
        before = running.parked()
        assert before is not None
        running.order()
        orders += 1
        after = running.parked()
        if after is not None:
            assert after.resuming
            taken = sum(
                after.held.get(place, Span(span.end, span.end)).first - span.first
                for place, span in before.held.items()
            )
            assert 0 < taken <= 20 + len(before.held)
    assert orders > 3
    assert running.output() == undisturbed(running).output()


def test_fault_of_a_resuming_lane_parks_it_again(make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    running = make()
    _park(running, monkeypatch)
    before = running.parked()
    assert before is not None
    with monkeypatch.context() as patched:
        failing(lambda: KeyError("y"))(patched, running)
        running.order()
    again = running.parked()
    assert again is not None
    assert (again.fault, again.resuming) == (Fault.BUG, False)
    assert {place: again.held[place] for place in before.held} == before.held
    running.order()
    assert running.output() == undisturbed(running).output()


def test_skipped_record_is_a_dead_letter_of_its_own_kind(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    batches = _park(running, monkeypatch)
    parked = running.parked()
    assert parked is not None
    assert parked.since_block is not None
    held = next(
        item
        for item in batches[-1]
        if isinstance(item, Input) and item.kind == RecordKind.CANDIDATE and item.block > parked.since_block
    )
    emitted = next(
        item for item in batches[0] if isinstance(item, Input) and item.block <= (running.log.last.block or 0)
    )
    running.order(held.source, emitted.source)
    assert running.parked() is None
    (letter,) = [each for each in running.log.records if each.topic == "dead-letters"]
    assert reason_of(letter) is DeadReason.SKIPPED
    record = to_json("dead-letters", letter.value)
    assert (record["topic"], record["partition"], record["offset"]) == tuple(held.source)
    assert record["raw"] == held.raw.hex()
    assert running.log.last.block == held.block - 1, "its block waits for another record in its place"
    running.run([held._replace(source=held.source._replace(offset=10_000))])
    assert running.output("dead-letters") == undisturbed(running).output("dead-letters")


def test_skipped_record_may_wait_in_the_lane(make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    running = make()
    batches = _batches(running.chain)
    waits = batches[1][0]
    assert isinstance(waits, Input)
    far = waits._replace(block=4_000_000_000, source=waits.source._replace(offset=20_000))
    running.run([far])
    with monkeypatch.context() as patched:
        failing(MemoryError)(patched, running)
        running.run(batches[0])
    running.order(far.source)
    letters = [each for each in running.log.records if each.topic == "dead-letters"]
    assert [reason_of(letter) for letter in letters] == [DeadReason.SKIPPED]
    restored = restore_lane(running.definition, running.store.attempt())
    assert restored is not None
    assert (restored.lane.far_records, restored.lane.counters.dead) == (0, 1)


def test_record_that_breaks_the_decoder_parks_its_lane_until_it_is_skipped(make: Callable[..., Running]) -> None:
    running = make()
    broken = Unreadable(
        "polkadot", "decoding fails with KeyError: 'x'", Source(f"{PREFIX}candidates", 0, 10_000), b"raw"
    )
    first, *others = _batches(running.chain)
    running.run([*first, broken])
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.BUG
    assert "the record at test.candidates:0:10000: decoding fails with KeyError" in parked.reason
    for items in others:
        running.run(items)
    running.order(broken.source)
    letters = [each for each in running.log.records if each.topic == "dead-letters"]
    assert [reason_of(letter) for letter in letters] == [DeadReason.SKIPPED]
    assert running.output("dead-letters") == undisturbed(running).output("dead-letters")


def test_inputs_that_retention_removed_park_the_lane_again(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    _park(running, monkeypatch)
    running.gone = True
    running.order()
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.INPUTS, False)
    assert parked.reason == "lane polkadot: retention removed them"


def test_order_to_a_running_lane_changes_nothing(make: Callable[..., Running]) -> None:
    running = make()
    for items in _batches(running.chain):
        running.run(items)
        running.order()
    assert running.output() == undisturbed(running).output()


def test_point_is_noted_before_anything_runs(make: Callable[..., Running]) -> None:
    running = make()
    first, second, *_ = _batches(running.chain)
    running.run(first)
    head = running.store.committed.head
    running.run(second)
    assert running.noted == [("polkadot", point_of(None)), ("polkadot", point_of(head))]


def test_error_of_the_store_is_no_fault_of_the_lane(make: Callable[..., Running]) -> None:
    class Failing(Attempt):
        def load_journal(self) -> list[bytes]:
            raise OSError("the store is gone")

    running = make()
    first, second, *_ = _batches(running.chain)
    running.run(first)
    now = running.store.committed
    attempt = Failing(now.head, dict(now.slots), list(now.journal))
    batch = LaneBatch(running.definition, attempt, LaneCache(), second, running.held)
    with pytest.raises(OSError, match="gone"):
        list(batch.run())
    assert attempt.head == now.head


# --- encodings ----------------------------------------------------------------------------------------------------------------------------


def test_parked_lane_and_order_decode_to_what_was_encoded() -> None:
    skips = frozenset({Source("a", 1, 2), Source("b", 0, 2**40)})
    parked = Parked(Fault.HANDLER, "why \u00fc so", 7, {("t", 3): Span(4, 9)}, skips, resuming=True)
    for head in (None, b"", b"\x03head"):
        assert stored_parts(parked.encode(head)) == (parked, head)
    assert stored_parts(None) == (None, None)
    assert stored_parts(b"\x03head") == (None, b"\x03head")
    whole = parked.encode(b"head")
    for size in range(1, len(whole)):
        with pytest.raises(DecodeError):
            stored_parts(whole[:size])
    order = encode_order("alpha", skips)
    source = Source("blocks", 0, 5)
    assert decode_order(order, source) == LaneOrder("alpha", skips, source)
    assert [decode_order(bad, source) for bad in (None, b"", order[:-1], order + b"\0", b"x" + order)] == [None] * 5
