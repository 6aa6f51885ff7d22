# SPDX-License-Identifier: Apache-2.0
"""A node that means harm: what it sends costs bounded memory and time, ends in one line, and leads nowhere else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from relay_recordings import Answer, served
from relay_world import FIRST, LAST, SPEC, Collected, World, busy_chain, load, metadata
from validator_relay_chain import layout
from validator_relay_chain.connection import Connection
from validator_relay_chain.errors import (
    BadAnswer,
    NodeError,
    NotKnownHere,
    RateLimited,
    UndecodableBlock,
    Unreachable,
)
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.limits import HEADS_WAITING_MAX, METADATA_BYTES_MAX
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.pool import NodePool, open_wire
from validator_relay_chain.source import read_version
from validator_simulators.relay_chain import MockNode
from validator_simulators.relay_chain.recording import RecordedBlock
from websockets.sync.server import ServerConnection, serve


def plain(socket: ServerConnection, asked: dict[str, Any], **fields: Any) -> None:
    """Answer a request, by default with a result."""
    socket.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **(fields or {"result": "0x01"})}))


@contextmanager
def connected(answer: Answer) -> Iterator[Connection]:
    """Connect to a node that answers as it likes, except to the first request, a subscription."""
    with served(lambda socket, asked: {"result": "0x01"} if asked["id"] == 1 else answer(socket, asked)) as url:
        connection = Connection(url)
        try:
            yield connection
        finally:
            connection.close()


@pytest.mark.parametrize(
    ("status", "meaning"),
    [(429, RateLimited), (503, RateLimited), (404, Unreachable), (200, Unreachable), (502, Unreachable)],
)
def test_http_status_instead_of_a_websocket_says_whether_it_passes(status: int, meaning: type[NodeError]) -> None:
    with serve(
        lambda _: None, "127.0.0.1", 0, process_request=lambda socket, _: socket.respond(status, "no")
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
            with pytest.raises(meaning, match=f"HTTP status {status} instead of a WebSocket"):
                open_wire(url)
        finally:
            server.shutdown()
            thread.join()


def raw(text: str) -> Answer:
    return lambda socket, _: socket.send(text)


@pytest.mark.parametrize(
    "answer",
    [raw("[" * 200_000), raw('{"id": ' + "[" * 200_000), raw('{"id": 1' + "0" * 5_000 + "}"), raw("[]"), raw("\0")],
)
def test_answer_that_cannot_be_read_fails_the_call(answer: Answer) -> None:
    with connected(answer) as connection, pytest.raises(BadAnswer):
        connection.call("chain_getHeader", (), 60.0)


@pytest.mark.parametrize("error", [{"code": [1]}, {"code": {}}, {"code": 10**300, "message": 3}, [], "x", None, 3])
def test_error_of_any_form_is_an_error_of_the_node(error: Any) -> None:
    with connected(lambda socket, asked: plain(socket, asked, error=error)) as connection, pytest.raises(NodeError):
        connection.call("chain_getHeader", (), 60.0)


def test_text_of_a_node_stays_one_line_without_control_characters() -> None:
    text = "\x1b[2J\nlane polkadot: all is well\r" + "x" * 1_000
    with (
        connected(lambda socket, asked: plain(socket, asked, error={"code": 1, "message": text})) as connection,
        pytest.raises(NodeError) as caught,
    ):
        connection.call("chain_getHeader", (), 60.0)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_answers_to_others_floods_of_heads_and_pings_leave_the_call_alone() -> None:
    def flood(socket: ServerConnection, asked: dict[str, Any]) -> None:
        for id_ in (None, [], "2", 2.5, -1, 10**30):
            socket.send(json.dumps({"id": id_, "result": "wrong"}))
        for number in range(2 * HEADS_WAITING_MAX):
            socket.send(json.dumps({"method": "chain_finalizedHead", "params": {"result": number}}))
        for _ in range(1_000):
            socket.ping()
        plain(socket, asked, result="right")

    with connected(flood) as connection:
        assert connection.call("chain_getHeader", (), 60.0) == "right"
        heads = 0
        while connection.head(0) is not None:
            heads += 1
        assert heads == HEADS_WAITING_MAX


def test_answer_that_drips_is_given_up() -> None:
    def drip(socket: ServerConnection, _: dict[str, Any]) -> None:
        def pieces() -> Iterator[str]:
            yield '{"id": 2, "result": "'
            ended.wait(60.0)

        socket.send(pieces())

    ended = threading.Event()
    with connected(drip) as connection:
        with pytest.raises(Unreachable, match=r"no answer within 0.5 s"):
            connection.call("chain_getHeader", (), 0.5)
        ended.set()


@pytest.mark.parametrize("version", [-1, 2**32, 10**4000, True, 1.5, "1", None])
def test_version_out_of_range_is_refused(version: Any) -> None:
    with pytest.raises(BadAnswer, match="state_getRuntimeVersion: expected a "):
        read_version({"specVersion": version, "specName": "polkadot"})


@pytest.mark.parametrize("number", ["0x" + "f" * 100_000, "0x-1", "-0x1", "0x", "1", 1, None, [], {}])
def test_number_out_of_range_is_refused(number: Any) -> None:
    with pytest.raises(BadAnswer, match="header: number: expected a block number"):
        Header.from_json({"number": number})


# --- metadata ---


def test_metadata_bomb_is_refused() -> None:
    with pytest.raises(UndecodableBlock, match=f"expected metadata of at most {METADATA_BYTES_MAX} bytes"):
        Runtime("polkadot", 1, b"meta\x0e" + bytes(METADATA_BYTES_MAX))
    types: dict[int, Any] = {
        0: {"def": {"tuple": []}},
        1: {"def": {"composite": {"fields": [{"type": 0}, {"type": 0}]}}},
        2: {"def": {"sequence": {"type": 1}}},
        3: {"def": {"variant": {"variants": [{"fields": [{"type": 2}]}]}}},
        4: {"def": {"array": {"type": 1, "len": 2**32 - 1}}},
        5: {"def": {"composite": {"fields": [{"type": 5}]}}},
        6: {"def": {"sequence": {"type": 5}}},
    }
    for bomb in (2, 3, 4, 6):
        with pytest.raises(ValueError, match="a list of items without bytes"):
            layout.check_bounded(types, bomb)
    layout.check_bounded(types, 1)
    load("polkadot", SPEC, metadata())


def test_type_that_doubles_at_each_level_is_refused() -> None:
    types = {at: {"path": [], "def": {"tuple": [at + 1, at + 1]}} for at in range(30)}
    types[30] = {"path": [], "def": {"primitive": "u8"}}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=f"expected at most {layout.PARTS_MAX} parts"):
        layout.shape(types, 0)
    layout.check_bounded({**types, 31: {"def": {"sequence": {"type": 0}}}}, 31)


# --- heads ---


def test_head_that_nobody_knows_is_asked_for_again(node: MockNode, tmp_path: Path) -> None:
    world, out = World([node.url], tmp_path), Collected()
    seed = world.seed()
    forged = Header(FIRST + 20, bytes(32), bytes(32), bytes(32), ())
    node.recording.put_block(
        RecordedBlock(forged.number, to_hex(forged.hash), forged.to_json(), None, {}, SPEC), canonical=False
    )
    node.finalise(to_hex(forged.hash))
    pause = world.time.pause

    def pause_and_come_to_its_senses(seconds: float) -> bool:
        if any("is asked for again" in line for line in world.told):
            node.finalise(LAST)
        return pause(seconds)

    world.time.pause = pause_and_come_to_its_senses  # type: ignore[method-assign]
    world.follow(out, seed)
    assert out.blocks() == list(range(FIRST, LAST + 1))
    assert any("is not known here; the finalised head is asked for again" in line for line in world.told)


def test_notified_head_far_ahead_is_not_believed(
    node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, out = World([node.url], tmp_path), Collected()
    seed = world.seed()
    node.finalise(FIRST + 5)
    far = Header(2**32 - 1, bytes(32), bytes(32), bytes(32), ()).to_json()
    told = [far, far]
    head = NodePool.head

    def forged(self: NodePool, timeout_s: float) -> Any:
        if told:
            return told.pop()
        node.finalise(LAST)
        return head(self, timeout_s)

    monkeypatch.setattr(NodePool, "head", forged)
    world.follow(out, seed)
    assert told == []
    assert out.blocks() == list(range(FIRST, LAST + 1))


def test_node_that_repeats_an_old_head_is_left(node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = node.recording.blocks[node.recording.canonical[FIRST]].header
    with MockNode(busy_chain().recording, head=FIRST) as liar:
        world, out = World([liar.url, node.url], tmp_path), Collected()
        seed = world.seed()
        head = NodePool.head

        def repeats(self: NodePool, timeout_s: float) -> Any:
            world.time.pause(timeout_s)
            return old if self.url == liar.url else head(self, timeout_s)

        monkeypatch.setattr(NodePool, "head", repeats)
        world.follow(out, seed)
    assert out.blocks() == list(range(FIRST, LAST + 1))
    assert any(f"no finalised block after {FIRST} for 120 s; {node.url} takes over" in line for line in world.told), (
        world.told
    )


def test_call_for_a_block_that_no_node_knows_ends(node: MockNode, tmp_path: Path) -> None:
    chain = World([node.url], tmp_path).chain()
    with pytest.raises(NotKnownHere, match="block 0x1111"):
        chain.header(b"\x11" * 32)
    chain.pool.close()
