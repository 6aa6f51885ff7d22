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
from validator_relay_chain.errors import ChainContradiction
from validator_relay_chain.header import to_hex
from validator_relay_chain.hidden import Channels
from validator_relay_chain.mock import MockNode
from validator_relay_chain.mock.made import MadeChain
from validator_relay_chain.mock.state import MadeState
from validator_relay_chain.position import Position

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


def followed(
    folder: Path, chain: MadeChain, features: tuple[str, ...] = FORCED, *, restart: bool = False
) -> tuple[Collected, list[str]]:
    """Follow a made-up chain to its end; with ``restart`` in two parts, the second from the kept cursor."""
    with MockNode(chain.recording) as node:
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
        followed(tmp_path, chain)


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
