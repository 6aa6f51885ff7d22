# SPDX-License-Identifier: Apache-2.0
"""Damaged pages, states that break invariants, and the amount of work per change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp import limits, merkle
from validator_xcmp.merkle import cst_leaf
from validator_xcmp.records import Candidate, CloseChannelTo
from validator_xcmp.rules import XCMP, closed_unread_message
from validator_xcmp.state import Column, XcmpConfiguration, XcmpState, check_invariants

from tests.rule_sets import restored
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import (
    Balances,
    ChainSettings,
    DecodeError,
    DownwardMessage,
    Enactment,
    InvariantBroken,
    Para,
    ParaKind,
    PendingRef,
    SessionChange,
)
from validator.protocols.kit import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel

ALL = 2**32 - 1
ROOT = b"\xaa" * 32


def busy(enactment: Enactment = Enactment.ON_INCLUSION) -> LaneRules:
    """Return a chain with some of everything: channels, one of them condemned, requests, messages, and a pending candidate."""
    settings = ChainSettings(
        XcmpConfiguration(8, 5, 10, 7, 9, 3),
        tuple(Para(para, balance=1000) for para in range(1, 8)),
        enactment=enactment,
    )
    rules = XCMP.at_genesis(settings)
    rules.begin_block(1)
    for index, (sender, recipient) in enumerate([(1, 2), (1, 3), (2, 1), (4, 1)]):
        rules.apply_request(InitOpenChannel(sender, recipient))
        rules.apply_request(AcceptOpenChannel(recipient, index))
    rules.change_session(SessionChange())
    rules.begin_block(2)
    rules.apply_candidate(Candidate(1, 1, (1, ALL), "11", ROOT))
    if enactment is Enactment.ON_INCLUSION:
        rules.begin_block(3)
        rules.apply_inclusion(PendingRef(1))
    rules.apply_request(CloseChannelTo(1, 1, 2))
    rules.change_session(SessionChange())
    rules.begin_block(4)
    rules.apply_request(InitOpenChannel(5, 6))
    rules.apply_request(InitOpenChannel(6, 5))
    rules.apply_request(AcceptOpenChannel(5, 1))
    rules.apply_request(CloseChannelTo(2, 2, 1))
    rules.apply_downward(DownwardMessage(7, b"hello"))
    rules.apply_candidate(Candidate(4, 3, (3, ALL), "1", ROOT, b"hash"))
    return rules


def test_state_round_trips_through_pages() -> None:
    rules = busy()
    again = restored(rules)
    assert pages(again) == pages(rules)
    assert {field.name: getattr(again.state, field.name) for field in fields(XcmpState)} | {
        "touched": None,
        "row_trees": None,
    } == {field.name: getattr(rules.state, field.name) for field in fields(XcmpState)} | {
        "touched": None,
        "row_trees": None,
    }
    assert again.state_root() == rules.state_root()


@given(data=st.data())
def test_damaged_pages_are_rejected_or_change_state(data: st.DataObject) -> None:
    rules = busy()
    saved = pages(rules)
    at = data.draw(st.integers(0, len(saved) - 1))
    page = bytearray(saved[at])
    how = data.draw(st.sampled_from(("flip", "cut", "add")))
    if how == "flip":
        page[data.draw(st.integers(0, len(page) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "cut":
        del page[data.draw(st.integers(0, len(page) - 1)) :]
    else:
        page.append(data.draw(st.integers(0, 255)))
    saved[at] = bytes(page)
    try:
        other = XCMP.from_pages(saved, ChainSettings(None))
    except DecodeError:
        return
    assert how == "flip"
    assert pages(other) != pages(rules)


@pytest.mark.parametrize("pages", [[], [b"\x01"], [b"", b""], [b"\x02", b"\x02"]])
def test_too_few_or_unknown_pages_are_rejected(pages: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        XCMP.from_pages(pages, ChainSettings(None))


def test_channel_in_two_pages_is_rejected() -> None:
    rules = busy()
    saved = pages(rules)
    with pytest.raises(DecodeError, match="two columns"):
        XCMP.from_pages([*saved, saved[2]], ChainSettings(None))


BREAKS: list[tuple[str, Callable[[XcmpState], object]]] = [
    ("roots of the rows of \\[1\\]", lambda state: state.cst_roots.update({1: bytes(32)})),
    ("roots of the rows of \\[9\\]", lambda state: state.cst_roots.update({9: bytes(32)})),
    ("roots of the rows of \\[1\\]", lambda state: setattr(state.rows[1][0], "last_updated", 1)),
    ("index of senders", lambda state: state.ingress[1].pop(4)),
    ("index of senders", lambda state: state.rows[4].append(Column(1, 8, 0, 0))),
    ("row .* is empty", lambda state: state.rows.update({9: []})),
    ("4 is not a registered para", lambda state: state.paras.pop(4)),
    ("1->7 is condemned or to be closed, but does not exist", lambda state: state.condemned.update({(1, 7): 1})),
    ("both condemned and to be closed", lambda state: state.condemned.update({(2, 1): 1})),
    ("more bits than its row", lambda state: state.rows.pop(4)),
    (
        "pending candidates of 9 are none",
        lambda state: state.pending_candidates.update({9: type(state.downward_queues[7])()}),
    ),
    ("by_channel has", lambda state: state.open_requests.by_channel.clear()),
    ("counts is", lambda state: state.open_requests.counts.update({5: 2})),
    ("both open and requested", lambda state: state.ingress.setdefault(6, {}).update({5: Column(6, 8, 0, 0)})),
    ("holds more than was ever put into it", lambda state: state.downward_tails.clear()),
    ("downward queue of 7 is empty", lambda state: state.downward_queues[7].clear()),
    ("1 has 28 reserved|1 has \\d+ reserved", lambda state: setattr(state.accounts[1], "reserved", 1)),
    ("free balance of 5 is -1", lambda state: setattr(state.accounts[5], "free", -1)),
    ("recipient, who has not confirmed it", lambda state: setattr(state.open_requests[0], "recipient_deposit", 1)),
]


@pytest.mark.parametrize(("message", "change"), BREAKS, ids=[str(at) for at in range(len(BREAKS))])
def test_broken_invariant_is_reported(message: str, change: Callable[[XcmpState], object]) -> None:
    state = busy().state
    check_invariants(state)
    change(state)
    with pytest.raises(InvariantBroken, match=message):
        check_invariants(state)


def test_only_touched_rows_get_new_root(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = busy(Enactment.IMMEDIATE)
    hashed: list[tuple[int, int]] = []

    def counting(recipient: int, last_updated: int, message_root: bytes | None) -> bytes:
        hashed.append((recipient, last_updated))
        return cst_leaf(recipient, last_updated, message_root)

    monkeypatch.setattr(merkle, "cst_leaf", counting)
    rules.begin_block(9)
    rules.apply_candidate(Candidate(1, 8, (8, ALL), "01", ROOT))
    assert hashed == [(2, 2), (3, 9)]
    hashed.clear()
    rules.apply_candidate(Candidate(2, 8, (8, ALL), ""))
    assert hashed == []
    # 6->5 opens, 2->1 closes: rows 6 (one column) and 2 (no column left) change; 1->2 is read, so row 1 keeps one column
    rules.change_session(SessionChange())
    assert sorted(hashed) == [(3, 9), (5, 0)]
    assert sorted(rules.state.cst_roots) == [1, 4, 6]


def test_only_changed_columns_of_long_row_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = limits.ROW_TREE_COLUMNS_MIN + 5
    rules = with_a_row_of(columns)
    hashed = []

    def counting(recipient: int, last_updated: int, message_root: bytes | None) -> bytes:
        hashed.append(recipient)
        return cst_leaf(recipient, last_updated, message_root)

    monkeypatch.setattr(merkle, "cst_leaf", counting)
    for block, bits in ((5, "01"), (6, "1".rjust(columns, "0")), (7, "101")):
        rules.begin_block(block)
        hashed.clear()
        rules.apply_candidate(Candidate(1, block - 1, (block - 1, ALL), bits, ROOT))
        expected = range(columns) if block == 5 else [at for at, bit in enumerate(bits) if bit == "1"]
        assert hashed == [2 + at for at in expected]
        check_invariants(rules.state)
    rules.apply_request(CloseChannelTo(1, 1, 4))
    for _ in range(9):
        rules.change_session(SessionChange())
    rules.begin_block(8)
    rules.apply_candidate(Candidate(1, 7, (7, ALL), "111", ROOT))
    assert len(rules.state.rows[1]) == columns - 1
    check_invariants(rules.state)


def test_number_of_cached_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROW_TREE_COLUMNS_MIN", 2)
    monkeypatch.setattr(limits, "ROW_TREES_COLUMNS_MAX", 7)
    trees = merkle.RowTrees()
    rows = {sender: [Column(at, 1, 0, 0) for at in range(4)] for sender in range(3)}
    for sender in (0, 1, 0, 2, 1, 0):
        rows[sender][3].last_updated += 1
        assert trees.root(sender, rows[sender], [3]) == merkle.row_root(rows[sender])
        assert trees.columns == 4


def with_a_row_of(columns: int) -> LaneRules:
    """Return a chain at block 4 whose first para has the given number of outbound channels."""
    paras = tuple(Para(para, ParaKind.PARACHAIN) for para in range(1, 2 + columns))
    configuration = XcmpConfiguration(xcmp_max_outbound_channels=columns, xcmp_condemned_sessions=3)
    rules = XCMP.at_genesis(ChainSettings(configuration, paras, balances=Balances.UNLIMITED))
    rules.begin_block(4)
    for recipient in range(2, 2 + columns):
        rules.apply_request(InitOpenChannel(1, recipient))
        rules.apply_request(AcceptOpenChannelFrom(recipient, 1))
    rules.change_session(SessionChange())
    return rules


def test_only_touched_pages_are_marked() -> None:
    rules = restored(busy(Enactment.IMMEDIATE))
    rules.begin_block(9)
    rules.apply_candidate(Candidate(1, 8, (8, ALL), "01", ROOT))
    assert sorted(rules.changed()) == [1]
    rules.mark_saved()
    with pytest.raises(Exception, match="Bitfield/TooLong"):
        rules.apply_candidate(Candidate(4, 8, (8, ALL), "11", ROOT))
    assert list(rules.changed()) == []


def test_message_about_closed_channel_has_44_bytes() -> None:
    message = closed_unread_message(1, 2000, 2**32 - 1, ROOT)
    assert message == bytes.fromhex("01000000" + "d0070000" + "ffffffff") + ROOT
    assert len(message) == 44


def test_deposits_without_ledger_are_counted_and_always_covered() -> None:
    settings = ChainSettings(XcmpConfiguration(8, 5, 10, 7, 9, 3), (Para(1), Para(2)), balances=Balances.UNLIMITED)
    rules = XCMP.at_genesis(settings)
    rules.begin_block(1)
    rules.apply_request(InitOpenChannel(1, 2))
    rules.apply_request(AcceptOpenChannel(2, 0))
    assert {para: (account.free, account.reserved) for para, account in rules.state.accounts.items()} == {
        1: (0, 10),
        2: (0, 7),
    }
    assert rules.dispatch() == []


def test_zero_deposit_survives_restart() -> None:
    """An empty account is not stored; a zero deposit may still be returned to a para that left."""
    rules = XCMP.at_genesis(ChainSettings(XcmpConfiguration(8, 5, 0, 0, 1, 3), (Para(1), Para(2))))
    rules.begin_block(1)
    rules.apply_request(InitOpenChannel(1, 2))
    rules.state.paras.pop(1)
    rules = restored(rules)
    rules.begin_block(2)
    rules.change_session(SessionChange())
    check_invariants(rules.state)
    assert rules.state.open_requests.listed == []
