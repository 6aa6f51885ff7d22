# SPDX-License-Identifier: Apache-2.0
"""Hashes compared byte for byte with published constants and real channels, and the encodings they use."""

from __future__ import annotations

import json
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_simulators import kit as spelled_out

from validator.core.hashing import blake2b_256, compact, message_hash, mqc_link
from validator.core.root import merkle_root
from validator.core.types import ZERO_HASH

REAL_LINKS = Path(__file__).resolve().parents[4] / "shared" / "data" / "mqc_links.json"


def head(messages: list[tuple[int, bytes]], start: bytes = ZERO_HASH) -> str:
    return reduce(lambda last, message: mqc_link(last, message[0], message_hash(message[1])), messages, start).hex()


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([(6, b"knock")], "3bba6404e59c91f51deb2ae78f1273ebe75896850713e13f8c0eba4b0996c483"),
        ([(2, b"\1\2\3"), (3, b"\4\5\6")], "88dc00db8cc9d22aa62b87807705831f164387dfa49f80a8600ed1cbe1704b6b"),
        ([(3, b"\1\2\3"), (4, b"\4\5\6")], "a964fd3b4f3d3ce92a0e25e576b87590d92bb5cb7031909c7f29050e1f04a375"),
        ([(0, b"\1\2\3")], "434f8579a2297dfea851bf6be33093c83a78b655a53ae141a7894494c0010589"),
    ],
)
def test_heads_match_published_constants(messages: list[tuple[int, bytes]], expected: str) -> None:
    assert head(messages) == expected


def test_message_hash_covers_length() -> None:
    without = mqc_link(ZERO_HASH, 6, blake2b_256(b"knock"))
    assert without.hex().startswith("bf2f24c5")
    assert mqc_link(ZERO_HASH, 6, message_hash(b"knock")) != without


@pytest.mark.skipif(not REAL_LINKS.exists(), reason="../shared/data is not next to this checkout")
def test_heads_match_real_channels() -> None:
    links: list[dict[str, Any]] = json.loads(REAL_LINKS.read_text(encoding="utf-8"))["links"]
    assert len(links) == 9
    for link in links:
        messages = [(message["sent_at"], bytes.fromhex(message["data"])) for message in link["messages"]]
        assert messages
        before = link["before"]["mqc_head"]
        start = ZERO_HASH if before is None else bytes.fromhex(before)
        assert head(messages, start) == link["after"]["mqc_head"], f"{link['sender']}->{link['recipient']}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (1, "04"),
        (63, "fc"),
        (64, "0101"),
        (2**14 - 1, "fdff"),
        (2**14, "02000100"),
        (2**30 - 1, "feffffff"),
        (2**30, "0300000040"),
        (2**32 - 1, "03ffffffff"),
        (2**32, "070000000001"),
        (2**64 - 1, "13ffffffffffffffff"),
        (2**536 - 1, "ff" + "ff" * 67),
    ],
)
def test_compact_encodes_known_values(value: int, expected: str) -> None:
    assert compact(value).hex() == expected


@given(st.integers(0, 2**130))
def test_compact_matches_reference(value: int) -> None:
    assert compact(value) == spelled_out.compact(value)


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1), st.binary(min_size=32, max_size=32))
def test_links_match_reference(message: bytes, block: int, previous: bytes) -> None:
    assert mqc_link(previous, block, message_hash(message)) == spelled_out.next_head(previous, block, message)


def test_hash_of_long_message_covers_compact_length() -> None:
    message = bytes(range(256)) * 300
    expected = blake2b((len(message) << 2 | 2).to_bytes(4, "little") + message, digest_size=32).digest()
    assert message_hash(message) == expected


# --- the root over pages ---


def _h(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()


def test_merkle_root_of_one_or_three_leaves_matches_computation_by_hand() -> None:
    common, first, second = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
    leaf = _h(b"\0" + common)
    assert merkle_root(common, {}) == _h(b"\2" + (1).to_bytes(4, "little") + leaf)
    one, seven = _h(b"\0" + bytes([1, 0, 0, 0]) + first), _h(b"\0" + bytes([7, 0, 0, 0]) + second)
    top = _h(b"\1" + _h(b"\1" + leaf + one) + seven)
    expected = _h(b"\2" + (3).to_bytes(4, "little") + top)
    assert merkle_root(common, {7: second, 1: first}) == expected


@given(
    st.dictionaries(st.integers(0, 2**32 - 1), st.binary(min_size=32, max_size=32), min_size=1, max_size=9), st.data()
)
def test_merkle_root_depends_on_every_leaf(pages: dict[int, bytes], data: st.DataObject) -> None:
    root = merkle_root(ZERO_HASH, pages)
    para = data.draw(st.sampled_from(sorted(pages)))
    changed = {**pages, para: _h(pages[para])}
    without = {other: page for other, page in pages.items() if other != para}
    assert (
        len({root, merkle_root(ZERO_HASH, changed), merkle_root(ZERO_HASH, without), merkle_root(_h(b""), pages)}) == 4
    )
