# SPDX-License-Identifier: Apache-2.0
"""Plugins that change at a block: executing again gives the same bytes, and nothing changes before that block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.distributions import files_of, on_path, written
from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import CHAIN, Batch, cut, live, rebuilt, run
from tests.unit.lanes.chains import definition_of, inputs_of
from validator.codec.encode import OutputRecord
from validator.codec.json_form import to_json
from validator.errors import UserError
from validator.lanes import slots as slots_module
from validator.lanes import store as store_module
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import Head, LaneCache, StateUnusable, restore_lane
from validator.protocols.router.rules import ROUTER

TALLY = """
def count(context, payload):
    key = context.origin.to_bytes(4, "little")
    seen = int.from_bytes(context.read(key) or b"", "little") + 1
    context.write(key, seen.to_bytes(4, "little"))
    context.emit("{event}", seen.to_bytes(4, "little"))

KINDS = [(b"", "tally", count)]
"""
"""Counts each para's messages; a later version renames the event and continues the counts."""

CLOCK = """
from itertools import count

CALLS = count()

def note(context, payload):
    context.write(b"at", bytes(next(CALLS) % 50))

KINDS = [(b"", "clock", note)]
"""
"""Gives another result each time, as a clock would."""

OLD = {"name": "tally", "version": "1.0.0"}
NEW = {"name": "tally", "version": "2.0.0", "from_block": 12}
NEVER_PASSED = 10**6
"""A block that the chain does not reach."""


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path) -> Iterator[Path]:
    """Install two versions side by side, each as a distribution in its own folder."""
    old = written(tmp_path / "old", files_of("tally", "1.0.0", TALLY.format(event="counted")))
    new = written(tmp_path / "new", files_of("tally", "2.0.0", TALLY.format(event="counted-anew")))
    with on_path(old, new):
        yield tmp_path


def definition(*uses: dict[str, Any]) -> LaneDefinition:
    return definition_of(CHAIN, handlers=list(uses), ump_weights={}, ump_failing_messages=[])


def documents(records: list[OutputRecord], topic: str = "dispatches") -> list[dict[str, Any]]:
    return [to_json(topic, record.value) for record in records if record.topic == topic]


def outputs(records: list[OutputRecord]) -> list[OutputRecord]:
    """Return the records of blocks only: lane statuses and dead letters are emitted once a batch."""
    return [record for record in records if record.topic not in ("lanes", "dead-letters")]


def at_once(of: LaneDefinition) -> list[OutputRecord]:
    ((records, _),) = live(of, [inputs_of(CHAIN.records)])
    return outputs(records)


def through_the_store(of: LaneDefinition, store: Store, cache: LaneCache, batches: list[Batch]) -> list[OutputRecord]:
    return outputs([record for batch in batches for record in run(of, store, cache, batch)])


def test_journal_that_leads_elsewhere_names_the_blocks_the_handler_and_a_way_out(tmp_path: Path) -> None:
    clock = written(tmp_path / "clock", files_of("clock", "1.0.0", CLOCK))
    with on_path(clock):
        of, store = definition({"name": "clock"}, {**OLD, "from_block": NEVER_PASSED}), Store()
        records = through_the_store(of, store, LaneCache(), cut(CHAIN.records))
        first = min(each["block"] for each in documents(records) if each["handler"] == "clock@1.0.0")
        last = max(each["block"] for each in documents(records, "receipts"))
        with pytest.raises(StateUnusable) as refused:
            restore_lane(of, store.attempt())
    line = str(refused.value)
    assert line.startswith(
        f"lane {CHAIN.lane}: blocks 1 to {last}, executed again from the journal, lead to another state than before: "
        f"a handler does not give the same result twice, one of clock@1.0.0 (a message first in block {first}): "
        f"`validator audit --lane {CHAIN.lane}` names the first block that differs; "
    )
    assert "tally" not in line
    assert line.endswith("(docs/parked-lanes.md)")


def executed(store: Store, of: LaneDefinition) -> int:
    processor = restore_lane(of, store.attempt())
    assert processor is not None
    return processor.lane.executed_block


def test_new_version_handles_messages_from_its_block_and_keeps_state() -> None:
    upgraded = definition(OLD, NEW)
    records = at_once(upgraded)
    dispatches = documents(records)
    by_block = {dispatch["block"]: dispatch["handler"] for dispatch in dispatches if dispatch["handler"]}
    assert {11, 12} <= set(by_block), "messages on both sides of the border"
    assert by_block == {block: "tally@1.0.0" if block < 12 else "tally@2.0.0" for block in by_block}
    seen: dict[int, int] = {}
    for dispatch in dispatches:
        if dispatch["handler"] is None:
            assert dispatch["payload"] == ""
            continue
        seen[dispatch["para_id"]] = seen.get(dispatch["para_id"], 0) + 1
        (event,) = dispatch["events"]
        assert event["name"] == ("counted" if dispatch["block"] < 12 else "counted-anew")
        assert int.from_bytes(bytes.fromhex(event["data"]), "little") == seen[dispatch["para_id"]]
    assert max(seen.values()) > 2


def test_record_carries_digest_of_its_block() -> None:
    upgraded = definition(OLD, NEW)
    before, after = upgraded.digest_at(11), upgraded.digest_at(12)
    assert before != after
    records = at_once(upgraded)
    for topic in ("verdicts", "dispatches", "receipts"):
        digests = {(each["block"] >= 12, each["runtime_digest"]) for each in documents(records, topic)}
        assert digests == {(False, before.hex()), (True, after.hex())}, topic


@pytest.mark.parametrize("journal_bytes_max", [store_module.JOURNAL_BYTES_MAX, 6000, 1])
def test_executing_blocks_again_gives_same_bytes(journal_bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "JOURNAL_BYTES_MAX", journal_bytes_max)
    upgraded, batches = definition(OLD, NEW), cut(CHAIN.records, 20)
    kept, alternating = Store(), Store()
    cache, turns = LaneCache(), [LaneCache(), LaneCache()]
    for at, (batch, (expected, processor)) in enumerate(zip(batches, live(upgraded, batches), strict=True)):
        assert run(upgraded, kept, cache, batch) == expected
        assert run(upgraded, alternating, turns[at % 7 > 3], batch) == expected
        assert kept.committed.head == alternating.committed.head
        assert rebuilt(upgraded, alternating) == processor.snapshot()
    assert cache.hits == len(batches) - 1
    if journal_bytes_max == store_module.JOURNAL_BYTES_MAX == 64 * 1024 * 1024:
        assert min(turn.catch_ups for turn in turns) > 0


def test_worker_behind_upgrade_catches_up_across_it() -> None:
    upgraded, items = definition(OLD, NEW), inputs_of(CHAIN.records)
    borders = [next(at for at, item in enumerate(items) if item.block == block) for block in (9, 16)]
    batches: list[Batch] = [items[: borders[0]], items[borders[0] : borders[1]], items[borders[1] :]]
    store, behind, other = Store(), LaneCache(), LaneCache()
    expected = [records for records, _ in live(upgraded, batches)]
    assert run(upgraded, store, behind, batches[0]) == expected[0]
    assert run(upgraded, store, other, batches[1]) == expected[1]
    assert run(upgraded, store, behind, batches[2]) == expected[2]
    assert (behind.catch_ups, behind.rebuilds) == (1, 0)


def test_announced_upgrade_changes_no_byte_before_its_block() -> None:
    batches = cut(CHAIN.records, 20)
    without, ahead = at_once(definition(OLD)), at_once(definition(OLD, NEW))
    announced_late: list[OutputRecord] = []
    store, cache = Store(), LaneCache()
    announced_late += through_the_store(definition(OLD), store, cache, batches[:5])
    assert 0 < executed(store, definition(OLD)) < 11
    announced_late += through_the_store(definition(OLD, NEW), store, cache, batches[5:])
    assert announced_late == ahead, "announced early or late: the same records"

    def before(records: list[OutputRecord]) -> list[OutputRecord]:
        return [each for each in records if to_json(each.topic, each.value)["block"] < 12]

    assert before(ahead) == before(without)
    assert len(before(ahead)) < len(ahead)
    assert ahead != without
    never = at_once(definition(OLD, {**NEW, "from_block": NEVER_PASSED}))
    assert never == without


def test_change_to_executed_blocks_is_refused() -> None:
    batches = cut(CHAIN.records, 20)
    store, cache = Store(), LaneCache()
    through_the_store(definition(OLD, NEW), store, cache, batches[:15])
    block = executed(store, definition(OLD, NEW))
    assert block > 12
    changes = {
        0: [{"name": "tally", "version": "2.0.0"}],
        12: [OLD],
        7: [OLD, {**NEW, "from_block": 7}],
        block: [OLD, NEW, {"name": "tally", "removed": True, "from_block": block}],
    }
    for changed, uses in changes.items():
        for used in (cache, LaneCache()):
            before = store.attempt()
            with pytest.raises(UserError) as refused:
                run(definition(*uses), Store(before), used, batches[15])
            assert str(refused.value).startswith(
                f"lane {CHAIN.lane}: its handlers differ from block {changed} on, but block {block} is already executed: "
            )
            assert "\n" not in str(refused.value)
            assert (store.committed.head, store.committed.journal) == (before.head, before.journal)
    continued = definition(OLD, NEW, {"name": "tally", "removed": True, "from_block": block + 1})
    assert run(continued, store, cache, batches[15])


def test_removed_plugin_handles_no_messages_and_its_state_waits_for_its_return() -> None:
    removed = {"name": "tally", "removed": True, "from_block": 12}
    back = {"name": "tally", "version": "2.0.0", "from_block": 16}
    of, batches = definition(OLD, removed, back), cut(CHAIN.records, 20)
    store, cache = Store(), LaneCache()
    records = through_the_store(of, store, cache, batches)
    assert records == at_once(of)
    dispatches = [each for each in documents(records) if each["payload"]]
    outcomes = {(each["block"] >= 12, each["block"] >= 16, each["outcome"], each["handler"]) for each in dispatches}
    assert outcomes == {
        (False, False, "ok", "tally@1.0.0"),
        (True, False, "no_handler", None),
        (True, True, "ok", "tally@2.0.0"),
    }
    processor = restore_lane(of, store.attempt())
    assert processor is not None
    rules = processor.lane.rules
    assert rules.rule_set is ROUTER
    counts = {key: int.from_bytes(value, "little") for _, key, value in rules.state.handler_states.entries("tally")}
    handled = [each["para_id"] for each in dispatches if each["outcome"] == "ok"]
    assert counts == {para.to_bytes(4, "little"): handled.count(para) for para in sorted(set(handled))}


def test_journal_of_missing_version_is_refused_in_one_line(plugins: Path) -> None:
    batches = cut(CHAIN.records, 20)
    store = Store()
    through_the_store(definition(OLD), store, LaneCache(), batches[:5])
    assert Head.decode(store.committed.head or b"").journal_entries
    before = store.attempt()
    with on_path(without=plugins / "old"), pytest.raises(UserError) as refused:
        run(definition({"name": "tally", "version": "2.0.0"}), Store(before), LaneCache(), batches[5])
    assert str(refused.value).startswith(
        f"lane {CHAIN.lane}: its journal was written under plugins that are no longer installed: "
        "tally@1.0.0: this version is not installed, found 2.0.0: "
    )
    assert "\n" not in str(refused.value)
    assert run(definition(OLD, NEW), store, LaneCache(), batches[5])


def test_upgraded_lane_is_restored_from_its_pages() -> None:
    upgraded = definition(OLD, NEW)
    *_, (_, processor) = live(upgraded, cut(CHAIN.records))
    again = LaneProcessor.restore(upgraded, processor.snapshot())
    assert again.snapshot() == processor.snapshot()
    assert again.lane.rules.state_root() == processor.lane.rules.state_root()


# --- the head ---


def head_of(store: Store) -> Head:
    return Head.decode(store.committed.head or b"")


@pytest.mark.parametrize("before", [1, 7, 4096])
def test_store_keeps_its_number_of_slots_until_fully_rewritten(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "JOURNAL_BYTES_MAX", 1)  # every batch saves pages
    of, batches = definition(OLD), cut(CHAIN.records, 20)
    expected = [records for records, _ in live(of, batches)]
    snapshots = [processor.snapshot() for _, processor in live(of, batches)]
    store, cache = Store(), LaneCache()
    with monkeypatch.context() as patch:
        patch.setattr(slots_module, "PARA_SLOTS", before)
        for batch in batches[:8]:
            run(of, store, cache, batch)
    assert head_of(store).para_slots == before
    for at, batch in enumerate(batches[8:12], 8):
        assert run(of, store, LaneCache() if at % 2 else cache, batch) == expected[at]
        assert head_of(store).para_slots == before
        assert rebuilt(of, store) == snapshots[at]
    # other rules: the store is rewritten completely, with the default number of slots
    announced = definition(OLD, {**NEW, "from_block": NEVER_PASSED})
    assert outputs(run(announced, store, cache, batches[12])) == outputs(expected[12])
    assert head_of(store).para_slots == slots_module.PARA_SLOTS == 1024
    assert all(number < 1024 + 8 for number in store.committed.slots)
    for batch in batches[13:]:
        run(announced, store, LaneCache(), batch)
    assert rebuilt(announced, store) == snapshots[-1]


def test_rules_of_unknown_version_are_refused_in_one_line() -> None:
    store, of = Store(), definition(OLD)
    through_the_store(of, store, LaneCache(), cut(CHAIN.records, 20)[:5])
    head = head_of(store)
    store.committed.head = replace(head, rules=b"\x09" + head.rules[1:]).encode()
    with pytest.raises(
        UserError,
        match="rules version 9, expected 1: `validator lanes resume --lane polkadot --rebuild`",
    ) as caught:
        restore_lane(of, store.attempt())
    assert "\n" not in str(caught.value)
