# SPDX-License-Identifier: Apache-2.0
"""Canonical pages: they hold the full state, and decoding rejects everything else."""

from __future__ import annotations

from collections import deque

import pytest
from early_hrmp_world import candidate, lived
from validator_early_hrmp.pages import PAGES, encode_common_page, encode_para_page
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import CloseRequest, EarlyHrmpState

from tests.rule_sets import check_everything
from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import DecodeError, DownwardMessage
from validator.protocols.kit import OpenRequest, PendingCandidate


def full() -> LaneRules:
    rules = lived()
    rules.apply_downward(DownwardMessage(99, b"nobody"))
    pending = candidate(2, 4, p3="05")
    rules.state.pending_candidates[2] = deque(
        [PendingCandidate(4, pending), PendingCandidate(5, pending._replace(candidate_hash=bytes(32)))]
    )
    return rules


def without(state: EarlyHrmpState) -> dict[str, object]:
    """Return a state's fields without the derived ones."""
    return {name: getattr(state, name) for name in EarlyHrmpState.__slots__ if name != "touched"}


def test_restored_state_equals_original_in_every_field() -> None:
    rules = full()
    check_everything(rules, "early-hrmp")
    assert without(EARLY_HRMP.from_pages(pages(rules)).state) == without(rules.state)


def test_restored_state_emits_pending_headroom() -> None:
    rules = full()
    assert EARLY_HRMP.from_pages(pages(rules)).take_headroom() == rules.take_headroom() != []


def test_restored_state_has_no_changed_pages() -> None:
    rules = EARLY_HRMP.from_pages(pages(full()))
    assert list(rules.changed()) == []


def test_pages_state_their_owners() -> None:
    rules = full()
    pages = {owner: rules.page(owner) for owner in rules.owners()}
    assert list(pages) == [1, 2, 3, 99]
    assert {owner: PAGES.owner_of(page) for owner, page in pages.items() if page} == {owner: owner for owner in pages}
    assert rules.page(7) is None


def test_truncated_or_extended_page_is_rejected() -> None:
    saved = pages(full())
    for at, page in enumerate(saved):
        for broken in (
            *[page[:size] for size in range(len(page))],
            page + b"\0",
            bytes([PAGES.version + 1]) + page[1:],
        ):
            with pytest.raises(DecodeError):
                EARLY_HRMP.from_pages([*saved[:at], broken, *saved[at + 1 :]])


def test_flipped_bit_is_rejected_or_changes_state() -> None:
    saved = pages(full())
    for at, page in enumerate(saved):
        for bit in range(8 * len(page)):
            flipped = bytearray(page)
            flipped[bit // 8] ^= 1 << bit % 8
            try:
                rules = EARLY_HRMP.from_pages([*saved[:at], bytes(flipped), *saved[at + 1 :]])
            except (DecodeError, MemoryError):
                continue
            again = pages(rules)
            assert again != saved
            if at != 1:  # the headroom page is a set, emitted in order
                assert again[:1] + again[2:] == [
                    bytes(flipped) if at == each else saved[each] for each in (0, 2, 3, 4, 5)
                ]


def test_unordered_or_repeated_entries_are_rejected() -> None:
    common, headroom, *owned = pages(full())
    with pytest.raises(DecodeError, match="page of para 1 follows that of para 2"):
        EARLY_HRMP.from_pages([common, headroom, owned[1], owned[0]])
    with pytest.raises(DecodeError, match="page of para 1 follows that of para 1"):
        EARLY_HRMP.from_pages([common, headroom, owned[0], owned[0]])

    state = full().state
    state.ingress[2].reverse()
    _refused(state, 2, "senders to para 2 are not in ascending order")
    state = full().state
    state.downward_queues[2] = dict(reversed(state.downward_queues[2].items()))
    _refused(state, 2, "blocks of the queue of para 2 are not in ascending order")
    state = full().state
    state.downward_queues[2][9] = []
    _refused(state, 2, "queue of para 2 has a block without messages")

    state = full().state
    state.open_requests.listed.append(OpenRequest(2, 1, 10))
    with pytest.raises(DecodeError, match="two open requests are for one channel"):
        EARLY_HRMP.from_pages([encode_common_page(state), headroom, *owned])
    state = full().state
    state.close_requests.append(CloseRequest(1, 1, 2))
    with pytest.raises(DecodeError, match="two close requests are for one channel"):
        EARLY_HRMP.from_pages([encode_common_page(state), headroom, *owned])


def test_empty_page_is_rejected() -> None:
    common, headroom, *_ = pages(full())
    empty = bytes([PAGES.version]) + (7).to_bytes(4, "little") + bytes(8)
    with pytest.raises(DecodeError, match="page of para 7 is empty"):
        EARLY_HRMP.from_pages([common, headroom, empty])


def _refused(state: EarlyHrmpState, para: int, message: str) -> None:
    common, headroom, *_ = pages(full())
    page = encode_para_page(state, para)
    assert page is not None
    with pytest.raises(DecodeError, match=message):
        EARLY_HRMP.from_pages([common, headroom, page])
