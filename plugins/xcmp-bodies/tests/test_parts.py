# SPDX-License-Identifier: Apache-2.0
"""A body is cut, condensed and joined: the root is the tree's own, whatever the cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp.merkle import msg_root
from validator_xcmp_bodies import parts as parts_module
from validator_xcmp_bodies.limits import PART_BYTES_MAX, PAYLOADS_MAX, PIECE_OVERHEAD_BYTES, parts_max
from validator_xcmp_bodies.parts import BodyError, Measured, Part, condense, cut, join, measure, payload_leaf, rejoin

BODIES = st.lists(st.binary(max_size=60), max_size=12)
SMALL = st.integers(min_value=PIECE_OVERHEAD_BYTES + 1, max_value=40)


@given(BODIES, SMALL)
def test_any_cut_gives_the_tree_of_the_payloads(payloads: list[bytes], part_bytes: int) -> None:
    cut_body = cut(payloads, part_bytes)
    assert join(map(condense, cut_body)) == Measured(sum(map(len, payloads)), len(payloads), msg_root(payloads))
    assert rejoin(cut_body) == payloads
    for part in cut_body:
        assert sum(len(piece) + PIECE_OVERHEAD_BYTES for piece in part.pieces) <= part_bytes


@given(BODIES)
def test_measure_is_the_sample_definition_of_size_and_root(payloads: list[bytes]) -> None:
    assert measure(payloads) == Measured(sum(map(len, payloads)), len(payloads), msg_root(payloads))


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=8), SMALL, st.data())
def test_parts_in_another_order_are_another_body_or_none(
    payloads: list[bytes], part_bytes: int, data: st.DataObject
) -> None:
    cut_body = cut(payloads, part_bytes)
    shuffled = data.draw(st.permutations(cut_body))
    joined = join(map(condense, shuffled))
    if joined is None:
        with pytest.raises(BodyError):
            rejoin(shuffled)
    else:
        assert joined.root == msg_root(rejoin(shuffled))


def test_a_body_of_one_megabyte_passes_in_parts_that_kafka_takes() -> None:
    payloads = [bytes([number]) * 64_000 for number in range(15)]
    cut_body = cut(payloads)
    assert len(cut_body) == 4
    assert all(sum(map(len, part.pieces)) <= PART_BYTES_MAX for part in cut_body)
    assert len(cut_body) <= parts_max(sum(map(len, payloads)))


def test_a_payload_larger_than_a_part_waits_with_its_bytes_and_others_with_their_hashes() -> None:
    body = [b"small", b"x" * (2 * PART_BYTES_MAX), b"end"]
    condensed = [condense(part) for part in cut(body)]
    assert [part.kept_bytes for part in condensed[:2]] == [32, PART_BYTES_MAX - PIECE_OVERHEAD_BYTES]
    assert join(condensed) == measure(body)


@given(st.lists(st.integers(min_value=0, max_value=3 * PART_BYTES_MAX), max_size=5))
def test_the_bound_of_parts_holds_for_every_cut(sizes: list[int]) -> None:
    body = [bytes(size) for size in sizes]
    assert len(cut(body)) <= parts_max(sum(sizes))


def test_the_bound_of_parts_holds_for_the_most_payloads() -> None:
    body = [b""] * PAYLOADS_MAX
    assert len(cut(body)) <= parts_max(0)


@pytest.mark.parametrize(
    ("part", "defect"),
    [
        (Part((bytes(PART_BYTES_MAX),)), "at most 262144 bytes"),
        (Part((), continued=True), "found none"),
        (Part((b"",), continued=True), "empty one"),
        (Part((b"a", b""), continues=True), "empty one"),
    ],
)
def test_a_part_that_no_cut_makes_is_refused(part: Part, defect: str) -> None:
    with pytest.raises(BodyError, match=defect):
        condense(part)


def test_a_body_with_too_many_payloads_is_not_cut() -> None:
    with pytest.raises(BodyError, match=f"at most {PAYLOADS_MAX}"):
        cut([b""] * (PAYLOADS_MAX + 1))


def test_hashing_copies_no_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    class Spy:
        def update(self, data: object) -> None:
            seen.append(data)

        def digest(self) -> bytes:
            return bytes(32)

    monkeypatch.setattr(parts_module, "blake2b", lambda *_, **__: Spy())
    view = memoryview(bytes(1000))
    payload_leaf((view,))
    assert seen[0] is view
