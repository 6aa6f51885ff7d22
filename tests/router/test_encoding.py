# SPDX-License-Identifier: Apache-2.0
"""The state's canonical bytes: what they hold, and that no other bytes are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.test_invariants import rich_state
from validator.core.rules import ChainSettings, pages
from validator.core.scale import DecodeError
from validator.core.state import keep_pending
from validator.core.types import ZERO_HASH, DownwardMessage, Para, ParaKind
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import decode_state, encode_state
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import HrmpChannel, RouterState, add_channel
from validator.protocols.router.traces import view


def test_state_round_trips() -> None:
    state = rich_state()
    common, pages = encode_state(state)
    decoded = decode_state(common, pages.values())
    assert view(decoded) == view(state)
    assert ROUTER.root_of(decoded) == ROUTER.root_of(state)
    assert encode_state(decoded) == (common, pages)
    for name in (
        "hrmp_uncounted_requests",
        "downward_messages_sent",
        "hrmp_open_channel_requests_list",
        "session_index",
    ):
        assert getattr(decoded, name) == getattr(state, name)
    assert decoded.hrmp_channels == state.hrmp_channels  # with pruned_head and messages_sent
    assert decoded.hrmp_channel_contents == state.hrmp_channel_contents  # with the head after each message


def test_numbers_of_many_channels_are_kept_once() -> None:
    """They would be 200 MB of the memory of a million channels."""
    state = RouterState(HostConfiguration())
    for sender in (2000, 2001):
        state.paras[sender] = ParaKind.PARACHAIN
    for channel_id in ((2000, 2001), (2001, 2000)):
        add_channel(state, channel_id, HrmpChannel(10**30, 10**20, 1_000, 100_000, 10_000, mqc_head=ZERO_HASH))
    common, pages_of_paras = encode_state(state)
    one, other = decode_state(common, pages_of_paras.values()).hrmp_channels.items()
    names = ("sender_deposit", "recipient_deposit", "limit_used_places", "limit_used_bytes", "limit_message_size")
    for name in names:
        assert getattr(one[1], name) is getattr(other[1], name)
    assert one[0][0] is other[0][1]
    assert one[1].mqc_head is one[1].pruned_head is other[1].mqc_head


def test_page_of_other_version_is_refused() -> None:
    common, pages = encode_state(rich_state())
    with pytest.raises(DecodeError, match="version 4"):
        decode_state(b"\4" + common[1:], pages.values())
    with pytest.raises(DecodeError, match="version 0"):
        decode_state(common, [b"\0" + page[1:] for page in pages.values()])


@given(st.data())
def test_truncated_or_extended_pages_are_refused(data: st.DataObject) -> None:
    common, pages = encode_state(rich_state())
    everything = [common, *pages.values()]
    at = data.draw(st.integers(0, len(everything) - 1))
    page = everything[at]
    everything[at] = data.draw(st.sampled_from((page[: data.draw(st.integers(0, len(page) - 1))], page + b"\0")))
    with pytest.raises(DecodeError):
        decode_state(everything[0], everything[1:])


@given(st.data())
def test_altered_page_is_refused_or_gives_another_state(data: st.DataObject) -> None:
    """A changed byte gives a `DecodeError` or a state with another hash, and nothing else."""
    state = rich_state()
    common, pages = encode_state(state)
    everything = [bytearray(common), *map(bytearray, pages.values())]
    page = everything[data.draw(st.integers(0, len(everything) - 1))]
    at = data.draw(st.integers(0, len(page) - 1))
    page[at] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_state(bytes(everything[0]), map(bytes, everything[1:]))
    except DecodeError:
        return
    assert ROUTER.root_of(decoded) != ROUTER.root_of(state)


def test_para_that_owns_nothing_has_no_page() -> None:
    router = ROUTER.at_genesis(
        ChainSettings(
            HostConfiguration(),
            (
                Para(1),
                Para(2),
            ),
        )
    )
    assert list(encode_state(router.state)[1]) == [1, 2]
    router.state.paras.clear()
    assert list(encode_state(router.state)[1]) == []
    assert view(router.state)["balances"] == {}


def test_unemitted_headroom_survives_restart_outside_state_root() -> None:
    router = ROUTER.at_genesis(
        ChainSettings(
            HostConfiguration(max_downward_message_size=9),
            (
                Para(1),
                Para(2),
            ),
        )
    )
    router.take_headroom()
    router.begin_block(1)
    before = router.state_root()
    router.state.touched.paras[2] = None
    assert router.state_root() == before
    router.apply_downward(DownwardMessage(1, b"m"))
    restored = ROUTER.from_pages(pages(router))
    assert restored.take_headroom() == router.take_headroom() != []
    assert ROUTER.from_pages(pages(router)).take_headroom() == []


def test_pending_candidates_are_part_of_state() -> None:
    candidate = Candidate(
        1, 7, 6, (b"", b"up"), 2, (HorizontalMessage(3, b"x", b"h" * 32), HorizontalMessage(4, b"")), b"c" * 32
    )
    router = ROUTER.at_genesis(ChainSettings(HostConfiguration(), (Para(1),)))
    empty = ROUTER.root_of(router.state)
    router.begin_block(9)
    keep_pending(router.state, 1, 9, candidate)
    assert router.state_root() == ROUTER.root_of(router.state) != empty
    (pending,) = ROUTER.from_pages(pages(router)).state.pending_candidates[1]
    # the hash of a message is derived, and computed again when it is needed
    derived = tuple(message._replace(data_hash=None) for message in candidate.horizontal_messages)
    assert pending == (9, candidate._replace(horizontal_messages=derived))
