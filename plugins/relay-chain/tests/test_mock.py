# SPDX-License-Identifier: Apache-2.0
"""The mock node answers as the recorded node did, and goes wrong as ordered."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relay_recordings import LONG_RUN, RECORDED, Client, client_of, needs_recordings
from validator_simulators.relay_chain import Fault, FaultKind, MockNode, RecordedBlock, Recording, RecordingError
from validator_simulators.relay_chain.recording import chain_of
from websockets.exceptions import ConnectionClosed

KEY, OTHER_KEY = "0xaa01", "0xaa02"


def block(number: int, parent: int | None = None, fork: str = "") -> RecordedBlock:
    header = {
        "parentHash": hash_of(number - 1 if parent is None else parent),
        "number": hex(number),
        "stateRoot": "0x00",
    }
    hash_ = hash_of(number, fork)
    return RecordedBlock(number, hash_, header, {"block": {"header": header, "extrinsics": ["0x0405"]}}, {}, 9430)


def hash_of(number: int, fork: str = "") -> str:
    return f"0x{fork}{number:0{64 - len(fork)}x}"


@pytest.fixture
def recording() -> Recording:
    return chain_of(block(number) for number in range(10, 20))


@pytest.fixture
def node(recording: Recording) -> Iterator[MockNode]:
    with MockNode(recording, head=12) as started:
        yield started


@pytest.fixture
def client(node: MockNode) -> Iterator[Client]:
    with client_of(node) as opened:
        yield opened


# --- what was recorded ---


def lines_of(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines()


@needs_recordings
def test_recorded_answers_are_given_byte_for_byte() -> None:
    with MockNode(Recording.load(RECORDED, LONG_RUN)) as node, client_of(node) as client:
        for line in lines_of(RECORDED / LONG_RUN)[:3]:
            recorded = json.loads(line)
            for method, param in (
                ("chain_getHeader", recorded["chain_getBlockHash"]),
                ("chain_getBlock", recorded["chain_getBlockHash"]),
                ("chain_getBlockHash", recorded["number"]),
            ):
                result = json.dumps(recorded[method], separators=(",", ":")).encode()
                assert result in line
                id_ = client.send(method, param)
                assert client.text() == f'{{"jsonrpc":"2.0","result":{result.decode()},"id":{id_}}}'
            ((key, events),) = recorded["state_getStorage"].items()
            assert client.call("state_getStorage", key, recorded["chain_getBlockHash"]) == events


@needs_recordings
def test_every_recorded_file_is_read_and_its_storage_is_proven_where_its_block_is_known() -> None:
    recording = Recording.load(RECORDED)
    assert len(recording.canonical) == 30
    assert len(recording.snapshots) == 19
    assert set(recording.metadata) == {"9430", "1000001", "1002005", "1003003.v15"}
    known = recording.canonical[17_773_281]
    with MockNode(recording) as node, client_of(node) as client:
        keys = sorted(recording.snapshots[17_773_281].values)
        proof = client.call("state_getReadProof", keys, known)
        assert proof == {"at": known, "proof": recording.snapshots[17_773_281].proof}
        ((changes,),) = [[each["changes"] for each in client.call("state_queryStorageAt", keys, known)]]
        assert dict(changes) == {key: recording.snapshots[17_773_281].values[key] for key in keys}
        assert (
            client.call("state_getKeysPaged", "0x", 1000, None, known)[:3]
            == sorted([*keys, *recording.blocks[known].storage])[:3]
        )
        assert client.ask("state_getReadProof", ["0x00"], known)["error"]["code"] == -32601
        assert client.call("rpc_methods")["methods"] == recording.methods


@needs_recordings
@pytest.mark.parametrize(
    ("number", "version", "name"), [(17_844_552, 9431, "9430"), (18_977_445, 1_000_001, "1000001")]
)
def test_metadata_and_version_are_those_of_the_block(number: int, version: int, name: str) -> None:
    recording = Recording.load(RECORDED)
    with MockNode(recording) as node, client_of(node) as client:
        hash_ = client.call("chain_getBlockHash", number)
        assert client.call("state_getRuntimeVersion", hash_)["specVersion"] == version
        assert client.call("state_getMetadata", hash_) == f"0x{recording.metadata[name].hex()}"


@needs_recordings
def test_metadata_15_comes_wrapped_as_the_runtime_wraps_it() -> None:
    recording = Recording.load(RECORDED, LONG_RUN)
    recording.set_runtime(17_844_560, 1_003_003)
    with MockNode(recording) as node, client_of(node) as client:
        blob = recording.metadata["1003003.v15"]
        asked = ("state_call", "Metadata_metadata_at_version")
        answer = client.call(*asked, "0x0f000000", recording.canonical[17_844_560])
        assert answer == f"0x01{(len(blob) << 2 | 2).to_bytes(4, 'little').hex()}{blob.hex()}"
        assert client.call(*asked, "0x10000000", recording.canonical[17_844_560]) == "0x00"
        assert client.call(*asked, "0x0f000000", recording.canonical[17_844_559]) == "0x00"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nothing.txt", b"", "expected files"),
        ("a.jsonl", b"[]\n", "line 1: expected an object, found list"),
        ("a.jsonl", b"{\n", "line 1: expected JSON"),
        ("a.jsonl", b'{"specVersion": 1}\n', "expected a block with the key 'number'"),
        ("a.jsonl.gz", b"no gzip", "cannot be read"),
        ("a.jsonl.xz", lzma.compress(b"{}\n{}")[:-9], "cannot be read"),
    ],
)
def test_folder_that_is_no_recording_is_told(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingError, match=said):
        Recording.load(tmp_path)


# --- what is made up ---


def test_made_up_storage_holds_from_its_block_on_and_is_listed(recording: Recording, client: Client) -> None:
    recording.put_storage(11, {KEY: "0x01"})
    recording.put_storage(13, {KEY: "0x02", OTHER_KEY: "0x03"})
    recording.put_storage(15, {KEY: None})
    found = [client.call("state_getStorage", KEY, hash_of(number)) for number in range(10, 17)]
    assert found == [None, "0x01", "0x01", "0x02", "0x02", None, None]
    assert client.call("state_getKeysPaged", "0xaa", 1, None, hash_of(13)) == [KEY]
    assert client.call("state_getKeysPaged", "0xaa", 9, KEY, hash_of(13)) == [OTHER_KEY]
    assert client.call("state_getKeysPaged", "0xaa", 9, None, hash_of(16)) == [OTHER_KEY]
    assert f"storage {KEY} from 13" in recording.made
    assert f"block 10 {hash_of(10)}" in recording.made


def test_runtime_is_upgraded_from_its_block_on(recording: Recording, client: Client) -> None:
    recording.set_runtime(14, 9431)
    versions = [client.call("state_getRuntimeVersion", hash_of(number))["specVersion"] for number in (13, 14, 15)]
    assert versions == [9430, 9431, 9431]


# --- requests ---


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("chain_getBlockHash", [], hash_of(12)),
        ("chain_getBlockHash", [11], hash_of(11)),
        ("chain_getBlockHash", ["0xb"], hash_of(11)),
        ("chain_getBlockHash", [[11, 99]], [hash_of(11), None]),
        ("chain_getFinalizedHead", [], hash_of(12)),
        ("chain_getHeader", [hash_of(99)], None),
        ("chain_getBlock", [hash_of(99)], None),
        ("system_chain", [], "Polkadot"),
        ("system_health", [], {"peers": 40, "isSyncing": False, "shouldHavePeers": True}),
    ],
)
def test_requests_about_the_chain(client: Client, method: str, params: list[Any], result: Any) -> None:
    assert client.call(method, *params) == result


def test_genesis_has_its_hash(recording: Recording, client: Client) -> None:
    assert client.call("chain_getBlockHash", 0) == recording.genesis


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("state_getStorage", [KEY, hash_of(99)], 4003),
        ("no_such", [], -32601),
        ("chain_getHeader", [1, 2, 3], -32602),
        ("chain_getBlockHash", ["no number"], -32602),
        ("state_getKeysPaged", ["0x", 1001], -32602),
        ("state_queryStorageAt", ["0x"], -32602),
        ("state_getMetadata", [], 4003),
    ],
)
def test_wrong_requests_get_errors(client: Client, method: str, params: list[Any], code: int) -> None:
    assert client.ask(method, *params)["error"]["code"] == code


@pytest.mark.parametrize(("text", "code"), [("no JSON", -32700), ("7", -32600), ("[]", -32600)])
def test_what_is_no_request_gets_an_error(client: Client, text: str, code: int) -> None:
    client.connection.send(text)
    assert client.receive()["error"]["code"] == code


def test_batch_is_answered_as_one_or_refused(recording: Recording, client: Client) -> None:
    asked = json.dumps([{"id": number, "method": "chain_getBlockHash", "params": [number]} for number in (10, 11)])
    client.connection.send(asked)
    assert [each["result"] for each in client.receive()] == [hash_of(10), hash_of(11)]
    with MockNode(recording, batches=False) as node, client_of(node) as refused:
        refused.connection.send(asked)
        assert refused.receive()["error"]["code"] == -32600


# --- finalised heads ---


def subscribed(client: Client) -> tuple[str, int]:
    """Subscribe, and return the id and the number of the head that is reported first."""
    id_ = client.call("chain_subscribeFinalizedHeads")
    return id_, next_head(client, id_)


def next_head(client: Client, id_: str) -> int:
    note = client.receive()
    assert note["method"] == "chain_finalizedHead"
    assert note["params"]["subscription"] == id_
    return int(note["params"]["result"]["number"], 16)


def test_subscriber_gets_the_head_and_what_is_finalised_later(node: MockNode, client: Client) -> None:
    id_, first = subscribed(client)
    node.finalise(16)  # 13 to 15 are finalised with it, and not reported
    assert (first, next_head(client, id_)) == (12, 16)
    assert client.call("chain_getFinalizedHead") == hash_of(16)
    assert client.call("chain_unsubscribeFinalizedHeads", id_) is True
    assert client.call("chain_unsubscribeFinalizedHeads", id_) is False
    node.finalise(17)
    assert client.call("chain_getFinalizedHead") == hash_of(17)  # no notification came before


def test_head_moves_at_its_pace_until_the_last_block(recording: Recording) -> None:
    with MockNode(recording, head=10, pace_s=0.001, step=4) as node, client_of(node) as client:
        id_, head = subscribed(client)
        seen = [head]
        while head < 19:
            head = next_head(client, id_)
            seen.append(head)
    assert seen == sorted(set(seen))
    assert set(seen) <= {10, 14, 18, 19}


def test_fork_can_be_finalised(recording: Recording, node: MockNode, client: Client) -> None:
    recording.put_block(block(13, fork="f"), canonical=False)
    id_, _ = subscribed(client)
    node.finalise(hash_of(13, "f"))
    assert next_head(client, id_) == 13
    assert client.call("chain_getFinalizedHead") == hash_of(13, "f")
    assert client.call("chain_getBlockHash", 13) == hash_of(13)


def test_stale_node_tells_an_earlier_head(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.STALE, value=2))
    _, head = subscribed(client)
    assert (head, client.call("chain_getFinalizedHead")) == (10, hash_of(10))
    node.faults.clear()
    assert client.call("chain_getFinalizedHead") == hash_of(12)


# --- faults ---


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FaultKind.RATE_LIMIT, -32999), (FaultKind.PRUNED, 4003), (FaultKind.ERROR, -32603),
        (FaultKind.NO_METHOD, -32601),
    ],
)  # fmt: skip
def test_error_strikes_the_requests_that_were_ordered(
    node: MockNode, client: Client, kind: FaultKind, code: int
) -> None:
    node.order(Fault(kind, "chain_getHeader", after=1, count=2))
    answers = [client.ask("chain_getHeader", hash_of(10)) for _ in range(4)]
    assert [each.get("error", {}).get("code") for each in answers] == [None, code, code, None]
    assert "result" in client.ask("chain_getBlock", hash_of(10))


def test_connection_is_cut_instead_of_an_answer(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.CUT, after=1))
    assert client.call("system_chain") == "Polkadot"
    client.send("system_chain")
    with pytest.raises(ConnectionClosed):
        client.receive()
    with client_of(node) as again:
        assert again.call("system_chain") == "Polkadot"


def test_every_connection_is_cut_when_ordered(node: MockNode, client: Client) -> None:
    assert client.call("system_chain") == "Polkadot"
    node.cut()
    with pytest.raises(ConnectionClosed):
        client.receive()


def test_answers_overtake_a_reordered_one(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.REORDER, "chain_getHeader"))
    first, second = client.send("chain_getHeader", hash_of(10)), client.send("system_chain")
    assert [client.receive()["id"], client.receive()["id"]] == [second, first]


def test_reordered_answer_without_a_successor_comes_by_itself(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.REORDER))
    assert client.call("system_chain") == "Polkadot"


def test_delayed_answer_comes_and_a_silent_one_does_not(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.SILENT, "system_health"))
    node.order(Fault(FaultKind.DELAY, "system_chain", value=0.01))
    client.send("system_health")
    assert client.call("system_chain") == "Polkadot"
    assert node.requests == {"system_health": 1, "system_chain": 1}


def test_wrong_header_has_another_root(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.WRONG_HEADER, "chain_getHeader"))
    node.order(Fault(FaultKind.WRONG_HEADER, "chain_getBlock"))
    node.order(Fault(FaultKind.WRONG_HEADER, "chain_finalizedHead"))
    assert client.call("chain_getHeader", hash_of(10))["stateRoot"] == "0x01"
    assert client.call("chain_getHeader", hash_of(10))["stateRoot"] == "0x00"
    assert client.call("chain_getBlock", hash_of(10))["block"]["header"]["stateRoot"] == "0x01"
    client.call("chain_subscribeFinalizedHeads")
    assert client.receive()["params"]["result"]["stateRoot"] == "0x01"


def test_wrong_answer_differs_in_one_digit(recording: Recording, node: MockNode, client: Client) -> None:
    recording.put_storage(10, {KEY: "0xabcd"})
    node.order(Fault(FaultKind.WRONG_ANSWER, "state_getStorage"))
    node.order(Fault(FaultKind.WRONG_ANSWER, "chain_getBlock"))
    assert client.call("state_getStorage", KEY, hash_of(10)) == "0xabcc"
    assert client.call("chain_getBlock", hash_of(10))["block"]["extrinsics"] == ["0x0404"]
    assert client.call("chain_getBlock", hash_of(10))["block"]["extrinsics"] == ["0x0405"]


def test_null_truncated_and_oversized_answers(node: MockNode, client: Client) -> None:
    node.order(Fault(FaultKind.NULL, "chain_getHeader"))
    node.order(Fault(FaultKind.TRUNCATED, "chain_getBlock"))
    node.order(Fault(FaultKind.OVERSIZED, "system_chain", value=1_000_000))
    assert client.call("chain_getHeader", hash_of(10)) is None
    client.send("chain_getBlock", hash_of(10))
    with pytest.raises(json.JSONDecodeError):
        client.receive()
    assert len(client.call("system_chain")) == 1_000_002


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cut", Fault(FaultKind.CUT)),
        ("delay:chain_getBlock:3:all:0.5", Fault(FaultKind.DELAY, "chain_getBlock", 3, None, 0.5)),
        ("stale:::2", Fault(FaultKind.STALE, None, 0, 2)),
    ],
)
def test_fault_is_read_from_text(text: str, fault: Fault) -> None:
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("explode", "expected one of cut, "), ("cut:a:1:1:1:1", "expected KIND"), ("cut:a:x", "invalid literal"),
        ("cut:a:-1", "expected numbers from 0"), ("cut:a:0:0", "expected a count of at least 1"),
    ],
)  # fmt: skip
def test_text_that_is_no_fault_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Fault.parse(text)
