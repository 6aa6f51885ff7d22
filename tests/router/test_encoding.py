# SPDX-License-Identifier: Apache-2.0
"""Pages of the Router's state, with those that later rules add: what is written is read, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.router.test_invariants import CONFIG, rich_state
from validator.core.errors import Violation
from validator.core.execute import Intervals, execute
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.rules import ChainSettings, LaneRules, RulesEpoch, pages
from validator.core.scale import DecodeError
from validator.core.state import keep_pending
from validator.core.types import ZERO_HASH, Block, BlockRecord, DownwardMessage, Para, ParaKind, SessionChange
from validator.document import Node
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import EMPTY_COMMON_PARTS, SEED, decode_state, encode_state
from validator.protocols.router.features import table
from validator.protocols.router.invariants import broken_invariants
from validator.protocols.router.profile import rules_of
from validator.protocols.router.records import (
    AcceptOpenChannel,
    Candidate,
    EstablishChannelWithSystem,
    EstablishSystemChannel,
    ForceClean,
    HorizontalMessage,
    InitOpenChannel,
    ServiceOverweight,
)
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import HrmpChannel, Page, RouterState, add_channel
from validator.protocols.router.state_view import STATE_VIEW
from validator.protocols.router.statefile import STATE_FILE
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


def loaded(node: Node, settings: ChainSettings) -> LaneRules:
    return LaneRules(ROUTER, STATE_FILE.read(node, settings), settings)


HEAVY = b"heavy"
LATER = replace(
    CONFIG,
    preferred_dispatchable_upward_messages_step_weight=2,
    max_upward_queue_count=10,
    max_upward_queue_size=100,
    message_queue_heap_size=21,
    hrmp_notification_xcm_version=3,
    hrmp_system_channel_max_places=3,
    hrmp_system_channel_max_message_size=5,
    hrmp_sender_deposit=7,
    hrmp_recipient_deposit=5,
)


def chain(*features: str) -> ChainSettings:
    held = table.with_implied(frozenset(features))
    return ChainSettings(
        LATER,
        tuple(Para(para, balance=100) for para in (1, 2, 2003, 2004)),
        upward_messages=FixedWeightDispatcher({HEAVY: 3}),
        rules=(RulesEpoch(0, table.version_of(held), rules_of(held)),),
    )


SETTINGS = chain(
    "message_queue", "clean_open_channel_requests", "system_channels_without_deposits", "establish_system_channel"
)


def later_router() -> LaneRules:
    """Return a chain with pages that wait and were set aside, one of them half served, and deposits of each kind."""
    router = ROUTER.at_genesis(SETTINGS)
    router.begin_block(1)
    router.apply_request(InitOpenChannel(2003, 2004, 2, 4))
    router.change_session(SessionChange(outgoing=(2003,)))  # its deposit stays reserved
    router.begin_block(2)
    router.apply_request(EstablishSystemChannel(1, 2))  # the recipient leaves nothing
    router.apply_candidate(Candidate(2004, 1, 1, (HEAVY, b"a", HEAVY)))
    router.apply_candidate(Candidate(1, 1, 1, (b"b", b"c", b"d")))
    router.dispatch()
    router.apply_candidate(Candidate(2004, 2, 2, (HEAVY, b"e", b"f")))
    return router


def test_pages_hold_everything_that_later_rules_keep() -> None:
    router = later_router()
    state = router.state
    assert list(broken_invariants(state)) == []
    assert state.hrmp_stranded_deposits == {2003: 7}
    assert state.message_queue is not None
    assert [len(list(book.set_aside())) for book in state.message_queue.books.values()].count(0) < 2
    common, owned = encode_state(state)
    assert common[0] == SEED + 1
    decoded = decode_state(common, owned.values())
    assert view(decoded) == view(state)
    assert encode_state(decoded) == (common, owned)
    for name in ("message_queue", "host_configuration", "hrmp_stranded_deposits", "hrmp_open_channel_requests"):
        assert getattr(decoded, name) == getattr(state, name)


def test_restored_lane_serves_as_the_one_that_went_on() -> None:
    one = later_router()
    other = ROUTER.from_pages(pages(one), SETTINGS)
    for router in (one, other):
        router.begin_block(3)
    for block in (4, 5, 6):
        assert one.dispatch() == other.dispatch()
        assert pages(one) == pages(other)
        for router in (one, other):
            router.begin_block(block)
    assert one.state_root() == other.state_root()


def test_pages_of_router_txt_have_no_later_parts() -> None:
    common, owned = encode_state(rich_state())
    assert {common[0], *(page[0] for page in owned.values())} == {SEED}


def test_page_that_ends_with_empty_parts_is_read_as_without() -> None:
    common, owned = encode_state(rich_state())
    longer = [bytes((SEED + 1,)) + page[1:] + bytes(1) for page in owned.values()]
    for parts, empty in ((1, 7), (2, 10)):
        decoded = decode_state(bytes((SEED + parts,)) + common[1:] + bytes(empty), longer)
        assert encode_state(decoded) == (common, owned)
    with pytest.raises(DecodeError, match=r"^state encoding version 4, expected 1 to 3$"):
        decode_state(b"\x04" + common[1:], longer)


@pytest.mark.parametrize("made", [rich_state, lambda: later_router().state], ids=["first rules", "later rules"])
def test_truncated_or_extended_pages_are_refused(made: Callable[[], RouterState]) -> None:
    common, owned = encode_state(made())
    everything = [common, *owned.values()]
    for at, page in enumerate(everything):
        for wrong in [page[:size] for size in range(len(page))] + [page + b"\0"]:
            changed = [*everything[:at], wrong, *everything[at + 1 :]]
            with pytest.raises(DecodeError):
                decode_state(changed[0], changed[1:])


def test_state_file_leads_to_the_same_pages() -> None:
    router = later_router()
    document = STATE_FILE.write(router.state)
    again = loaded(Node(document, "state"), SETTINGS)
    again.state.session_index = router.state.session_index  # a state file has no key for it
    assert encode_state(again.state) == encode_state(router.state)


def test_state_file_without_books_implies_them() -> None:
    router = later_router()
    document = STATE_FILE.write(router.state)
    del document["ump_books"]
    again = loaded(Node(document, "state"), SETTINGS)
    assert view(again.state) == view(router.state)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"ready_ring": [1]}, r"state.needs_dispatch: the file says \[1, 2004\], its other keys imply \[1\]"),
        ({"ready_ring": None}, "state.ump_books: expected null, since ready_ring is null"),
        ({"ready_ring": None, "ump_books": None}, "state.ump_overweight: expected null, since ready_ring is null"),
        ({"ump_overweight": {"2004": []}}, "ump_overweight.2004: the file says"),
        (
            {"ump_books": {"1": {"begin": 0, "end": 1, "pages": {}}}},
            "state.ump_books.1: the book of this one lacks a page",
        ),
    ],
)
def test_contradictory_state_file_is_refused(change: dict[str, Any], line: str) -> None:
    document = STATE_FILE.write(later_router().state) | change
    with pytest.raises(UserError, match=line):
        loaded(Node(document, "state"), SETTINGS)


def test_ring_needs_the_feature_in_the_first_block() -> None:
    router = later_router()
    router.check_start(5)
    rules = (RulesEpoch(0, 1, rules_of(frozenset())), RulesEpoch(9, 2, rules_of(frozenset({"message_queue"}))))
    early = LaneRules(ROUTER, router.state, replace(SETTINGS, rules=rules))
    early.check_start(9)
    with pytest.raises(ValueError, match="ready_ring: expected null, since message_queue is not in force in block 8"):
        early.check_start(8)


Corruption = Callable[[RouterState], Any]


def _queue(state: RouterState) -> Any:
    return state.message_queue


CORRUPTIONS: dict[str, tuple[Corruption, str]] = {
    "ring": (lambda s: _queue(s).ring.append(2), "the ring is"),
    "ring twice": (lambda s: _queue(s).ring.append(_queue(s).ring[0]), "the ring is"),
    "size": (lambda s: s.relay_dispatch_queue_size.update({1: (9, 9)}), "relay_dispatch_queue_size is"),
    "both kinds of queues": (lambda s: s.needs_dispatch.append(1), "both in the message queue and outside"),
    "page missing": (lambda s: _queue(s).books[2004].pages.pop(_queue(s).books[2004].begin), "lacks a page"),
    "processed message waits": (
        lambda s: _queue(s).books[2004].pages[_queue(s).books[2004].end - 1].messages.__setitem__(-1, None),
        "of 2004 is processed",
    ),
    "page after the end": (lambda s: _queue(s).books[2004].pages.update({99: Page([b"x"], 6, 1)}), "ends at page"),
    "empty page": (lambda s: _queue(s).books[1].pages.update({0: Page([None], 9, 0)}), "has no message left"),
    "count of a page": (lambda s: setattr(_queue(s).books[2004].pages[0], "unprocessed", 9), "counts 9 messages"),
    "heap": (lambda s: setattr(_queue(s).books[2004].pages[0], "heap_used", 1), "less than its messages take"),
    "next index": (lambda s: setattr(_queue(s).books[2004], "next_index", 99), "past its page's end"),
    "stranded": (lambda s: s.hrmp_stranded_deposits.clear(), "2003"),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_breaks_an_invariant(name: str) -> None:
    corrupt, words = CORRUPTIONS[name]
    state = later_router().state
    corrupt(state)
    assert any(words in sentence for sentence in broken_invariants(state)), list(broken_invariants(state))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_broken_book_does_not_hide_other_broken_invariants(name: str) -> None:
    corrupt, words = CORRUPTIONS[name]
    state = later_router().state
    corrupt(state)
    state.outgoing_paras = [2, 1]  # checked after everything else
    sentences = list(broken_invariants(state))
    assert any(words in sentence for sentence in sentences)
    assert sentences[-1] == "outgoing_paras is not ascending and unique: [2, 1]"


def test_serviced_message_leaves_its_page() -> None:
    router = later_router()
    aside = view(router.state)["ump_overweight"]["2004"]
    router.begin_block(3)
    for each in aside:
        router.apply_request(ServiceOverweight(2004, each["page"], each["index"], 3))
    assert [dispatch.payload for dispatch in router.dispatch()][: len(aside)] == [HEAVY] * len(aside)
    assert list(broken_invariants(router.state)) == []


def test_request_confirmed_without_deposit_round_trips() -> None:
    settings = chain("system_channels_without_deposits")
    router = ROUTER.at_genesis(settings)
    router.begin_block(1)
    router.apply_request(InitOpenChannel(1, 2003, 2, 4))
    router.apply_request(AcceptOpenChannel(2003, 1))
    document = STATE_FILE.write(router.state)
    assert document["open_requests"]["1->2003"]["recipient_deposit"] == 0
    for again in (ROUTER.from_pages(pages(router), settings), loaded(Node(document, "state"), settings)):
        assert again.state.hrmp_open_channel_requests == router.state.hrmp_open_channel_requests
        assert encode_state(again.state) == encode_state(router.state)


def test_state_view_shows_what_waits_and_what_was_set_aside() -> None:
    router = later_router()
    sections = {section.title: section for section in STATE_VIEW.para_sections(router.state, 2004) or ()}
    assert [row[-1] for row in sections["upward messages (3)"].rows] == [to_hex(HEAVY), "0x65", "0x66"]
    assert [row[:2] for row in sections["upward messages set aside as too heavy (2)"].rows] == [("0", "0"), ("1", "0")]
    document = STATE_VIEW.para_document(router.state, 2004)
    assert document is not None
    assert set(document["state"]["ump_overweight"]) == {"2004"}
    other = STATE_VIEW.para_document(router.state, 1)
    assert other is not None
    assert other["state"]["ump_overweight"] == {}
    assert other["state"]["ready_ring"] == [1]
    (facts, *_) = STATE_VIEW.whole_sections(router.state)
    assert facts.facts


def test_uncounted_requests_round_trip() -> None:
    settings = chain("no_ttl")
    router = ROUTER.at_genesis(settings)
    router.begin_block(1)
    router.apply_request(InitOpenChannel(1, 2003, 2, 4))
    router.change_session(SessionChange(outgoing=(1,)))  # its count goes, the request stays
    router.change_session(SessionChange(onboarding=(Para(1, balance=100),)))
    router.apply_request(InitOpenChannel(1, 2004, 2, 4))
    document = STATE_FILE.write(router.state)
    assert document["uncounted_requests"] == {"1": 1}
    again = loaded(Node(document, "state"), settings)
    again.state.session_index = router.state.session_index
    assert encode_state(again.state) == encode_state(router.state)
    document["uncounted_requests"] = {"1": 3}
    with pytest.raises(UserError, match=r"state.uncounted_requests.1: expected at most the 2 open requests of para 1"):
        loaded(Node(document, "state"), settings)


def test_absent_and_empty_parts_of_a_state_file_give_the_same_pages() -> None:
    plain = {"valid_paras": [1, 2], "ready_ring": []}
    one = loaded(Node(plain, "state"), SETTINGS)
    empty = {
        "stranded_deposits": {"7": 0},
        "uncounted_requests": {"7": 0},
        "ump_books": {"1": {"begin": 0, "end": 0, "pages": {}}},
        "ump_overweight": None,
    }
    other = loaded(Node(plain | empty, "state"), SETTINGS)
    assert pages(one) == pages(other)


@pytest.mark.parametrize(
    "damage",
    [
        lambda book: setattr(book, "next_index", 7),
        lambda book: setattr(book, "begin", book.end + 1),
        lambda book: setattr(book.pages[book.end - 1], "heap_used", 1),
        lambda book: book.pages[book.end - 1].messages.__setitem__(-1, None),
    ],
    ids=["next index", "begin", "heap", "processed"],
)
def test_damaged_book_is_a_decode_error(damage: Callable[[Any], None]) -> None:
    state = later_router().state
    damage(_queue(state).books[2004])
    common, owned = encode_state(state)
    with pytest.raises(DecodeError, match=r"a para|the ring"):
        decode_state(common, owned.values())


def test_refused_composite_marks_no_headroom() -> None:
    settings = chain("establish_channel_with_system", "hrmp_notifications")
    poor = tuple(Para(para, balance=100 if para == 2003 else 6) for para in (1, 2003))
    router = ROUTER.at_genesis(replace(settings, paras=poor))
    router.begin_block(1)
    router.take_headroom()
    with pytest.raises(Violation):
        router.apply_request(EstablishChannelWithSystem(2003, 1))
    assert router.take_headroom() == []


@pytest.mark.parametrize("blocks", [(1, 2, 3, 4), (1, 2, 4)], ids=["each block", "switch in a skipped number"])
def test_switch_emits_the_headroom_of_every_para(blocks: tuple[int, ...]) -> None:
    stay = table.with_implied(frozenset({"watermark_may_stay"}))
    rules = (RulesEpoch(0, 1, rules_of(frozenset())), RulesEpoch(3, table.version_of(stay), rules_of(stay)))
    router = ROUTER.at_genesis(replace(chain(), rules=rules))
    emitted = []
    parent = 0
    for block in blocks:
        router.begin_block(block, parent)
        emitted.append(len(router.take_headroom()))
        parent = block
    assert emitted == [
        4 if block == 1 or block == next(each for each in blocks if each >= 3) else 0 for block in blocks
    ]


def test_weight_of_a_block_has_a_greatest_value() -> None:
    heaviest = 2**63 - 1
    settings = replace(SETTINGS, upward_messages=FixedWeightDispatcher(default_weight=heaviest))
    router = ROUTER.at_genesis(settings)
    record = BlockRecord(1, 0)
    execute(router, Block(record, candidates=(Candidate(1, 0, 0, (b"a", b"b", b"c")),)), Intervals())
    requests = tuple(ServiceOverweight(1, 0, index, 2**64 - 1) for index in range(3))
    done = execute(router, Block(replace(record, block=2, parent_number=1), requests=requests), Intervals())
    assert ([each.weight for each in done.dispatches], done.receipt.weight_used) == ([heaviest] * 3, 2**64 - 1)


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
