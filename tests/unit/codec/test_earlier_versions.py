# SPDX-License-Identifier: Apache-2.0
"""Records that an earlier version of their schema wrote are read as if the current one had."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest

from tests.codecs import codec_for
from tests.unit.codec.examples import CALLS, EXAMPLES, HASH, NAMES, dead, read, session_change, value_of
from validator.codec.encode import write
from validator.codec.json_form import to_json
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.core import limits
from validator.core.inputs import DeadReason, RecordKind
from validator.protocols.router import records
from validator.protocols.router.configuration import CONFIGURATION_FIELDS

FIRST_CALLS = list(CALLS)[:4]
"""The calls that the first version of the schema has."""


def earlier(kind: RecordKind, **changes: Any) -> bytes:
    """Return a record as the first version of its schema writes it."""
    return write(schemas().versions[NAMES[kind]][0], {**EXAMPLES[kind], **changes})


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_request_of_first_schema_version_is_read_unchanged(name: str) -> None:
    call, expected = CALLS[name]
    request = (f"validator.router.{name}", call)
    old, new = earlier(RecordKind.REQUEST, request=request), value_of(RecordKind.REQUEST, request=request)
    assert old[:HEADER_SIZE] != new[:HEADER_SIZE]
    assert old[HEADER_SIZE:] == new[HEADER_SIZE:]
    item = read(RecordKind.REQUEST, old)
    assert (item.raw, item.fingerprint) == (old, blake2b(old, digest_size=8).digest())
    assert item.fields == read(RecordKind.REQUEST, new).fields
    assert records.request(item.fields) == expected
    assert to_json("channel-requests", old, codec_for()) == to_json("channel-requests", new, codec_for())


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_value_out_of_range_in_first_schema_version_becomes_dead_letter(name: str) -> None:
    call, _ = CALLS[name]
    wrong = {**call, next(iter(call)): -1}
    letter = dead(RecordKind.REQUEST, earlier(RecordKind.REQUEST, request=(f"validator.router.{name}", wrong)))
    assert letter.reason is DeadReason.LIMIT
    assert (
        letter.detail
        == f"{NAMES[RecordKind.REQUEST]}.request.{next(iter(call))}: expected 0 to {limits.U32_MAX}, found -1"
    )


def test_later_request_under_first_schema_version_is_undecodable() -> None:
    for name in list(CALLS)[4:]:
        value = value_of(RecordKind.REQUEST, request=(f"validator.router.{name}", CALLS[name][0]))
        letter = dead(RecordKind.REQUEST, earlier(RecordKind.REQUEST)[:HEADER_SIZE] + value[HEADER_SIZE:])
        assert letter.reason is DeadReason.UNDECODABLE


def test_block_record_of_first_schema_version_is_read_unchanged() -> None:
    plain = {"block_hash": HASH, "included": [{"para_id": 2000, "backed_at": 11}]}
    limits_then = {name: bytes(16) if name.endswith("deposit") else at for at, name in enumerate(CONFIGURATION_FIELDS)}
    for changes in (
        {},
        plain,
        session_change(),
        session_change(hrmp_open_request_ttl=7),
        plain | session_change(**limits_then),
        {"session_change": {**session_change()["session_change"], "limits": {"x": bytes(16)}}},
    ):
        old, new = earlier(RecordKind.BLOCK, **changes), value_of(RecordKind.BLOCK, **changes)
        assert old[:HEADER_SIZE] != new[:HEADER_SIZE]
        assert read(RecordKind.BLOCK, old).fields == read(RecordKind.BLOCK, new).fields
        assert to_json("blocks", old) == to_json("blocks", new)
    letter = dead(RecordKind.BLOCK, earlier(RecordKind.BLOCK, **session_change(max_upward_queue_size=-1)))
    assert letter.detail.startswith("validator.Block.session_change.new_config.max_upward_queue_size: expected 0 to")
