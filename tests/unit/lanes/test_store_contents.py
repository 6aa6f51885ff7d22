# SPDX-License-Identifier: Apache-2.0
"""The contents of the store: versions, upgrades and detected damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import CHAIN, DEFINITION, cut, live, rebuilt, run
from validator.core import lane as lane_module
from validator.core.scale import Encoding
from validator.errors import UserError
from validator.lanes import processor as processor_module
from validator.lanes import store as journal_module
from validator.lanes import store as store_module
from validator.lanes.store import Head, LaneCache, process_batch


def test_stored_values_begin_with_their_version() -> None:
    store, cache = Store(), LaneCache()
    for batch in cut(CHAIN.records):
        run(DEFINITION, store, cache, batch)
    state = store.committed
    assert state.head is not None
    assert {state.head[0], *(each[0] for each in rebuilt(DEFINITION, store)), *(each[0] for each in state.journal)} == {
        1
    }


def test_head_of_unknown_version_is_refused_in_one_line() -> None:
    store = Store()
    run(DEFINITION, store, LaneCache(), [])
    store.committed.head = b"\x09" + (store.committed.head or b"")[1:]
    with pytest.raises(
        UserError,
        match="state head version 9, expected 1: `validator lanes resume --lane polkadot --rebuild`",
    ):
        run(DEFINITION, store, LaneCache(), [])


def test_lane_continues_from_what_an_earlier_version_has_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """How an encoding is changed: it has a second version, and the function by which bytes of the first one become such of the second."""
    batches = cut(CHAIN.records)
    expected = [records for records, _ in live(DEFINITION, batches)]
    store = Store()
    for batch in batches[:4]:
        run(DEFINITION, store, LaneCache(), batch)
    for module, name in (
        (store_module, "HEAD"),
        (journal_module, "ENTRY"),
        (processor_module, "OWN_PAGE"),
        (lane_module, "OWN_PAGE"),
    ):
        second = Encoding(name, 2, {1: lambda data: b"\x02" + data[1:]})
        monkeypatch.setattr(module, name, second)
    for batch, records in zip(batches[4:], expected[4:], strict=True):
        assert run(DEFINITION, store, LaneCache(), batch) == records
    assert (store.committed.head or b"")[0] == 2
    assert {entry[0] for entry in store.committed.journal} == {1, 2}
    assert [page[0] for page in rebuilt(DEFINITION, store)[:3]] == [2, 2, 1]


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
