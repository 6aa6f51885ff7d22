# SPDX-License-Identifier: Apache-2.0
"""What only the rules of 2026 keep in a state: in pages, in state files and in the invariants."""

from __future__ import annotations

from dataclasses import replace

from tests.router.test_later_pages import LATER, chain, loaded
from validator.core.rules import LaneRules
from validator.core.types import SessionChange
from validator.document import Node
from validator.protocols.router.encoding import EMPTY_COMMON_PARTS, SEED, decode_state, encode_state
from validator.protocols.router.invariants import broken_invariants
from validator.protocols.router.records import AcceptOpenChannel, ForceClean, InitOpenChannel
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.statefile import STATE_FILE
from validator.protocols.router.traces import view


def newest_router() -> LaneRules:
    """Return a chain with a lost place, counts that a forced clean-up forgot, and an account that must keep something."""
    router = ROUTER.at_genesis(chain("as_the_chain", "forced_requests", "clean_open_channel_requests", "no_ttl"))
    router.state.host_configuration = replace(LATER, existential_deposit=3)
    router.begin_block(1)
    for request in (InitOpenChannel(1, 2003, 2, 4), InitOpenChannel(2, 2004, 2, 4), InitOpenChannel(2004, 2, 2, 4)):
        router.apply_request(request)
    router.apply_request(AcceptOpenChannel(2, 2004))
    router.change_session(SessionChange(outgoing=(2003,)))
    router.begin_block(2)
    router.apply_request(InitOpenChannel(1, 2, 2, 4))
    router.apply_request(InitOpenChannel(2, 1, 2, 4))
    router.apply_request(AcceptOpenChannel(1, 2))
    router.apply_request(ForceClean(1))
    router.apply_request(ForceClean(2))
    return router


def test_pages_and_state_files_hold_what_counts_do_not_show() -> None:
    router = newest_router()
    state = router.state
    assert list(broken_invariants(state)) == []
    assert state.hrmp_uncounted_requests == {1: 1, 2: 2}
    assert state.hrmp_uncounted_acceptances == {1: 1}
    common, owned = encode_state(state)
    assert (common[0], {page[0] for page in owned.values()}) == (SEED + len(EMPTY_COMMON_PARTS), {SEED})
    decoded = decode_state(common, owned.values())
    assert (view(decoded), encode_state(decoded)) == (view(state), (common, owned))
    document = STATE_FILE.write(router.state)
    read = loaded(Node(document, "state"), replace(router.settings, configuration=state.host_configuration))
    assert STATE_FILE.write(read.state) == document
    assert read.state.hrmp_uncounted_requests == {1: 1, 2: 2}
    assert read.state.hrmp_uncounted_acceptances == {1: 1}


def test_lost_places_are_kept() -> None:
    router = ROUTER.at_genesis(chain("as_the_chain", "clean_open_channel_requests"))
    router.begin_block(1)
    router.apply_request(InitOpenChannel(1, 2003, 2, 4))
    router.change_session(SessionChange(outgoing=(2003,)))
    state = router.state
    assert (state.hrmp_lost_places, state.hrmp_open_channel_request_count) == ({1: 1}, {1: 1})
    assert list(broken_invariants(state)) == []
    common, owned = encode_state(state)
    decoded = decode_state(common, owned.values())
    assert decoded.hrmp_open_channel_request_count == {1: 1}
    state.hrmp_lost_places.clear()
    assert any("hrmp_open_channel_request_count is" in sentence for sentence in broken_invariants(state))
