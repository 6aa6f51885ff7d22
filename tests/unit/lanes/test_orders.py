# SPDX-License-Identifier: Apache-2.0
"""Orders to parked lanes: they take what they hold, without what is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.lanes.backend import Attempt
from tests.unit.lanes.chains import PREFIX
from tests.unit.lanes.running import (
    FAULTY_BATCH,
    Running,
    batches_of,
    failing,
    undisturbed,
)
from validator.codec.encode import reason_of
from validator.codec.inflight import Arrival, pack, unpack
from validator.codec.json_form import to_json
from validator.codec.orders import InputSpan, LaneOrder, decode_order, encode_order
from validator.core.inputs import DeadReason, Input, RecordKind, Source, Unreadable
from validator.core.scale import DecodeError
from validator.lanes import parked as parked_module
from validator.lanes import parking as parking_module
from validator.lanes.arrived import Inputs
from validator.lanes.parked import Fault, Parked, Span, point_of, says_parked, stored_parts
from validator.lanes.parking import LaneBatch, Suspect
from validator.lanes.store import LaneCache, restore_lane

# --- orders -------------------------------------------------------------------------------------------------------------------------------


def _park(
    running: Running, patch: pytest.MonkeyPatch, error: Callable[[], BaseException] = MemoryError
) -> list[list[Arrival]]:
    """Run the batches; the lane fails in one. Returns the batches."""
    batches = batches_of(running.chain)
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
    batches = batches_of(running.chain)
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
    first, *others = batches_of(running.chain)
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
    for items in batches_of(running.chain):
        running.run(items)
        running.order()
    assert running.output() == undisturbed(running).output()


def test_point_is_noted_before_anything_runs(make: Callable[..., Running]) -> None:
    running = make()
    first, second, *_ = batches_of(running.chain)
    running.run(first)
    head = running.store.committed.head
    running.run(second)
    assert running.noted == [("polkadot", point_of(None)), ("polkadot", point_of(head))]


def test_error_of_the_store_is_no_fault_of_the_lane(make: Callable[..., Running]) -> None:
    class Failing(Attempt):
        def load_journal(self) -> list[bytes]:
            raise OSError("the store is gone")

    running = make()
    first, second, *_ = batches_of(running.chain)
    running.run(first)
    now = running.store.committed
    attempt = Failing(now.head, dict(now.slots), list(now.journal))
    batch = LaneBatch(running.definition, attempt, LaneCache(), Inputs(second), running.held)
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


@pytest.mark.parametrize("place", [("t", -1, 5), ("t", 2**32, 5), ("t", 0, -5), ("t" * 250, 0, 5)])
def test_order_about_a_place_that_no_record_has_is_none(place: tuple[str, int, int]) -> None:
    value = encode_order("alpha", frozenset({Source("t", 0, 1), Source(*place)}))
    assert decode_order(value, Source("blocks", 0, 5)) is None


def test_order_to_start_over_names_what_it_takes() -> None:
    inputs = (InputSpan("t", 0, 4, 2**40), InputSpan("t", 7, 0, 1))
    source = Source("blocks", 0, 5)
    value = encode_order("alpha", frozenset(), reversed(inputs), "an id")
    assert decode_order(value, source) == LaneOrder("alpha", frozenset(), source, inputs, "an id")
    assert unpack(pack([LaneOrder("alpha", frozenset(), source, inputs, "an id")])) == [decode_order(value, source)]
    for wrong in (InputSpan("t", 0, 4, 4), InputSpan("t", 2**32, 0, 1), InputSpan("t" * 250, 0, 0, 1)):
        assert decode_order(encode_order("alpha", frozenset(), [wrong]), source) is None
    for length, is_order in ((64, True), (65, False), (8_000_000, False)):
        named = encode_order("alpha", frozenset(), inputs, "i" * length)
        assert (decode_order(named, source) is not None) is is_order, length


def test_order_has_one_form() -> None:
    value = encode_order("alpha", frozenset({Source("t", 0, 1)}))
    lane = value.index(b"\x0aalpha")
    overlong = value[:lane] + b"\x8a\x00alpha" + value[lane + 6 :]
    assert decode_order(value, Source("blocks", 0, 5)) is not None
    assert decode_order(overlong, Source("blocks", 0, 5)) is None


def test_orders_to_a_parked_lane_do_not_accumulate_without_limit(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_module, "PARKED_SKIPS_MAX", 25)
    running = make()
    _park(running, monkeypatch)
    with monkeypatch.context() as patched:
        failing(MemoryError)(patched, running)
        for number in range(10):
            running.order(*(Source("none", number, at) for at in range(10)))
        for number, size, kept in ((20, 10, 10), (21, 10, 20), (22, 5, 25), (23, 10, 10)):
            running.order(*(Source("none", number, at) for at in range(size)))
            parked = running.parked()
            assert parked is not None
            assert len(parked.skips) == kept, "as many as allowed, and never more"
        running.order(*(Source("none", 9, at) for at in range(10)))
    parked = running.parked()
    assert parked is not None
    assert len(parked.skips) <= 25
    assert {Source("none", 9, at) for at in range(10)} <= parked.skips, "the last order counts in any case"
    running.order()
    assert running.parked() is None


def test_skips_of_an_order_outlive_the_deaths_of_workers(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    batches = _park(running, monkeypatch)
    skipped = next(item.source for item in batches[-1] if isinstance(item, Input) and item.kind == RecordKind.CANDIDATE)
    running.suspects[running.chain.lane] = Suspect(point_of(running.store.committed.head), "its worker died 3 times")
    running.order(skipped)
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.WORKER
    assert parked.skips == {skipped}


def test_lane_that_was_parked_and_is_started_over_says_that_it_runs(make: Callable[..., Running]) -> None:
    for was_parked in (False, True):
        running = make()
        batches = batches_of(running.chain)
        running.was_parked = was_parked
        for items in batches:
            running.run(items)
        told = [to_json("lanes", each.value)["state"] for each in running.log.records if says_parked(each)]
        assert told == ["running"] * was_parked
