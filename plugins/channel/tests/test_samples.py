# SPDX-License-Identifier: Apache-2.0
"""The samples pass, fail with altered expectations, and are emitted to the byte."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from channel_world import SAMPLES
from validator_channel.crypto import Sealer
from validator_channel.replay.cases import Node, play, read_cases
from validator_channel.replay.judge import judge, read_expected
from validator_channel.replay.vectors import check_vectors, skipped
from validator_channel.wire import Kind, Message, encode_frame, encode_message, parse_message

pytestmark = pytest.mark.skipif(not SAMPLES.exists(), reason="the checkout has no sibling ../shared/traces")


def samples() -> dict[str, Any]:
    return json.loads(SAMPLES.read_text(encoding="utf-8")) if SAMPLES.exists() else {"traces": {"cases": []}}


def verdict(document: dict[str, Any]) -> list[str | None]:
    cases = read_cases(Node(document, "samples"))
    return [judge(case, read_expected(case), play(case)) for case in cases]


@pytest.mark.parametrize(
    "at", range(len(samples()["traces"]["cases"])), ids=lambda at: samples()["traces"]["cases"][at]["id"]
)
def test_trace_passes_and_fails_with_altered_expectation(at: int) -> None:
    document = samples()
    document["traces"]["cases"] = [document["traces"]["cases"][at]]
    assert verdict(document) == [None]
    for key in ("raises", "events", "state", "closed"):
        wrong = deepcopy(document)
        expect = wrong["traces"]["cases"][0]["steps"][-1]["expect"]
        values = {"raises": "INTERNAL", "events": [{"event": "X"}], "state": "HANDSHAKE", "closed": True}
        expect[key] = False if expect.get(key) is True else values[key]
        assert verdict(wrong) != [None], key
    for step in document["traces"]["cases"][0]["steps"]:
        for message in step["expect"]["tx"]:
            for key, value in {"index": 77, "topic": 77, "kind": "LEAVE_SESSION", "payload_hex": "77"}.items():
                before = dict(message)
                message[key] = value
                assert verdict(document) != [None] or before.get(key) == value
                message.clear()
                message.update(before)


def test_every_vector_passes() -> None:
    document = Node(samples(), "samples")
    results = list(check_vectors(document))
    assert len(results) == 34
    assert [result for result in results if result.difference is not None] == []
    assert len(list(skipped(document))) == 50


def altered(value: Any) -> Any:
    if isinstance(value, list):
        return [*value[:-1], altered(value[-1])]
    if isinstance(value, dict):
        key = next(reversed(value))
        return {**value, key: altered(value[key])}
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return value[:-1] + ("1" if value[-1] == "0" else "0")


OUTPUTS = [
    ("identifiers", "message_id", "id"),
    ("identifiers", "message_id", "low64"),
    ("identifiers", "peer_id", "local"),
    ("identifiers", "index_rule", "listener_first"),
    ("identifiers", "index_rule", "listener_last"),
    ("identifiers", "index_rule", "reserved"),
    ("aead", "channel.kind_codes", "ERROR"),
    ("aead", "channel.nonces", "nonce"),
    ("aead", "channel.aads", "aad"),
    ("aead", "channel.sealed", "plaintext"),
    ("aead", "channel.sealed", "aad"),
    ("aead", "channel.sealed", "example_frame_hex"),
    ("handshake", "vectors", "transcript_hash"),
    ("handshake", "vectors", "key_s2c"),
    ("handshake", "vectors", "session_instance_id"),
    ("handshake", "vectors", "CLIENT_AUTH"),
    ("replay_window", "vectors", "sequence"),
    ("retransmission", "vectors", "sends_at"),
    ("retransmission", "vectors", "fails_at"),
]


@pytest.mark.parametrize(("group", "path", "key"), OUTPUTS)
def test_altered_vector_fails(group: str, path: str, key: str) -> None:
    document = {group: samples()[group]}
    entry = document[group]
    for part in path.split("."):
        entry = entry[part]
    entry = entry[-1] if isinstance(entry, list) else entry
    entry[key] = altered(entry[key])
    assert sum(result.difference is not None for result in check_vectors(Node(document, "samples"))) == 1


def test_sealed_messages_are_made_to_the_byte() -> None:
    for entry in samples()["aead"]["channel"]["sealed"]:
        message = parse_message(entry["example_json"].encode())
        sealer = Sealer(bytes.fromhex(entry["key"]), message.peer)
        for _ in range(entry["ctr"]):
            sealer.seal(Kind.ACKNOWLEDGE, 0, b"")
        counter, sealed = sealer.seal(message.kind, message.id, bytes.fromhex(entry["plaintext"]))
        made = encode_message(Message(message.kind, message.peer, message.id, counter, sealed))
        assert made.decode() == entry["example_json"]
        assert encode_frame(made).hex() == entry["example_frame_hex"]
