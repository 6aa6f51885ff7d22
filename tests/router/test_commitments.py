# SPDX-License-Identifier: Apache-2.0
"""The commitments hash, compared with bytes assembled by hand; tests/realdata compares it with live chains."""

from __future__ import annotations

from hashlib import blake2b

from validator.protocols.router.commitments import candidate_commitments_hash, commitments_hash
from validator.protocols.router.records import Candidate, HorizontalMessage


def test_hash_matches_encoding_by_hand() -> None:
    encoded = (
        b"\x08"  # two upward messages
        b"\x00"  # the first is empty
        b"\x0cabc"
        b"\x04"  # one horizontal message
        b"\xd0\x07\x00\x00"  # to 2000
        b"\x04x"
        b"\x01\x08\x60\x61"  # new code of two bytes
        b"\x0chdr"
        b"\x03\x00\x00\x00"
        b"\x39\x30\x00\x00"
    )
    hashed = commitments_hash(
        upward_messages=[b"", b"abc"],
        horizontal_messages=[(2000, b"x")],
        new_validation_code=b"\x60\x61",
        head_data=b"hdr",
        processed_downward_messages=3,
        hrmp_watermark=12345,
    )
    assert hashed == blake2b(encoded, digest_size=32).digest()


def test_hash_covers_every_commitment() -> None:
    base = {
        "upward_messages": [b"u"],
        "horizontal_messages": [(1, b"h")],
        "new_validation_code": None,
        "head_data": b"head",
        "processed_downward_messages": 0,
        "hrmp_watermark": 1,
    }
    changes = [
        {},
        {"upward_messages": []},
        {"horizontal_messages": [(2, b"h")]},
        {"horizontal_messages": [(1, b"i")]},
        {"new_validation_code": b""},
        {"head_data": b"heae"},
        {"processed_downward_messages": 1},
        {"hrmp_watermark": 2},
    ]
    hashes = [commitments_hash(**{**base, **change}) for change in changes]  # type: ignore[arg-type]
    assert len(set(hashes)) == len(changes)


def test_hash_of_candidate_matches_its_fields() -> None:
    candidate = Candidate(1000, 12, 11, (b"up",), 2, (HorizontalMessage(2000, b"across", bytes(32)),))
    expected = commitments_hash(
        upward_messages=[b"up"],
        horizontal_messages=[(2000, b"across")],
        new_validation_code=b"code",
        head_data=b"head",
        processed_downward_messages=2,
        hrmp_watermark=11,
    )
    assert candidate_commitments_hash(candidate, b"head", b"code") == expected
    assert candidate_commitments_hash(candidate, b"head") != expected
