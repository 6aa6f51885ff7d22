# SPDX-License-Identifier: Apache-2.0
"""A valid record of each kind, with functions that encode and decode it."""

from __future__ import annotations

from typing import Any

from tests.codecs import codec_for, decoded
from validator.codec.encode import write
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.limits import RECORD_BYTES_MAX
from validator.protocols.router import records
from validator.protocols.router.records import ChannelRequest

SOURCE = Source("validator.candidates", 3, 17)
HASH = bytes(range(32))
CANDIDATE: dict[str, Any] = {
    "lane": "polkadot",
    "block": 17,
    "index": 1,
    "para_id": 2000,
    "relay_parent_number": None,
    "hrmp_watermark": 16,
    "upward_messages": [b"up", b""],
    "processed_downward_messages": 2,
    "horizontal_messages": [{"recipient": 2004, "data": b"knock"}],
    "candidate_hash": HASH,
}
BLOCK: dict[str, Any] = {
    "lane": "polkadot",
    "block": 17,
    "parent_number": None,
    "block_hash": None,
    "candidates": 2,
    "requests": 1,
    "downward": 0,
    "included": [],
    "timed_out": [],
    "session_change": None,
}
_CHANNEL = {"sender": 1, "recipient": 2}
CALLS: dict[str, tuple[dict[str, Any], ChannelRequest]] = {
    "InitOpenChannel": (
        {"origin": 1, "recipient": 2, "max_places": 3, "max_message_size": 4},
        records.InitOpenChannel(1, 2, 3, 4),
    ),
    "AcceptOpenChannel": ({"origin": 1, "sender": 2}, records.AcceptOpenChannel(1, 2)),
    "CloseChannel": ({"origin": 1, "channel": _CHANNEL}, records.CloseChannel(1, (1, 2))),
    "ScheduleParaCleanup": ({"para_id": 1}, records.ScheduleParaCleanup(1)),
    "CancelOpenRequest": ({"origin": 1, "channel": _CHANNEL}, records.CancelOpenRequest(1, (1, 2))),
    "ForceOpenChannel": (
        {"sender": 1, "recipient": 2, "max_places": 3, "max_message_size": 4},
        records.ForceOpenChannel(1, 2, 3, 4),
    ),
    "EstablishSystemChannel": (_CHANNEL, records.EstablishSystemChannel(1, 2)),
    "EstablishChannelWithSystem": ({"origin": 1, "target": 2}, records.EstablishChannelWithSystem(1, 2)),
    "PokeChannelDeposits": (_CHANNEL, records.PokeChannelDeposits(1, 2)),
    "ServiceOverweight": (
        {"para_id": 1, "page": 2, "message_index": 3, "weight_limit": (2**64 - 1).to_bytes(8)},
        records.ServiceOverweight(1, 2, 3, 2**64 - 1),
    ),
    "ForceProcessOpen": ({}, records.ForceProcessOpen()),
    "ForceProcessClose": ({}, records.ForceProcessClose()),
    "ForceClean": ({"para_id": 1}, records.ForceClean(1)),
}
"""A call of each kind in the form that fastavro takes, and what it decodes to. The first four are in the schema's first version, too."""
REQUEST: dict[str, Any] = {
    "lane": "polkadot",
    "block": 17,
    "index": 0,
    "request": ("validator.router.AcceptOpenChannel", {"origin": 1, "sender": 2}),
}
DOWNWARD: dict[str, Any] = {"lane": "polkadot", "block": 17, "index": 0, "para_id": 2000, "msg": b"hello"}

NAMES = {
    RecordKind.BLOCK: "validator.Block",
    RecordKind.REQUEST: "validator.router.ChannelRequest",
    RecordKind.DOWNWARD: "validator.DownwardMessage",
    RecordKind.CANDIDATE: "validator.router.Candidate",
}
EXAMPLES = {
    RecordKind.BLOCK: BLOCK,
    RecordKind.REQUEST: REQUEST,
    RecordKind.DOWNWARD: DOWNWARD,
    RecordKind.CANDIDATE: CANDIDATE,
}


def value_of(kind: RecordKind, **changes: Any) -> bytes:
    return write(codec_for().schemas[NAMES[kind]], {**EXAMPLES[kind], **changes})


def session_change(**new_config: Any) -> dict[str, Any]:
    """Return the changes of a block record that set limits; a balance has 16 bytes."""
    new_config = {
        name: value.to_bytes(16) if "deposit" in name and type(value) is int else value
        for name, value in new_config.items()
    }
    return {"session_change": {"outgoing": [], "onboarding": [], "new_config": new_config, "limits": {}}}


def read(kind: RecordKind, value: bytes) -> Input:
    result = decoded(kind, value, SOURCE)
    assert not isinstance(result, DeadLetter), result.detail
    lane, item = result
    assert lane == "polkadot"
    return item


def dead(kind: RecordKind, value: bytes | None, key: bytes | None = None) -> DeadLetter:
    letter = decoded(kind, value, SOURCE, key)
    assert isinstance(letter, DeadLetter)
    assert letter.source == SOURCE
    assert (letter.raw, letter.whole) == (value or b"", None) or len(value or b"") > RECORD_BYTES_MAX
    return letter
