# SPDX-License-Identifier: Apache-2.0
"""A record's format reads what it wrote and every earlier version, and refuses everything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.codec.codec import RecordFormat, RecordUnreadable
from validator.codec.encode import write
from validator.codec.schemas import Json, SchemaSet, make_schema

NEW: Json = {
    "type": "record",
    "name": "a.Record",
    "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string", "default": "none"}],
}
OLD: Json = {**NEW, "fields": NEW["fields"][:1]}
EARLIER, CURRENT = make_schema(OLD), make_schema(NEW, version=2)
FORMAT = RecordFormat(SchemaSet({"a.Record": (EARLIER, CURRENT)}), "a.Record")


@given(st.integers(-(2**63), 2**63 - 1), st.text())
def test_a_record_survives(number: int, text: str) -> None:
    assert FORMAT.decode(FORMAT.encode({"number": number, "text": text})) == {"number": number, "text": text}


def test_an_earlier_version_is_read_as_the_current_one() -> None:
    assert FORMAT.decode(write(EARLIER, {"number": 7})) == {"number": 7, "text": "none"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "expected a record a.Record, found bytes that start with "),
        (b"x" * 20, "found bytes that start with 7878"),
        (CURRENT.header, "a.Record.number: expected an integer at byte 10, found the end of the record"),
        (
            FORMAT.encode({"number": 1, "text": ""}) + b"\x00",
            "a.Record: expected the end of the record at byte 12, found 1 more byte",
        ),
        (
            EARLIER.header + b"\x82\x00",
            "a.Record.number: expected the last byte of an integer in its shortest form at byte 11",
        ),
    ],
)
def test_other_bytes_are_refused(value: bytes, why: str) -> None:
    with pytest.raises(RecordUnreadable, match=why):
        FORMAT.decode(value)


@given(st.binary(max_size=60))
def test_any_bytes_after_the_header_are_a_record_or_refused(tail: bytes) -> None:
    with contextlib.suppress(RecordUnreadable):
        assert set(FORMAT.decode(CURRENT.header + tail)) == {"number", "text"}
