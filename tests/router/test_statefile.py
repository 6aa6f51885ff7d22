# SPDX-License-Identifier: Apache-2.0
"""State files of the Router, with the items that later rules add."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from validator_simulators import SimulationSettings

from tests.router.test_encoding import HEAVY, SETTINGS, later_router, loaded
from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of
from validator.core.inputs import DeadLetter
from validator.core.lane import Lane
from validator.core.outcomes import Verdict
from validator.core.rules import ChainSettings, LaneRules, pages
from validator.core.types import SessionChange
from validator.document import Node
from validator.errors import UserError
from validator.protocols.router.encoding import encode_state
from validator.protocols.router.records import Candidate
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import RouterState
from validator.protocols.router.statefile import STATE_FILE, STATE_KEYS, UNCOUNTED_REQUESTS, read_state
from validator.protocols.router.traces import view

Json = dict[str, Any]

LEDGER = chain(SimulationSettings(seed=21, blocks=40, candidates_per_block=10, session_length_blocks=9))
UNLIMITED = chain(
    SimulationSettings(seed=22, blocks=40, candidates_per_block=10, session_length_blocks=9, unlimited_balances=True)
)
MIDDLE = 30


def play(lane: Lane, of: Chain, first: int, last: int) -> list[Verdict]:
    for item in inputs_of(record for record in of.records if first <= record.block <= last):
        assert not isinstance(item, DeadLetter)
        assert lane.add(item) == []
    return [verdict for executed, _ in lane.execute_ready() for verdict in executed.verdicts]


def state_of(lane: Lane) -> RouterState:
    assert lane.rules.rule_set is ROUTER
    return lane.rules.state


@cache
def mid_chain_state(of: Chain = LEDGER) -> RouterState:
    """Return the state after some blocks: channels with messages, requests, queues of every kind."""
    lane = definition_of(of).create()
    play(lane, of, 1, MIDDLE)
    return state_of(lane)


def written(state: RouterState) -> Json:
    """Return the state as a state file has it, with the kinds of paras and with requests that are not counted (I-06)."""
    document: Json = json.loads(json.dumps(view(state)))
    if state.hrmp_uncounted_requests:
        document[UNCOUNTED_REQUESTS] = {str(para): count for para, count in state.hrmp_uncounted_requests.items()}
    document["valid_paras"] = [{"para_id": para, "kind": kind} for para, kind in sorted(state.paras.items())]
    return document


def read(document: Json, like: RouterState) -> RouterState:
    return read_state(
        Node(document, "STATE"),
        like.host_configuration,
        balances=like.balances_mode,
        notifications=like.hrmp_notifications,
    )


@pytest.mark.parametrize("of", [LEDGER, UNLIMITED], ids=["ledger", "unlimited"])
def test_written_state_reads_back_unchanged(of: Chain) -> None:
    state = mid_chain_state(of)
    document = view(state)
    for key in ("channels", "open_requests", "contents", "digests", "watermarks", "dmq", "dmq_heads", "balances"):
        assert document[key], f"the state was meant to have {key}"
    again = read(written(state), state)
    assert view(again) == document
    assert again.paras == state.paras


def test_derived_keys_may_be_left_out() -> None:
    state, document = mid_chain_state(), written(mid_chain_state())
    derived = ("channel_set", "open_request_set", "open_request_count", "accepted_request_count", "ingress", "egress")
    for key in (*derived, "mqc_heads", "ump_queue_size", "needs_dispatch"):
        del document[key]
    for channel in document["channels"].values():
        del channel["used_places"], channel["used_bytes"]
    assert view(read(document, state)) == view(state)


def test_empty_document_gives_empty_state() -> None:
    state = mid_chain_state()
    empty = read({}, state)
    assert view(empty) == view(RouterState(state.host_configuration))
    assert set(STATE_KEYS) == set(view(empty))


def test_largest_para_id_is_read() -> None:
    largest = 2**32 - 1
    state = read({"valid_paras": [largest], "watermarks": {str(largest): 3, "0": 1}}, mid_chain_state())
    assert state.hrmp_watermarks == {largest: 3, 0: 1}


def test_unrelated_keys_are_ignored_next_to_those_of_a_state() -> None:
    unrelated = {"first_block": 7, "recorded_by": "somebody"}
    assert view(read({**unrelated, "channels": {}}, mid_chain_state())) == view(read({}, mid_chain_state()))
    with pytest.raises(UserError, match=r"^STATE: expected keys of a state, such as valid_paras"):
        read(unrelated, mid_chain_state())


@pytest.mark.parametrize("of", [LEDGER, UNLIMITED], ids=["ledger", "unlimited"])
def test_lane_from_written_state_matches_uninterrupted_lane(of: Chain) -> None:
    uninterrupted = definition_of(of).create()
    play(uninterrupted, of, 1, MIDDLE)
    expected = play(uninterrupted, of, MIDDLE + 1, 40)

    fresh = definition_of(of).create()
    seeded = Lane(
        fresh.name,
        LaneRules(ROUTER, read(written(mid_chain_state(of)), mid_chain_state(of)), settings_of(fresh)),
        MIDDLE,
    )
    verdicts = play(seeded, of, MIDDLE + 1, 40)
    assert len(verdicts) == len(expected) > 0
    for one, other in zip(verdicts, expected, strict=True):
        assert (one.kind, one.block, one.index, one.para_id) == (other.kind, other.block, other.index, other.para_id)
        assert (one.violation is None) == (other.violation is None)
        if one.violation is not None and other.violation is not None:
            assert (one.violation.kind, one.violation.details()) == (other.violation.kind, other.violation.details())
        # a channel's number of messages so far is not in the state keys; its head is
        assert [message.mqc_head for message in one.messages] == [message.mqc_head for message in other.messages]
    assert {**view(state_of(seeded)), "valid_paras": []} == {**view(state_of(uninterrupted)), "valid_paras": []}


def settings_of(lane: Lane) -> ChainSettings:
    assert lane.rules.rule_set is ROUTER
    return lane.rules.settings


def channel(document: Json) -> Json:
    value: Json = next(value for name, value in document["channels"].items() if name not in document["contents"])
    return value


def request(document: Json) -> Json:
    return next(iter(document["open_requests"].values()))


def first(document: Json, key: str) -> Any:
    return next(iter(document[key].values()))


def renamed(document: Json, key: str, name: str) -> None:
    table = document[key]
    table[name] = table.pop(next(iter(table)))


MALFORMED: dict[str, tuple[Callable[[Json], Any], str]] = {
    "misspelt key": (lambda d: d.update(chanels={}), "unknown key 'chanels', did you mean 'channels'?"),
    "channels no object": (lambda d: d.update(channels=[1]), "STATE.channels: expected an object, found [1]"),
    "channel no object": (lambda d: d["channels"].update({"1->2": 5}), "STATE.channels.1->2: "),
    "channel without name": (lambda d: renamed(d, "channels", "x"), "expected a channel 'sender->recipient', found 'x'"),
    "channel of three": (lambda d: renamed(d, "channels", "1->2->3"), "expected a channel 'sender->recipient'"),
    "channel of words": (lambda d: renamed(d, "channels", "a->b"), "expected a para id from 0 to 4294967295 as key"),
    "channel with sign": (lambda d: renamed(d, "channels", "-1->2"), "expected a para id from 0 to 4294967295 as key"),
    "limit missing": (lambda d: channel(d).pop("limit_used_places"), "key 'limit_used_places' is missing"),
    "limit negative": (lambda d: channel(d).update(limit_used_places=-1), "expected an integer from 0 to 4294967295"),
    "limit as text": (lambda d: channel(d).update(limit_used_bytes="9"), "expected an integer from 0 to 4294967295"),
    "limit as truth": (lambda d: channel(d).update(limit_used_bytes=True), "found true"),
    "limit as float": (lambda d: channel(d).update(limit_message_size=1.5), "found 1.5"),
    "deposit too large": (lambda d: channel(d).update(sender_deposit=2**128), "expected an integer from 0 to 3402823"),
    "deposit other": (lambda d: channel(d).update(sender_deposit=1), "the rules cannot reach this state"),
    "head short": (lambda d: channel(d).update(mqc_head="00"), "expected 32 bytes in hex"),
    "head no hex": (lambda d: channel(d).update(mqc_head="zz" * 32), "expected 32 bytes in hex"),
    "places disagree": (lambda d: channel(d).update(used_places=9), "used_places: the file says 9, its other keys imply 0"),
    "unknown of a channel": (lambda d: channel(d).update(colour="red"), "colour: the file says \"red\""),
    "contents nowhere": (lambda d: d["contents"].update({"1->2": [{"sent_at": 1, "data": "00"}]}), "contents.1->2: the file says"),
    "contents no list": (lambda d: d["contents"].update({next(iter(d["contents"])): 3}), "expected an array, found 3"),
    "contents without data": (lambda d: first(d, "contents")[0].pop("data"), "key 'data' is missing"),
    "contents other": (lambda d: first(d, "contents")[0].update(data="ffff"), "STATE"),
    "request unconfirmed": (lambda d: request(d).update(confirmed="yes"), "expected true or false, found \"yes\""),
    "request without age": (lambda d: request(d).pop("age"), "key 'age' is missing"),
    "close request without name": (lambda d: d.update(close_request_set=["1"]), "expected a channel 'sender->recipient'"),
    "close request twice": (lambda d: d.update(close_request_set=[next(iter(d["channels"]))] * 2), "STATE"),
    "close request a number": (lambda d: d.update(close_request_set=[7]), "close_request_set[0]: expected a string, found 7"),
    "set disagrees": (lambda d: d["channel_set"].pop(), "channel_set: the file says"),
    "count disagrees": (lambda d: d.update(open_request_count={"5": 3}), "open_request_count.5: the file says 3"),
    "index disagrees": (lambda d: first(d, "ingress").append(9), "ingress."),
    "digests no pair": (lambda d: first(d, "digests").append([1]), "expected [block, [sender, ...]]"),
    "digest of nobody": (lambda d: first(d, "digests")[0].__setitem__(1, []), "the rules cannot reach this state"),
    "digests twice": (lambda d: first(d, "digests").append(deepcopy(first(d, "digests")[0])), "digests."),
    "watermark too large": (lambda d: d["watermarks"].update({"2000": 2**32}), "watermarks.2000: expected an integer"),
    "para too large": (lambda d: d["watermarks"].update({str(2**32): 1}), "expected a para id from 0 to 4294967295"),
    "para of many digits": (lambda d: d["watermarks"].update({"9" * 5000: 1}), "expected a para id from 0 to 4294967295"),
    "para with zeros": (lambda d: d["watermarks"].update({"0002000": 1}), "expected a para id from 0 to 4294967295"),
    "para in other digits": (lambda d: d["watermarks"].update({"\u0662": 1}), "expected a para id from 0 to 4294967295"),
    "downward no hex": (lambda d: first(d, "dmq")[0].update(msg="0"), "expected bytes in hex, an even number of digits"),
    "downward out of order": (lambda d: d["dmq"].update({"2000": [{"sent_at": n, "msg": ""} for n in (5, 4)]}), "in order of sent_at"),
    "downward head": (lambda d: d.update(dmq_heads={"2000": 5}), "dmq_heads.2000: expected a string, found 5"),
    "upward no list": (lambda d: d.update(ump_queues={"2000": "00"}), "ump_queues.2000: expected an array"),
    "upward sizes": (lambda d: d.update(ump_queue_size={"2000": [1, 1]}), "ump_queue_size.2000: the file says [1, 1]"),
    "pointer nowhere": (lambda d: d.update(next_dispatch_round_start_with=77), "the rules cannot reach this state"),
    "balance no object": (lambda d: d["balances"].update({"2000": 5}), "balances.2000: expected an object, found 5"),
    "balance negative": (lambda d: d["balances"].update({"2000": {"free": -5}}), "free: expected an integer"),
    "reserved other": (lambda d: d["balances"].update({"77": {"reserved": 5}}), "77 has 5 reserved, its deposits are 0"),
    "valid paras": (lambda d: d.update(valid_paras={"2000": 1}), "valid_paras: expected an array"),
    "valid para": (lambda d: d.update(valid_paras=["2000"]), "valid_paras[0]: expected an integer"),
    "kind of para": (lambda d: d["valid_paras"][0].update(kind="moon"), "expected one of parachain, parathread, found \"moon\""),
    "channel of nobody": (lambda d: d.update(valid_paras=[]), "is not a valid para"),
    "outgoing twice": (lambda d: d.update(outgoing_paras=[3, 3]), "outgoing_paras is not ascending and unique"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_state_is_refused_in_one_line(name: str) -> None:
    change, expected = MALFORMED[name]
    document = written(mid_chain_state())
    change(document)
    with pytest.raises(UserError) as error:
        read(document, mid_chain_state())
    assert str(error.value).startswith("STATE")
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, 5, "x", [], True])
def test_state_that_is_not_an_object_is_refused(value: object) -> None:
    with pytest.raises(UserError, match=r"^STATE: expected an object, found "):
        read_state(Node(value, "STATE"), mid_chain_state().host_configuration)


def test_state_with_messages_of_a_para_that_has_left_reads_back() -> None:
    """A candidate may be enacted after its para has left (I-25, I-28), so such a state is reachable."""
    router = later_router()
    router.begin_block(5)
    router.change_session(SessionChange(outgoing=(2004,)))
    router.begin_block(6)
    router.enact_candidate(Candidate(2004, 5, 5, (HEAVY, b"late"), 0, ()))
    router.dispatch()
    document = STATE_FILE.write(router.state)
    assert 2004 not in router.state.paras
    assert set(document["ump_overweight"]) == {"2004"}
    again = loaded(Node(document, "state"), SETTINGS)
    again.state.session_index = router.state.session_index
    assert encode_state(again.state) == encode_state(router.state)


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ({"ump_overweight": {"1": [{"page": 2**31, "index": 0, "msg": "aa"}]}}, "page: expected an integer from 0 to 2147483647"),
        ({"ump_overweight": {"1": [{"page": 0, "index": 2**30, "msg": "aa"}]}}, "index: expected an integer from 0 to 1048576"),
        ({"ump_books": {"1": {"begin": 2**32 - 1, "end": 2**32 - 1, "pages": {}}}}, "begin: expected an integer from 0 to 2147483648"),
        (
            {"open_requests": {"1->2": {"confirmed": False, "age": 0, "sender_deposit": 0, "limit_used_places": 1,
             "limit_used_bytes": 1, "limit_message_size": 1, "recipient_deposit": "x"}}},
            "recipient_deposit: expected null, since the request is not confirmed",
        ),
        (
            {"ump_books": {"1": {"begin": 0, "end": 1, "pages": {"00": {"heap_used": 9, "messages": ["aa"]}}}}},
            r"pages.00: expected a page's number from 0 to 4294967295 as key, found '00'",
        ),
        (
            {"ump_queues": {"1": ["aa", "aa" * 17]}, "ready_ring": [1]},
            r"ump_queues.1\[1\]: expected at most 16 bytes, which a page holds, found 17$",
        ),
        (
            {"ump_queues": {"1": ["aa"], "2": ["bb" * 60_000]}, "ready_ring": [1]},
            r'ump_queues.2: the file says \["b{195}..., its other keys imply null$',
        ),
        ({"valid_paras": [1, {"para_id": 1, "kind": "parathread"}]}, r"valid_paras\[1\]: expected a para that is not listed yet"),
    ],
)  # fmt: skip
def test_state_file_with_number_out_of_range_is_refused(state: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        loaded(Node({"valid_paras": [1, 2], "ready_ring": [], **state}, "state"), SETTINGS)


def test_para_without_messages_set_aside_reads_back() -> None:
    one = loaded(Node({"valid_paras": [1], "ready_ring": []}, "state"), SETTINGS)
    other = loaded(Node({"valid_paras": [1], "ready_ring": [], "ump_overweight": {"1": []}}, "state"), SETTINGS)
    assert pages(other) == pages(one)
    assert pages(loaded(Node(STATE_FILE.write(other.state), "state"), SETTINGS)) == pages(one)
