# SPDX-License-Identifier: Apache-2.0
"""Roots and proofs of tries: recorded ones, made ones, and those that somebody has changed."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from relay_recordings import RECORDED, needs_recordings
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.header import Header
from validator_relay_chain.trie import ProofError, make_proof, ordered_root, read_proof, root_of


def unhex(text: str) -> bytes:
    return bytes.fromhex(text[2:])


@needs_recordings
def test_recorded_headers_give_their_hashes_and_extrinsics_their_roots() -> None:
    count = 0
    for path in sorted(RECORDED.glob("*.jsonl.gz")):
        if path.name.startswith("storage"):
            continue
        for line in gzip.decompress(path.read_bytes()).splitlines():
            block = json.loads(line)
            header = Header.from_json(block["chain_getHeader"])
            assert header.hash == unhex(block["chain_getBlockHash"])
            assert header.to_json() == block["chain_getHeader"]
            extrinsics = [unhex(each) for each in block["chain_getBlock"]["block"]["extrinsics"]]
            assert ordered_root(extrinsics) == header.extrinsics_root
            count += 1
    assert count == 30


@needs_recordings
def test_recorded_values_are_proven() -> None:
    count = 0
    for line in gzip.decompress((RECORDED / "storage.jsonl.gz").read_bytes()).splitlines():
        recorded = json.loads(line)
        values = {unhex(key): unhex(value) for key, value in recorded["state_getStorage"].items()}
        nodes = [unhex(node) for node in recorded["state_getReadProof"]["proof"]]
        root = unhex(recorded["stateRoot"])
        assert read_proof(root, nodes, values) == values
        count += len(values)
        with pytest.raises(ProofError, match="is missing"):
            read_proof(blake2b_256(root), nodes, values)
    assert count == 1_428


def made(seed: int, version: int) -> tuple[dict[bytes, bytes], list[bytes], bytes, tuple[bytes, ...]]:
    chance = random.Random(seed)
    pairs = {
        chance.randbytes(chance.choice((1, 2, 3, 40, 140))): chance.randbytes(chance.choice((0, 5, 32, 33, 90)))
        for _ in range(200)
    }
    keys = [*pairs, *(chance.randbytes(3) for _ in range(40))]
    return pairs, keys, *make_proof(pairs, keys, version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_proof_has_every_value_and_every_absence(seed: int, version: int) -> None:
    pairs, keys, root, nodes = made(seed, version)
    assert root == root_of(pairs, version)
    assert read_proof(root, nodes, keys) == {key: pairs.get(key) for key in keys}


@pytest.mark.parametrize("version", [0, 1])
def test_no_node_of_a_proof_can_be_missing_or_another(version: int) -> None:
    pairs, keys, root, nodes = made(9, version)
    for at, node in enumerate(nodes):
        for others in (nodes[:at] + nodes[at + 1 :], (*nodes[:at], node + b"\0", *nodes[at + 1 :])):
            with pytest.raises(ProofError):
                read_proof(root, others, keys)
    assert root_of(pairs | {keys[0]: b"another"}, version) != root


def test_state_versions_differ_in_long_values_only() -> None:
    short = {b"\x01": bytes(32), b"\x02": b""}
    assert root_of(short, 0) == root_of(short, 1)
    assert root_of(short | {b"\x03": bytes(33)}, 0) != root_of(short | {b"\x03": bytes(33)}, 1)
    assert root_of({}) == blake2b_256(b"\0")


@pytest.mark.parametrize("node", [b"", b"\x01", b"\x7f\xff", b"\x42\x12\x34\xff", b"\x80\x01\x00", b"\xc0\x00\x00"])
def test_malformed_node_is_an_error(node: bytes) -> None:
    with pytest.raises(ProofError, match="malformed"):
        read_proof(blake2b_256(node), [node], [b"\x12"])
