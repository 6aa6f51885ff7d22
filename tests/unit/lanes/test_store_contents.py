# SPDX-License-Identifier: Apache-2.0
"""The contents of the store: versions, upgrades and detected damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import CHAIN, DEFINITION, cut, live, rebuilt, run
from validator.core import lane as lane_module
from validator.core.lane import SNAPSHOT_VERSION as LANE_VERSION
from validator.core.scale import Upgrade
from validator.errors import UserError
from validator.lanes import journal as journal_module
from validator.lanes import processor as processor_module
from validator.lanes import store as store_module
from validator.lanes.journal import JOURNAL_VERSION
from validator.lanes.processor import SNAPSHOT_VERSION, LaneProcessor
from validator.lanes.store import HEAD_VERSION, Head, LaneCache, process_batch
from validator.protocols.router import later_pages as encoding_module
from validator.protocols.router.later_pages import SEED_VERSION


def test_stored_values_begin_with_their_version() -> None:
    store, cache = Store(), LaneCache()
    for batch in cut(CHAIN.records):
        run(DEFINITION, store, cache, batch)
    state = store.committed
    assert state.head is not None
    assert state.head[0] == HEAD_VERSION
    restored = rebuilt(DEFINITION, store)
    assert [part[0] for part in restored] == [SNAPSHOT_VERSION, LANE_VERSION, *[SEED_VERSION] * (len(restored) - 2)]
    assert {entry[0] for entry in state.journal} == {JOURNAL_VERSION}


def test_head_of_unknown_version_is_refused_in_one_line() -> None:
    store = Store()
    run(DEFINITION, store, LaneCache(), [])
    store.committed.head = b"\x09" + (store.committed.head or b"")[1:]
    with pytest.raises(
        UserError,
        match=f"state head version 9, expected {HEAD_VERSION}: `validator lanes resume --lane polkadot --rebuild`",
    ):
        run(DEFINITION, store, LaneCache(), [])


def test_older_encodings_are_upgraded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each encoding starts with its version; data two versions old is upgraded through the version between."""

    def old(data: bytes) -> bytes:
        return b"\x7e" + data[1:] + b"old"

    def steps(version: int) -> dict[int, Upgrade]:
        return {0x7E: lambda data: b"\x7f" + data[1:-2], 0x7F: lambda data: bytes((version,)) + data[1:-1]}

    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    for batch in batches[:4]:
        run(DEFINITION, store, cache, batch)
    expected, uninterrupted = list(live(DEFINITION, batches[:5]))[-1]
    head = store.committed.head or b""
    old_journal = [old(entry) for entry in store.committed.journal]
    for module, version in (
        (store_module, HEAD_VERSION),
        (journal_module, JOURNAL_VERSION),
        (processor_module, SNAPSHOT_VERSION),
        (lane_module, LANE_VERSION),
    ):
        monkeypatch.setattr(module, "UPGRADES", steps(version))
    for version, step in steps(SEED_VERSION).items():
        for upgrades in ("UPGRADES", "COMMON_UPGRADES", "HEADROOM_UPGRADES"):
            monkeypatch.setitem(getattr(encoding_module, upgrades), version, step)
    store.committed.head = old(head)
    assert rebuilt(DEFINITION, store) == list(live(DEFINITION, batches[:4]))[-1][1].snapshot()

    # an older journal has another token: compute its chain again
    token = Head.decode(head).saved_token
    for entry in old_journal:
        token = store_module._next_token(token, entry)
    store.committed.journal = old_journal
    store.committed.head = old(replace(Head.decode(head), token=token).encode())
    assert run(DEFINITION, store, LaneCache(), batches[4]) == expected
    assert rebuilt(DEFINITION, store) == uninterrupted.snapshot()

    # pages of an older version: upgraded, and hashed in the current encoding
    snapshot = [old(page) for page in uninterrupted.snapshot()]
    again = LaneProcessor.restore(DEFINITION, snapshot)
    assert again.snapshot() == uninterrupted.snapshot()
    assert again.lane.rules.state_root() == uninterrupted.lane.rules.state_root()
    assert list(again.lane.rules.changed()) == list(uninterrupted.lane.rules.owners())


@pytest.mark.parametrize("what", ["a slot", "a slot is gone", "the journal", "an entry is gone", "the head"])
def test_damaged_store_is_refused_before_any_output(what: str) -> None:
    batches = cut(CHAIN.records)
    store, cache = Store(), LaneCache()
    for batch in batches[:4]:
        run(DEFINITION, store, cache, batch)
    state = store.committed
    head = Head.decode(state.head or b"")
    if what == "a slot":
        number = min(state.slots)
        state.slots[number] = state.slots[number][:-1] + b"\x01"
    elif what == "a slot is gone":
        del state.slots[min(state.slots)]
    elif what == "the journal":
        state.journal[1] = state.journal[1][:-1] + b"\x00"
    elif what == "an entry is gone":
        del state.journal[-1]
    else:
        state.head = replace(head, summary=bytes(16)).encode()
    with pytest.raises(
        UserError,
        match=r"its state in the checkpoint cannot be used: .*: `validator lanes resume --lane polkadot --rebuild` executes",
    ):
        next(process_batch(DEFINITION, store.attempt(), LaneCache(), [batches[4]]))
