# SPDX-License-Identifier: Apache-2.0
"""Candidates are read by a quick way and by one that says what is wrong: both agree on every block, whole or damaged."""

from __future__ import annotations

from random import Random

import pytest
from relay_recordings import LONG_RUN, needs_recordings
from test_blocks import recorded
from validator_relay_chain import candidates
from validator_relay_chain.candidates import BackedCandidate, read_inherent
from validator_relay_chain.layout import DESCRIPTOR_BYTES

from validator.plugin.api import DecodeError, Writer

CALL = b"\x36\x00"
MUTATIONS = 400

Candidate = tuple[tuple[bytes, ...], tuple[tuple[int, bytes], ...], bytes | None, bytes]
"""Upward and horizontal messages, new code and head."""


def inherent(*given: Candidate, bitfields: tuple[int, ...] = (9, 9, 9)) -> bytes:
    """Return an extrinsic with candidates; ``bitfields`` are numbers of bits."""
    out = Writer()
    out.buffer += b"\x04" + CALL
    out.compact(len(bitfields))
    for bits in bitfields:
        out.compact(bits)
        out.buffer += bytes((bits + 7) // 8 + 4 + 64)
    out.compact(len(given))
    for upward, horizontal, code, head in given:
        out.buffer += bytes(DESCRIPTOR_BYTES)
        out.compact(len(upward))
        for message in upward:
            out.bytes(message)
        out.compact(len(horizontal))
        for recipient, message in horizontal:
            out.u32(recipient)
            out.bytes(message)
        out.option(code, out.bytes)
        out.bytes(head)
        out.u32(3)
        out.u32(2**32 - 1)
        out.compact(2)
        out.buffer += bytes(2 * candidates.VOTE_BYTES)
        out.compact(5)
        out.buffer += b"\0"
    whole = Writer()
    whole.bytes(bytes(out.buffer))
    return bytes(whole.buffer)


Found = tuple[BackedCandidate, ...] | str | None


def both_ways(extrinsic: bytes, monkeypatch: pytest.MonkeyPatch) -> Found:
    """Return the candidates of an extrinsic or the error, which both ways must agree on."""

    def found() -> Found:
        try:
            return read_inherent(extrinsic, CALL, signals=True)
        except DecodeError as error:
            return str(error)

    quick = found()
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "_quickly", lambda *_, **__: None)
        patch.setattr(candidates, "_end_of_equal_bitfields", lambda *_: None)
        assert found() == quick
    return quick


SIZES = (0, 1, 63, 64, 16_383, 16_384, 70_000)
MADE = (
    inherent(((), (), None, b"")),
    inherent(*(((bytes(size),), ((2000, bytes(size)),), None, bytes(size)) for size in SIZES)),
    inherent(((b"a", b"", b"signal"), ((1, b"x"), (2, b"")), b"code", b"head"), ((), (), None, b"h")),
)


@pytest.mark.parametrize("extrinsic", MADE)
def test_both_ways_agree(extrinsic: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = both_ways(extrinsic, monkeypatch)
    assert isinstance(found, tuple)
    assert all(each.hrmp_watermark == 2**32 - 1 and each.processed_downward_messages == 3 for each in found)


@pytest.mark.parametrize(
    "bits", [(), (0,), (63, 63), (64, 64), (16_383,) * 3, (16_384,) * 2, (9, 10), (63, 64), (9, 17, 9), (64, 16_384)]
)
def test_bitfields_are_skipped(bits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found = both_ways(inherent(((), (), None, b"head"), bitfields=bits), monkeypatch)
    assert isinstance(found, tuple)
    assert found[0].head_data == b"head"


@pytest.mark.parametrize("extrinsic", [MADE[0], MADE[2]])
def test_both_ways_agree_on_damaged_candidates(extrinsic: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    refused = 0
    for _ in range(MUTATIONS):
        body = bytearray(extrinsic[2:])
        for _ in range(random.randint(1, 3)):
            body[random.randrange(3, len(body))] = random.choice((0, 1, 2, 3, 4, 0xFE, 0xFF, random.randrange(256)))
        changed = Writer()
        changed.bytes(bytes(body[: random.choice((len(body), random.randrange(len(body))))]))
        refused += isinstance(both_ways(bytes(changed.buffer), monkeypatch), str)
    assert refused > 0


@needs_recordings
def test_both_ways_agree_on_recorded_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    read = [both_ways(each, monkeypatch) for _, raw in recorded(LONG_RUN) for each in raw.extrinsics]
    assert sum(len(each) for each in read if isinstance(each, tuple)) > 300
