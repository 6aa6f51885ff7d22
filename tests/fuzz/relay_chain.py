# SPDX-License-Identifier: Apache-2.0
"""Targets of what a node of a relay chain says: blocks, values of storage, proofs, answers, and the cursor of who follows it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from validator_relay_chain import storage, upward
from validator_relay_chain.block import read_block
from validator_relay_chain.candidates import read_inherent, read_pending_v1
from validator_relay_chain.channels import Channels
from validator_relay_chain.errors import NodeError, fault
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.position import Pending, Position
from validator_relay_chain.source import read_keys, read_values, read_version
from validator_relay_chain.storage import Channel, Queued
from validator_relay_chain.trie import ProofError, make_proof, read_proof
from validator_simulators.relay_chain.made import MadeCandidate, MadeState, inherent

from tests.fuzz.target import BINARY_WORDS, TEXT_WORDS, Target, refused
from validator.core.scale import DecodeError

PER_TEST = 2_000
CALL = b"\x36\x00"
HASH = bytes(range(32))
KEYS = [bytes([at]) * 4 for at in range(3)]
CHANNEL = Channel(1_000, 102_400, 102_400, 2, 7, HASH, 1, 2**128 - 1)
QUEUE = (Queued(1, b""), Queued(2**32 - 1, b"message"))
HEADER = Header(7, HASH, HASH, HASH, (b"\x08",))
CANDIDATE = MadeCandidate(2000, HASH, 99, (b"up", b""), ((2004, b"across"),), 1)


def _plain(decode: Callable[[bytes], Any], data: bytes) -> bool:
    """The decoder returns a value or refuses."""
    try:
        decode(data)
    except DecodeError:
        return False
    return True


def _again(decode: Callable[[bytes], Any], encode: Callable[[Any], bytes], data: bytes) -> bool:
    """What is accepted gives the same bytes again."""
    try:
        value = decode(data)
    except DecodeError:
        return False
    assert encode(value) == data
    return True


def _inherent(data: bytes) -> bool:
    try:
        found = read_inherent(data, CALL, signals=True)
    except DecodeError:
        return False
    return found is not None


def _proof(data: bytes) -> bool:
    root, _ = make_proof({key: key for key in KEYS}, KEYS)
    size = 1 + (data[0] if data else 0)
    nodes = [data[at : at + size] for at in range(1, len(data), size)]
    try:
        found = read_proof(root, nodes, KEYS)
    except ProofError:
        return False
    assert set(found) == set(KEYS)
    return True


def _proofs() -> list[bytes]:
    _, nodes = make_proof({key: key for key in KEYS}, KEYS)
    size = max(map(len, nodes))
    return [bytes([size - 1]) + b"".join(node.ljust(size, b"\0") for node in nodes)]


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _header(data: bytes) -> bool:
    try:
        header = Header.from_json(_json(data))
    except NodeError:
        return False
    assert Header.from_json(header.to_json()) == header
    assert len(header.hash) == 32
    return True


def _encoded_header(data: bytes) -> bool:
    try:
        header = Header.decode(data)
    except NodeError:
        return False
    assert header.encode() == data
    return True


READERS: tuple[Callable[[Any], Any], ...] = (
    lambda answer: read_block(answer, "0x", HEADER.hash),
    lambda answer: read_keys(answer, b"\xaa", 1_000, None),
    lambda answer: read_values(answer, KEYS),
    read_version,
)


def _answer(data: bytes) -> bool:
    """Each answer is read or is the node's trouble, in one printable line."""
    answer = _json(data)
    said = [fault("ws://node: method", answer)]
    for read in READERS:
        try:
            read(answer)
        except NodeError as error:
            said.append(error)
    assert all(str(error).isprintable() for error in said)
    return len(said) <= len(READERS) or (isinstance(answer, dict) and "code" in answer)


def _cursor(data: bytes) -> bool:
    try:
        position = Position.decode(zlib.compress(data, 1))
    except ValueError as error:
        return refused(str(error).splitlines()[0], "cursor: ")
    assert Position.decode(position.encode()) == position
    return True


def _positions() -> list[bytes]:
    position = Position(
        HASH, 100, HASH, "polkadot", 9430, True, False, (HASH, HASH), (Pending(2000, HASH, 99),), {2000: 2},  # noqa: FBT003
        {"max_upward_queue_count": 8}, {2000: HASH}, Channels(channels=frozenset({(2000, 2004)})),
    )  # fmt: skip
    return [zlib.decompress(position.encode())]


def _answers() -> list[bytes]:
    listed: list[Any] = [
        {"block": {"header": HEADER.to_json(), "extrinsics": ["0x0405"]}, "justifications": None},
        [{"block": to_hex(HASH), "changes": [[to_hex(key), None if at else "0x00"] for at, key in enumerate(KEYS)]}],
        ["0xaa01", "0xaa02"],
        {"specName": "polkadot", "specVersion": 9430, "systemVersion": 1},
        {"code": -32603, "message": "Internal error", "data": "State already discarded"},
    ]
    return [json.dumps(each).encode() for each in listed]


def _stored() -> list[bytes]:
    """Return values of each kind of storage that is decoded by position."""
    state = MadeState(lifecycles={2000: b"\2", 2004: b"\2"})
    state.open_channel(2000, 2004, HASH)
    state.requests[2004, 2000] = True
    state.include(7, CANDIDATE.backed())
    return [value for value in state.storage().values() if any(_plain(decode, value) for decode in STORED)]


STORED: tuple[Callable[[bytes], Any], ...] = (
    storage.decode_digests, storage.decode_u32, storage.decode_hash, storage.decode_paras, storage.decode_channels,
    storage.decode_open_request, storage.decode_payloads, upward.decode_book, upward.decode_page, upward.decode_origin,
    partial(read_pending_v1, signals=True),
)  # fmt: skip


def _values(data: bytes) -> bool:
    accepted = [_plain(decode, data) for decode in STORED]
    return any(accepted)


TARGETS = (
    Target("relay-chain-inherent", lambda: [inherent([CANDIDATE]), inherent([])], _inherent, BINARY_WORDS, PER_TEST),
    Target(
        "relay-chain-channel",
        lambda: [storage.encode_channel(CHANNEL), storage.encode_channel(CHANNEL._replace(mqc_head=None))],
        partial(_again, storage.decode_channel, storage.encode_channel),
        BINARY_WORDS,
        PER_TEST,
    ),
    Target(
        "relay-chain-queue",
        lambda: [storage.encode_queue(QUEUE)],
        partial(_again, storage.decode_queue, storage.encode_queue),
        BINARY_WORDS,
        PER_TEST,
    ),
    Target("relay-chain-storage", _stored, _values, BINARY_WORDS, PER_TEST),
    Target("relay-chain-proof", _proofs, _proof, BINARY_WORDS, PER_TEST),
    Target("relay-chain-header", lambda: [json.dumps(HEADER.to_json()).encode()], _header, TEXT_WORDS, PER_TEST),
    Target("relay-chain-encoded-header", lambda: [HEADER.encode()], _encoded_header, BINARY_WORDS, PER_TEST),
    Target("relay-chain-answers", _answers, _answer, TEXT_WORDS, PER_TEST),
    Target("relay-chain-cursor", _positions, _cursor, TEXT_WORDS, PER_TEST),
)
