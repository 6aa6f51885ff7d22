# SPDX-License-Identifier: Apache-2.0
"""Changes of channels without an event of ``Hrmp`` reach the lane as requests of the block. Source: chain_2026 section 4."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle_world import kinds
from relay_world import FIRST, Collected, World, empty_chain
from test_judge_recorded import followed as recorded
from test_judge_recorded import judged
from validator_relay_chain import keys
from validator_relay_chain.channels import Channels
from validator_relay_chain.errors import ChainContradiction
from validator_relay_chain.header import to_hex
from validator_relay_chain.position import Position
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain, MadeState

A, B, C = 1000, 2000, 2004
"""2000 has a channel to 2004 from the beginning."""
FORCED = ("forced_requests", "cancel_open_request")
Hidden = Callable[[MadeState], None]


def closed(state: MadeState) -> None:
    del state.channels[B, C]
    state.closing.clear()


def exchanged(state: MadeState) -> None:
    state.open_channel(A, C)
    del state.channels[B, C]


def opened(sender: int, recipient: int, *, accepted: bool = True) -> Hidden:
    return lambda state: state.requests.update({(sender, recipient): accepted})


def forced(state: MadeState) -> None:
    for channel in [each for each, accepted in state.requests.items() if accepted]:
        del state.requests[channel]
        state.open_channel(*channel)


def cleaned(state: MadeState) -> None:
    """Do what ``force_clean_hrmp`` does to 2000."""
    for channel in [each for each in state.channels if B in each]:
        removed(*channel)(state)


def removed(sender: int, recipient: int) -> Hidden:
    def remove(state: MadeState) -> None:
        del state.channels[sender, recipient]
        state.contents.pop((sender, recipient), None)

    return remove


def cleaned_and_opened(state: MadeState) -> None:
    cleaned(state)
    state.requests.clear()
    state.open_channel(B, C)


def followed(
    folder: Path, chain: MadeChain, features: tuple[str, ...] = FORCED, *faults: Fault, restart: bool = False
) -> tuple[Collected, list[str]]:
    """Follow a made-up chain to its end; with ``restart`` in two parts, the second from the kept cursor."""
    with MockNode(chain.recording, faults) as node:
        world = World([node.url], folder, to_block=FIRST + 2 if restart else chain.number, features=features)
        out = Collected()
        world.follow(out, world.seed())
        if restart:
            world.to_block = chain.number
            world.follow(out, world.seed())
    return out, world.told


def requests(out: Collected) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for topic, record in out.records:
        if topic == "channel-requests":
            plain = {name: value for name, value in record.items() if name not in ("lane", "block", "index")}
            found.setdefault(record["block"], []).append(plain)
    return found


def init(sender: int, recipient: int) -> dict[str, Any]:
    sizes = {"max_places": 1_000, "max_message_size": 102_400}
    return {"kind": "init_open_channel", "origin": sender, "recipient": recipient, **sizes}


def accept(sender: int, recipient: int) -> dict[str, Any]:
    return {"kind": "accept_open_channel", "origin": recipient, "sender": sender}


def close(sender: int, recipient: int) -> dict[str, Any]:
    return {"kind": "close_channel", "origin": sender, "channel": [sender, recipient]}


@pytest.mark.parametrize("restart", [False, True])
def test_request_that_appears_in_a_list_becomes_a_request(tmp_path: Path, restart: bool) -> None:
    chain = empty_chain()
    chain.add()
    chain.add(hidden=opened(A, B))
    chain.add(requests=[("open", C, A)])
    chain.add(hidden=opened(C, B, accepted=False))
    chain.add(new_session=True)
    out, told = followed(tmp_path, chain, restart=restart)
    assert requests(out) == {
        FIRST + 1: [init(A, B), accept(A, B)],
        FIRST + 2: [init(C, A)],
        FIRST + 3: [init(C, B)],
    }
    line = f"block {FIRST + 1}: channels without an event of Hrmp: request 1000->2000 appears: the lane takes it over from storage"
    assert told[0] == line


def test_requests_are_processed_before_the_session_ends(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(requests=[("open", A, B), ("accept", A, B), ("close", B, C)])
    chain.add(hidden=forced)
    chain.add(hidden=closed)
    chain.add(new_session=True)
    out, _ = followed(tmp_path, chain)
    found = requests(out)
    assert found[FIRST + 1] == [{"kind": "force_process_open"}]
    assert found[FIRST + 2] == [{"kind": "force_process_close"}]
    assert FIRST + 3 not in found, "the session's end finds what the lane has"


def test_request_that_goes_is_cancelled(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(requests=[("open", A, B)])
    chain.add(hidden=lambda state: state.requests.clear())
    out, _ = followed(tmp_path, chain)
    assert requests(out)[FIRST + 1] == [{"kind": "cancel_open_request", "origin": A, "channel": [A, B]}]


def test_rules_that_know_no_forced_requests_get_a_line_alone(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(requests=[("open", A, B), ("accept", A, B)])
    chain.add(hidden=forced)
    out, told = followed(tmp_path, chain, ())
    assert FIRST + 1 not in requests(out)
    assert "1000->2000 opened before the session ends" in told[0]


def test_what_no_list_shows_is_found_at_the_end_of_the_session(tmp_path: Path) -> None:
    """A channel that was opened at once, and one that root has removed: each becomes requests once."""
    chain = empty_chain()
    chain.add()
    chain.add(hidden=exchanged)
    chain.add()
    chain.add(new_session=True)
    chain.add()
    chain.add(new_session=True)
    out, told = followed(tmp_path, chain)
    assert requests(out) == {FIRST + 3: [init(A, C), accept(A, C), close(B, C)]}
    assert len(told) == 2
    found = judged(*recorded(chain.recording, tmp_path / "lane", joined=FIRST))
    assert kinds(found) == [("ChannelWithoutEvent", "channels-without-event")] * 2, "once for each channel"
    said = [
        (each.block, each.difference.para_id, each.difference.recipient, each.difference.chain_says) for each in found
    ]
    assert said == [
        (FIRST + 3, A, C, "opened, found in storage"),
        (FIRST + 3, B, C, "closed, found in storage"),
    ]


def sends(chain: MadeChain, sender: int, recipient: int, data: bytes) -> None:
    """Add the block that backs a candidate with a message, and the one that includes it."""
    chain.add(backed=[MadeCandidate(sender, chain.parent, chain.number, (), ((recipient, data),))])
    chain.add(included=[sender])


def takes(chain: MadeChain, recipient: int, watermark: int) -> None:
    """Add the blocks that back and include a candidate which takes all messages up to a block."""
    chain.add(backed=[MadeCandidate(recipient, chain.parent, watermark)])
    chain.add(included=[recipient])


def disagreements(chain: MadeChain, folder: Path) -> list[tuple[str, str, int | None, int | None]]:
    """Return what the judge finds: kind, reason, sender and recipient."""
    found = judged(*recorded(chain.recording, folder / "lane", joined=FIRST))
    ends = [(each.difference.para_id, each.difference.recipient) for each in found]
    return [(*said, *pair) for said, pair in zip(kinds(found), ends, strict=True)]


def without_event(*channels: tuple[int, int]) -> list[tuple[str, str, int, int]]:
    return [("ChannelWithoutEvent", "channels-without-event", *channel) for channel in channels]


ASKED = [("open", B, C), ("accept", B, C)]
CLEAN = {"kind": "force_clean", "para_id": B}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        ([{"hidden": cleaned}, {"requests": ASKED}], [CLEAN, init(B, C), accept(B, C)]),
        ([{}, {"hidden": cleaned, "requests": ASKED}], [CLEAN, init(B, C), accept(B, C)]),
        (
            [{}, {"hidden": cleaned_and_opened, "requests": ASKED}],
            [CLEAN, init(B, C), accept(B, C), {"kind": "force_process_open"}],
        ),
        ([{}, {"hidden": cleaned, "requests": ASKED, "new_session": True}], [CLEAN, init(B, C), accept(B, C)]),
    ],
)
def test_channel_that_is_asked_for_anew_went_before(
    tmp_path: Path, blocks: list[dict[str, Any]], found: list[dict[str, Any]], restart: bool
) -> None:
    """Governance cleans a para, and its channel is asked for again in the session: the new channel is empty."""
    chain = empty_chain()
    chain.state.open_channel(A, B)
    chain.add()
    sends(chain, B, C, b"before")
    for each in blocks:
        chain.add(**each)
    at = chain.number
    chain.add(new_session=True)
    sends(chain, B, C, b"after")
    chain.add(new_session=True)
    out, told = followed(tmp_path, chain, restart=restart)
    assert requests(out) == {at: found}
    assert [line.split(": ")[2] for line in told][:2] == ["1000->2000 closed", "2000->2004 closed"]
    assert disagreements(chain, tmp_path) == without_event((A, B), (B, C))


def test_one_channel_that_went_leaves_the_others_of_both_paras(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.state.open_channel(B, A)
    chain.state.open_channel(A, C)
    chain.add()
    chain.add(hidden=removed(B, C), requests=ASKED)
    at = chain.number
    chain.add(new_session=True)
    sends(chain, B, C, b"after")
    sends(chain, B, A, b"to another")
    chain.add(new_session=True)
    out, _ = followed(tmp_path, chain)
    assert requests(out) == {at: [close(B, C), {"kind": "force_process_close"}, init(B, C), accept(B, C)]}
    assert disagreements(chain, tmp_path) == without_event((B, C))


def test_cleaned_para_leaves_channels_that_are_to_be_closed(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.state.open_channel(A, C)
    chain.add(requests=[("close", A, C)])
    chain.add(hidden=cleaned, requests=ASKED)
    sends(chain, A, C, b"until the session ends")
    chain.add(new_session=True)
    chain.add()
    assert disagreements(chain, tmp_path) == without_event((B, C))


def test_message_shows_a_channel_before_the_session_ends(tmp_path: Path) -> None:
    """The lane has the channel from its first message on: nothing is refused, and nothing is missing later."""
    chain = empty_chain()
    chain.add()
    chain.add(hidden=lambda state: state.open_channel(A, C))
    sends(chain, A, C, b"first")
    at = chain.number
    takes(chain, C, at)
    chain.add(new_session=True)
    sends(chain, A, C, b"second")
    chain.add(new_session=True)
    out, told = followed(tmp_path, chain)
    assert requests(out) == {at - 1: [init(A, C), accept(A, C), {"kind": "force_process_open"}]}
    assert len(told) == 1
    assert disagreements(chain, tmp_path) == without_event((A, C))


@pytest.mark.parametrize("waits", [True, False])
def test_message_opens_nothing_that_is_not_open_on_the_chain(tmp_path: Path, waits: bool) -> None:
    """Rules without forced requests, and another channel that waits for the session's end: what is found is found then."""
    chain = empty_chain()
    chain.add()
    chain.add(requests=[("open", A, B), ("accept", A, B)] if waits else [])
    chain.add(hidden=lambda state: state.open_channel(A, C))
    sends(chain, A, C, b"first")
    chain.add(new_session=True)
    out, _ = followed(tmp_path, chain, FORCED if waits else ())
    found = requests(out)
    assert found.pop(chain.number) == [init(A, C), accept(A, C)]
    assert found.keys() == ({FIRST + 1} if waits else set())


def test_message_that_no_channel_carries_is_left_to_the_lane(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add()
    chain.add(backed=[MadeCandidate(A, chain.parent, chain.number, (), ((C, b"lost"),))])
    out, told = followed(tmp_path, chain)
    assert (requests(out), told) == ({}, [])


def test_what_follows_from_a_late_channel_has_its_reason_at_both_ends(tmp_path: Path) -> None:
    """The channel comes with a message that no lane has seen: the recipient takes it, and the lane knows of none."""

    def with_content(state: MadeState) -> None:
        state.open_channel(A, C)
        state._send(at, A, C, b"unseen")

    chain = empty_chain()
    chain.add()
    at = chain.number + 1
    chain.add(hidden=with_content)
    chain.add(new_session=True)
    takes(chain, C, at)
    chain.add(new_session=True)
    found = disagreements(chain, tmp_path)
    assert found[0] == without_event((A, C))[0]
    assert ("CandidateRefused", "channels-without-event", C, None) in found
    assert {reason for _, reason, _, _ in found} == {"channels-without-event"}


def test_acceptance_without_an_event_is_found_when_the_channel_opens(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(requests=[("open", A, B)])
    chain.add(hidden=opened(A, B))
    chain.add(new_session=True)
    out, _ = followed(tmp_path, chain)
    assert requests(out)[FIRST + 2] == [accept(A, B)]


def test_list_that_names_no_request_is_the_nodes_fault(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add()
    block = chain.add(hidden=opened(A, B))
    del block.storage[to_hex(keys.channel_key(keys.HRMP_OPEN_REQUESTS, A, B))]
    with pytest.raises(ChainContradiction, match="names 1000->2000, and there is no such request"):
        followed(tmp_path, chain, FORCED, Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None))


def test_cursor_keeps_channels_and_one_without_them_looks_once(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add(requests=[("open", A, B)])
    chain.add()
    out, _ = followed(tmp_path, chain)
    assert out.cursor is not None
    position = Position.decode(out.cursor)
    expected = Channels(frozenset({(A, B)}), frozenset(), frozenset(), frozenset({(B, C)}))
    assert position.channels == expected
    assert Channels.of(json.loads(json.dumps(expected.to_json()))) == expected
