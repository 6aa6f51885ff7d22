# SPDX-License-Identifier: Apache-2.0
"""A lane whose state is damaged starts over by an order, alone: nothing is lost, and nothing is emitted twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.lanes.running import BATCHES, FAULTY_BATCH, ORDERS, Running, batches_of, failing, undisturbed
from validator.codec.encode import source_of
from validator.codec.orders import InputSpan, LaneOrder
from validator.core.inputs import Input, Source
from validator.lanes import parking as parking_module
from validator.lanes import store as store_module
from validator.lanes.parked import Fault, Parked, Span, point_of
from validator.lanes.parking import Suspect
from validator.lanes.store import restore_lane


def head(running: Running) -> None:
    running.store.committed.head = (running.store.committed.head or b"")[:-5]


def page(running: Running) -> None:
    slots = running.store.committed.slots
    number = min(slots)
    slots[number] = slots[number][:-1] + bytes([slots[number][-1] ^ 1])


def page_gone(running: Running) -> None:
    del running.store.committed.slots[max(running.store.committed.slots)]


def journal(running: Running) -> None:
    running.store.committed.journal[0] = running.store.committed.journal[0][:-1]


def parked_record(running: Running) -> None:
    """Damage what the store holds of a lane that is parked already."""
    head(running)
    running.run([])
    assert running.parked() is not None
    running.store.committed.head = (running.store.committed.head or b"")[:9]


DAMAGES = [head, page, page_gone, journal, parked_record]


def damaged(running: Running, damage: Callable[[Running], None]) -> None:
    """Run all batches, and damage the state before one of them."""
    for number, items in enumerate(batches_of(running.chain)):
        if number == FAULTY_BATCH:
            running.cache.take(running.chain.lane)
            damage(running)
        running.run(items)
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.STATE


def check_as_if_nothing_had_happened(running: Running) -> None:
    assert running.parked() is None
    alone = undisturbed(running)
    assert sorted(running.output()) == sorted(alone.output())
    assert len({(each.topic, each.key, each.value) for each in running.output()}) == len(running.output())
    restored = restore_lane(running.definition, running.store.attempt())
    expected = restore_lane(running.definition, alone.store.attempt())
    assert restored is not None
    assert expected is not None
    assert restored.snapshot() == expected.snapshot()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("share", [20, 50_000])
def test_lane_with_a_damaged_state_starts_over(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, damage: Callable[[Running], None], share: int
) -> None:
    monkeypatch.setattr(parking_module, "RESUMED_OFFSETS_MAX", share)
    running = make(8)
    damaged(running, damage)
    running.order()
    parked = running.parked()
    assert parked is not None, "its state is still damaged"
    assert (parked.fault, parked.resuming) == (Fault.STATE, False)
    if damage is not parked_record:
        assert "`validator lanes resume --lane polkadot --rebuild`" in parked.reason
    running.order(start_over=True)
    orders = 0
    while running.parked() is not None:
        running.order()
        orders += 1
    assert (orders > BATCHES) == (share == 20)
    check_as_if_nothing_had_happened(running)


def test_second_order_to_start_over_loses_nothing_that_the_lane_has_taken_since_the_first(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who runs the command twice writes both orders before the lane has read one; more inputs come between them."""
    monkeypatch.setattr(parking_module, "RESUMED_OFFSETS_MAX", 20)
    running = make(8)
    damaged(running, DAMAGES[0])
    early = running.ordered(start_over=True)
    place = early.source
    few = tuple(each._replace(end=each.first + 1) for each in early.inputs[:1])
    running.order(start_over=True)
    running.run([early._replace(source=place._replace(offset=place.offset + 1), inputs=few)])
    while running.parked() is not None:
        running.order()
    check_as_if_nothing_had_happened(running)


def test_pages_of_the_state_that_is_given_up_do_not_stay(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "UNSAVED_BYTES_MAX", 0)  # each batch saves its pages
    running = make(8)
    damaged(running, page)
    running.store.committed.slots[77] = b"a page that the new state does not have"
    running.order(start_over=True)
    assert 77 not in running.store.committed.slots
    check_as_if_nothing_had_happened(running)


def test_fault_while_a_lane_starts_over_leaves_it_at_its_beginning(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make(8)
    damaged(running, page)
    with monkeypatch.context() as patched:
        failing(lambda: KeyError("y"))(patched, running)
        running.order(start_over=True)
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.BUG, False)
    running.order()
    check_as_if_nothing_had_happened(running)


def test_lane_that_starts_over_holds_what_arrives_meanwhile(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make(8)
    *before, last = batches_of(running.chain)
    for items in before:
        running.run(items)
    running.cache.take(running.chain.lane)
    page(running)
    running.run([])
    monkeypatch.setattr(parking_module, "RESUMED_OFFSETS_MAX", 20)
    running.order(start_over=True)
    running.run(last)
    while running.parked() is not None:
        running.order()
    check_as_if_nothing_had_happened(running)


def test_order_for_another_checkpoint_does_not_make_a_lane_start_over(make: Callable[..., Running]) -> None:
    running = make(8)
    damaged(running, page)
    running.order(start_over=True, checkpoint="a later one")
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.STATE, False)
    running.order(start_over=True)
    check_as_if_nothing_had_happened(running)


def test_order_to_start_over_does_not_count_for_a_lane_that_runs(make: Callable[..., Running]) -> None:
    """Otherwise a fault in the same batch would make it take everything twice."""
    running = make(8)
    *before, last = batches_of(running.chain)
    for items in before:
        running.run(items)
    with pytest.MonkeyPatch.context() as patched:
        failing(lambda: KeyError("y"))(patched, running)
        running.run([*last, running.ordered(start_over=True)])
    parked = running.parked()
    assert parked is not None
    assert parked.held.keys() == {item.source[:2] for item in last} | {ORDERS}
    running.order()
    check_as_if_nothing_had_happened(running)


def test_suspect_that_is_ordered_to_start_over_gives_up_its_state(make: Callable[..., Running]) -> None:
    running = make(8)
    damaged(running, page)
    running.suspects[running.chain.lane] = Suspect(point_of(running.store.committed.head), "it died three times")
    running.order(start_over=True)
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.WORKER
    running.suspects.clear()
    running.order()
    check_as_if_nothing_had_happened(running)


@pytest.mark.parametrize("noticed_first", [False, True])
def test_order_from_before_the_lane_forgot_what_it_held_does_not_count(
    make: Callable[..., Running], noticed_first: bool
) -> None:
    """The order does not name what the lane had held since, so the lane would continue without it."""
    running = make(8)
    *before, last = batches_of(running.chain)
    for items in before[:-1]:
        running.run(items)
    running.cache.take(running.chain.lane)
    page(running)
    running.run([])
    order = running.ordered(start_over=True)
    running.run(before[-1])
    running.store.committed.head = (running.store.committed.head or b"")[:9]
    if noticed_first:
        running.run(last[:1])
        running.run([order, *last[1:]])
    else:
        running.run([order, *last])
    parked = running.parked()
    assert parked is not None
    assert (parked.fault, parked.resuming) == (Fault.STATE, False)
    running.order(start_over=True)
    check_as_if_nothing_had_happened(running)


def test_what_was_skipped_is_skipped_again_also_in_blocks_that_are_executed(make: Callable[..., Running]) -> None:
    running = make(8)
    first, *others = batches_of(running.chain)
    surplus = next(item for item in first if isinstance(item, Input))
    extra = surplus._replace(index=60_000, source=Source(surplus.source.topic, surplus.source.partition, 20_000))
    running.run([*first, extra])
    for items in others:
        running.run(items)
    running.cache.take(running.chain.lane)
    head(running)
    running.run([])
    running.order(extra.source, start_over=True)
    assert running.parked() is None
    assert [source_of(each) for each in running.log.records if each.topic == "dead-letters"] == [extra.source]
    assert sorted(running.output("dead-letters")) == sorted(undisturbed(running).output("dead-letters"))


def test_spans_of_a_place_are_united() -> None:
    place = ("t", 0)
    parked = Parked(Fault.MEMORY, "", None, {place: Span(3, 9)})
    for span, both in ((Span(5, 12), Span(3, 12)), (Span(1, 4), Span(1, 9)), (Span(4, 5), Span(3, 9))):
        assert parked.holding([], {place: span}).held == {place: both}
    order = LaneOrder("a", frozenset(), Source("t", 0, 1), (InputSpan("t", 0, 0, 5), InputSpan("u", 1, 2, 4)))
    assert parked.obeying([order]).held == {place: Span(0, 9), ("u", 1): Span(2, 4)}
