# SPDX-License-Identifier: Apache-2.0
"""A lane over batches, failures and workers, with a store that commits a batch completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from validator_simulators import SimulationSettings
from validator_simulators.router.load import SettingsLoad, initial_state, load_chain
from validator_simulators.router.load import load as generate_load

from tests.unit.lanes.backend import Attempt, Store
from tests.unit.lanes.batches import CHAIN, DEFINITION, DELAYED, Batch, cut, live, rebuilt, run
from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of, record
from validator.core.lane import WaitingOverflow
from validator.core.rules import RulesEpoch
from validator.core.scale import DecodeError
from validator.errors import UserError
from validator.lanes import slots as slots_module
from validator.lanes import store as store_module
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import Head, LaneCache, Recovery, process_batch, restore_lane
from validator.plugin.runtime import make_runtime


@pytest.mark.parametrize("of", [CHAIN, DELAYED], ids=["immediate", "on-inclusion"])
@pytest.mark.parametrize(
    "journal_bytes_max", [store_module.JOURNAL_BYTES_MAX, 6000, 1], ids=["journal", "both", "pages"]
)
@pytest.mark.parametrize("slots", [slots_module.PARA_SLOTS, 3], ids=["a slot for each para", "several paras to a slot"])
def test_store_matches_uninterrupted_lane(
    of: object, journal_bytes_max: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "JOURNAL_BYTES_MAX", journal_bytes_max)
    monkeypatch.setattr(slots_module, "PARA_SLOTS", slots)
    monkeypatch.setattr(slots_module, "SLOT_BYTES_MAX", 500)
    assert isinstance(of, type(CHAIN))
    definition, batches = definition_of(of), cut(of.records, 40)  # some batches complete no block
    cached, uncached, cache = Store(), Store(), LaneCache()
    for batch, (expected, processor) in zip(batches, live(definition, batches), strict=True):
        assert run(definition, cached, cache, batch) == expected
        assert run(definition, uncached, LaneCache(), batch) == expected
        assert cached.committed.head == uncached.committed.head
        assert rebuilt(definition, cached) == processor.snapshot()
    assert (cache.hits, cache.rebuilds) == (len(batches) - 1, 0)


def test_batch_on_same_worker_makes_three_store_calls() -> None:
    store, cache = Store(), LaneCache()
    for at, batch in enumerate(cut(CHAIN.records)):
        run(DEFINITION, store, cache, batch)
        if at:
            assert store.committed.calls == ["load_head", "append_journal", "save_head"]


@pytest.mark.parametrize("after", [0, 1, 2, None], ids=["at once", "one block", "two blocks", "before the commit"])
def test_abandoned_attempt_leaves_no_trace(after: int | None) -> None:
    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    for batch, (expected, _) in zip(batches, live(DEFINITION, batches), strict=True):
        before = store.attempt()
        doomed = process_batch(DEFINITION, store.attempt(), cache, [batch])
        for _ in range(len(batch) + 9 if after is None else after):
            if next(doomed, None) is None:
                break
        assert isinstance(doomed, Generator)
        doomed.close()
        assert replace(store.committed, calls=[]) == before
        assert run(DEFINITION, store, cache, batch) == expected


def test_attempt_that_fails_in_store_is_retried_with_same_output() -> None:
    class Failing(Attempt):
        def save_head(self, head: bytes) -> None:
            raise OSError("the store is gone")

    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    for batch, (expected, _) in zip(batches, live(DEFINITION, batches), strict=True):
        now = store.attempt()
        failing = Failing(now.head, now.slots, now.journal)
        with pytest.raises(OSError, match="gone"):
            list(process_batch(DEFINITION, failing, cache, [batch]))
        assert run(DEFINITION, store, cache, batch) == expected


def test_lane_advanced_by_another_worker_catches_up() -> None:
    batches = cut(CHAIN.records)
    store, caches = Store(), [LaneCache(), LaneCache()]
    turns = [0, 0, 1, 1, 0, 1, 0, 0, 0]
    for batch, turn, (expected, _) in zip(batches, turns, live(DEFINITION, batches), strict=True):
        assert run(DEFINITION, store, caches[turn], batch) == expected
        assert "load_slots" not in store.committed.calls or caches[1].rebuilds == 1
    assert [(cache.hits, cache.catch_ups, cache.rebuilds) for cache in caches] == [(3, 2, 0), (1, 1, 1)]


def test_lane_advanced_and_saved_by_another_worker_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(CHAIN.records)
    store, caches = Store(), [LaneCache(), LaneCache()]
    turns = [0, 0, 1, 1, 0, 1, 0, 0, 0]
    monkeypatch.setattr(store_module, "JOURNAL_BYTES_MAX", 1)
    for batch, turn, (expected, _) in zip(batches, turns, live(DEFINITION, batches), strict=True):
        assert run(DEFINITION, store, caches[turn], batch) == expected
        assert rebuilt(DEFINITION, store)
    assert [(cache.hits, cache.catch_ups, cache.rebuilds) for cache in caches] == [(3, 0, 2), (1, 0, 2)]


@pytest.mark.parametrize("committed_saves", [True, False])
def test_lane_continues_from_either_of_two_attempts_if_only_one_saves_pages(
    committed_saves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = cut(CHAIN.records)
    store, caches = Store(), [LaneCache(), LaneCache()]
    outputs = [run(DEFINITION, store, cache, batch) for cache, batch in zip(caches, batches, strict=False)]
    attempts = []
    for cache, saves in zip(caches, (True, False), strict=True):
        with monkeypatch.context() as patched:
            patched.setattr(store_module, "JOURNAL_BYTES_MAX", 1 if saves else store_module.JOURNAL_BYTES_MAX)
            attempt = store.attempt()
            list(process_batch(DEFINITION, attempt, cache, [batches[2]]))
            attempts.append(attempt)
    store.commit(attempts[0 if committed_saves else 1])
    *_, expected = live(DEFINITION, batches)
    for cache, journal_bytes_max in zip(caches, (1, 2**30), strict=True):
        one, monkeypatched = Store(store.attempt()), pytest.MonkeyPatch()
        with monkeypatched.context() as patched:
            patched.setattr(store_module, "JOURNAL_BYTES_MAX", journal_bytes_max)
            for batch in batches[3:]:
                last = run(DEFINITION, one, cache, batch)
        assert last == expected[0]
        assert rebuilt(DEFINITION, one) == expected[1].snapshot()
    assert outputs


def test_attempt_replaced_by_other_batch_border_leaves_no_trace() -> None:
    items: Batch = inputs_of(CHAIN.records)
    store, cache = Store(), LaneCache()
    run(DEFINITION, store, cache, items[:30])
    list(process_batch(DEFINITION, store.attempt(), cache, [items[30:90]]))  # emitted and cached, but never committed
    outputs = run(DEFINITION, store, cache, items[30:50]) + run(DEFINITION, store, cache, items[50:])
    (_, *expected), processors = zip(*live(DEFINITION, [items[:30], items[30:50], items[50:]]), strict=True)
    assert outputs == [record for records in expected for record in records]
    assert rebuilt(DEFINITION, store) == processors[-1].snapshot()


def test_journal_is_cleared_when_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    run(DEFINITION, store, cache, batches[0])
    limit = Head.decode(store.committed.head or b"").journal_bytes * 2
    monkeypatch.setattr(store_module, "JOURNAL_BYTES_MIN", limit)
    cuts = 0
    for batch in batches[1:]:
        run(DEFINITION, store, cache, batch)
        head, state = Head.decode(store.committed.head or b""), store.committed
        assert head.journal_bytes == sum(map(len, state.journal)) < max(limit, head.slots_bytes // 2)
        assert head.journal_entries == len(state.journal)
        assert head.slots_bytes == sum(map(len, state.slots.values()))
        cuts += not state.journal
    assert 0 < cuts < len(batches) - 1


def test_pages_are_saved_before_too_many_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    run(DEFINITION, store, cache, batches[0])
    assert store.committed.journal
    monkeypatch.setattr(store_module, "UNSAVED_BYTES_MAX", 1)
    run(DEFINITION, store, cache, batches[1])
    assert not store.committed.journal


def test_save_writes_only_changed_slots(tmp_path: Path) -> None:
    load = SettingsLoad(paras=200, channels=400, candidates_per_block=3, blocks=2, lane=CHAIN.lane)
    table = dict(load_chain(load))
    table["host_configuration"] = table.pop("config")
    del table["lane"]
    (tmp_path / "state.json").write_text(json.dumps(initial_state(load)))
    table["state"] = str(tmp_path / "state.json")
    blocks = tuple(generate_load(load))
    few = Chain(
        CHAIN.lane, table, blocks, tuple(record(topic, body) for block in blocks for topic, body in block.records)
    )
    definition = definition_of(few)
    store = Store()
    cache = LaneCache()
    run(definition, store, cache, [])
    assert sum(call == "save_slot" for call in store.committed.calls) == 201
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store_module, "JOURNAL_BYTES_MAX", 1)
        run(definition, store, cache, inputs_of(few.records))
    # six candidates of different paras, each with one recipient, and the slot that belongs to no para
    assert 4 < sum(call == "save_slot" for call in store.committed.calls) <= 13
    assert rebuilt(definition, store)


def test_journal_catches_up_under_rules_it_was_written_under() -> None:
    batches = cut(CHAIN.records)
    other = definition_of(CHAIN, ump_default_weight=7, enactment="on-inclusion")
    assert other.encode_rules() != DEFINITION.encode_rules()
    store, cache = Store(), LaneCache()
    for batch in batches[:3]:
        run(DEFINITION, store, cache, batch)
    assert store.committed.journal
    changed = LaneProcessor.create(DEFINITION)
    for batch in batches[:3]:
        list(changed.process(batch))
    changed = LaneProcessor.restore(other, changed.snapshot())
    for used in (cache, LaneCache()):
        kept, continued = Store(store.attempt()), LaneProcessor.restore(other, changed.snapshot())
        for batch in batches[3:]:
            expected = [
                record for _, records in continued.process(batch) for record in records
            ] + continued.status().records
            assert run(other, kept, used, batch) == expected
    assert DEFINITION.under(other.encode_rules()).encode_rules() == other.encode_rules()


def test_journal_under_removed_rules_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    run(DEFINITION, store, cache, batches[0])
    changed = replace(make_runtime(DEFINITION.plan).protocol, rules=(RulesEpoch(0, 2),), rule_profiles=None)
    monkeypatch.setattr("validator.plugin.runtime.protocols_of", lambda _: (changed,))
    make_runtime.cache_clear()
    request.addfinalizer(make_runtime.cache_clear)
    newer = replace(DEFINITION, plan=replace(DEFINITION.plan, rules=None))
    for used in (cache, LaneCache()):
        before = store.attempt()
        with pytest.raises(UserError, match=r"rules of version 1, this program has version 2") as caught:
            list(process_batch(newer, store.attempt(), used, [batches[1]]))
        assert "\n" not in str(caught.value)
        assert replace(store.committed, calls=[]) == before


def test_configuration_may_change_if_journal_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(CHAIN.records)
    other = definition_of(CHAIN, ump_default_weight=7)
    store, cache = Store(), LaneCache()
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "JOURNAL_BYTES_MIN", 1)
        run(DEFINITION, store, cache, batches[0])
        for batch in batches[1:]:
            if not store.committed.journal:
                break
            run(DEFINITION, store, cache, batch)
    assert not store.committed.journal
    rest = batches[batches.index(batch) :]
    # a worker that still caches the lane under the old configuration must not continue with it
    first, again = Store(store.attempt()), Store(store.attempt())
    for batch in rest:
        kept, fresh = run(other, first, cache, batch), run(other, again, LaneCache(), batch)
        assert kept == fresh
        outputs = [record for record in kept if record.topic in ("verdicts", "receipts")]
        assert all(other.digest_at(0) in record.value for record in outputs)
    # both wrote state of the new configuration
    assert Head.decode(first.committed.head or b"").rules == other.encode_rules()


def test_two_lanes_of_one_worker_are_independent() -> None:
    other = chain(SimulationSettings(seed=9, blocks=24, candidates_per_block=6, lane="kusama"))
    definitions = [DEFINITION, definition_of(other)]
    every = [cut(CHAIN.records), cut(other.records)]
    stores, cache = [Store(), Store()], LaneCache()
    expected = [live(definition, batches) for definition, batches in zip(definitions, every, strict=True)]
    for pair in zip(*every, strict=True):
        for definition, store, batch, lane in zip(definitions, stores, pair, expected, strict=True):
            assert run(definition, store, cache, batch) == next(lane)[0]
    assert cache.rebuilds == 0


def test_overflow_commits_nothing_and_succeeds_under_wider_limit() -> None:
    narrow = definition_of(CHAIN, job={"waiting_bytes_max": 9_000})
    items: Batch = inputs_of(CHAIN.records)
    late_first = items[5:] + items[:5]
    store, cache = Store(), LaneCache()
    with pytest.raises(WaitingOverflow, match=r"occupy more than 9000 bytes \(waiting_bytes_max\)"):
        run(narrow, store, cache, late_first)
    assert store.committed == Attempt()
    assert run(DEFINITION, store, cache, late_first) == next(live(DEFINITION, [late_first]))[0]


def test_limit_lowered_below_an_executed_batch_is_for_later_records() -> None:
    """The batch fit when it was taken: it is executed again under that limit, and the lane says what it waits for now."""
    items: Batch = inputs_of(CHAIN.records)
    at = next(at for at, item in enumerate(items) if item.block == 5)
    before, after = items[:at], items[at:]
    store = Store()
    run(DEFINITION, store, LaneCache(), before)
    narrow = definition_of(CHAIN, job={"waiting_bytes_max": 1})
    with pytest.raises(WaitingOverflow, match=r"more than 1 bytes \(waiting_bytes_max\); waiting for .* of block 5"):
        run(narrow, store, LaneCache(), after)
    restored = restore_lane(narrow, store.attempt())
    assert restored is not None
    assert restored.lane.executed_block == 4
    assert restored.lane.settings == narrow.settings


def test_recovery_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = cut(CHAIN.records)
    store, reports = Store(), list[Recovery]()
    caches = [LaneCache(reports.append), LaneCache(reports.append)]
    for at, turn in enumerate([0, 0, 1, 1, 0]):
        run(DEFINITION, store, caches[turn], batches[at])
    rebuilt, caught_up = reports
    head = Head.decode(store.committed.head or b"")
    assert rebuilt == (CHAIN.lane, True, head.slots_bytes, 2, rebuilt.seconds)
    assert caught_up == (CHAIN.lane, False, head.slots_bytes, 2, caught_up.seconds)
    assert rebuilt.seconds > 0


def test_head_counts_its_journal_to_the_byte() -> None:
    store, cache = Store(), LaneCache()
    for batch in cut(CHAIN.records):
        run(DEFINITION, store, cache, batch)
        head = Head.decode(store.committed.head or b"")
        journal = store.committed.journal
        assert (head.journal_entries, head.journal_bytes) == (len(journal), sum(map(len, journal)))
    assert head.journal_entries > 1


def test_bytes_after_a_head_are_refused() -> None:
    store = Store()
    run(DEFINITION, store, LaneCache(), cut(CHAIN.records)[0])
    stored = store.committed.head or b""
    assert Head.decode(stored).encode() == stored
    with pytest.raises(DecodeError):
        Head.decode(stored + b"\0")


def test_summary_covers_every_receipt() -> None:
    """Two lanes with equal counts may have executed different blocks."""
    *_, (_, one) = live(DEFINITION, cut(CHAIN.records))
    assert one._receipts_hash != bytes(32)
    before = one.summary()
    one._receipts_hash = bytes(31) + b"\1"
    assert one.summary() != before
