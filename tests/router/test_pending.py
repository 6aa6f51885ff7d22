# SPDX-License-Identifier: Apache-2.0
"""Candidates pending availability: how block records name them, and the outcomes."""

from __future__ import annotations

import pytest

from validator.core.rules import ChainSettings, LaneRules, pages
from validator.core.types import Enactment, Para, PendingRef, SessionChange
from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.records import Candidate
from validator.protocols.router.rules import ROUTER


@pytest.fixture
def router() -> LaneRules:
    """Return a Router in which para 7 has pending candidates from blocks 3 and 5."""
    router = ROUTER.at_genesis(
        ChainSettings(
            HostConfiguration(),
            (
                Para(7),
                Para(8),
            ),
            enactment=Enactment.ON_INCLUSION,
        )
    )
    for block, watermark in ((3, 2), (5, 4)):
        router.begin_block(block)
        effects = router.apply_candidate(Candidate(7, block - 1, watermark, candidate_hash=bytes([block]) * 32))
        assert not effects.enacted
    router.begin_block(6)
    assert router.state.hrmp_watermarks == {}
    return router


def test_reference_without_block_includes_oldest(router: LaneRules) -> None:
    assert router.apply_inclusion(PendingRef(7)).candidate_hash == bytes([3]) * 32
    assert router.state.hrmp_watermarks == {7: 2}
    assert router.apply_inclusion(PendingRef(7)).candidate_hash == bytes([5]) * 32
    with pytest.raises(InclusionCandidateNotPending):
        router.apply_inclusion(PendingRef(7))
    assert router.state.pending_candidates == {}


def test_reference_with_block_includes_that_candidate(router: LaneRules) -> None:
    assert router.apply_inclusion(PendingRef(7, 5)).enacted
    assert router.state.hrmp_watermarks == {7: 4}
    assert [pending.backed_at for pending in router.state.pending_candidates[7]] == [3]


def test_timeout_drops_candidate_without_effect(router: LaneRules) -> None:
    effects = router.apply_timeout(PendingRef(7, 3))
    assert not effects.enacted
    assert effects.candidate_hash == bytes([3]) * 32
    assert router.state.hrmp_watermarks == {}
    with pytest.raises(TimeoutCandidateNotPending):
        router.apply_timeout(PendingRef(7, 3))


@pytest.mark.parametrize("ref", [PendingRef(8), PendingRef(7, 4), PendingRef(99, 3)])
def test_reference_to_nothing_pending_is_refused(router: LaneRules, ref: PendingRef) -> None:
    before = pages(router)
    with pytest.raises(InclusionCandidateNotPending) as inclusion:
        router.apply_inclusion(ref)
    with pytest.raises(TimeoutCandidateNotPending) as timeout:
        router.apply_timeout(ref)
    assert inclusion.value.details() == timeout.value.details() == {"para_id": ref.para_id}
    assert pages(router) == before


def test_pending_candidates_survive_session_change_and_offboarding(router: LaneRules) -> None:
    router.change_session(SessionChange(outgoing=(7,)))
    router = ROUTER.from_pages(pages(router), ChainSettings(enactment=Enactment.ON_INCLUSION))
    router.begin_block(8)
    assert router.apply_inclusion(PendingRef(7, 3)).enacted
    assert router.state.hrmp_watermarks == {7: 2}
    check_invariants(router.state)
