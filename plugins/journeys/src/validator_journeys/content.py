# SPDX-License-Identifier: Apache-2.0
"""What is kept of a message's payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from validator.plugin.protocol_api import Hash, blake2b_256
from validator_journeys.parts import encode_summary
from validator_journeys.xcm import Payload, Xcm, read_payload

TOPIC: Final = "SetTopic"
"""The instruction that sets an XCM's topic."""

SUMMARY_BYTES_MAX: Final = 2048
"""Maximum bytes of a summary: it bounds the memory that a waiting message takes."""


class Content(NamedTuple):
    """A payload's BLAKE2b-256 hash and bytes, the bytes of its summary in a record, and the topic of its first XCM that sets one."""

    hash: Hash
    size: int
    summary: bytes = b""
    topic: Hash | None = None


def content_of(kind: str, payload: bytes) -> Content:
    """Return what is kept of the payload of a horizontal, downward or upward message."""
    found = read_payload(kind, payload)
    topic = next((xcm.id for xcm in found.messages if sets_topic(xcm.id, xcm.instructions)), None)
    return Content(blake2b_256(payload), len(payload), _summary(found), topic)


def content_from(record: Mapping[str, Any]) -> Content | None:
    """Return the content of which a record of `journeys` was made; None if the record has no hash."""
    if record["payload_hash"] is None:
        return None
    summary, journey = record["payload"], record["journey"]
    return Content(
        record["payload_hash"],
        record["size"],
        b"" if summary is None else encode_summary(summary),
        None if journey is None else bytes.fromhex(journey),
    )


def sets_topic(xcm_id: Hash | None, instructions: Sequence[str]) -> bool:
    """Return whether the id of an XCM that was read to its end is its topic; a runtime sets it in the last instruction."""
    return xcm_id is not None and bool(instructions) and instructions[-1] == TOPIC


def _summary(found: Payload) -> bytes:
    """Return a summary, of a payload that says too much without its messages."""
    summary = encode_summary(_record(found))
    if len(summary) <= SUMMARY_BYTES_MAX:
        return summary
    reason = f"the summary of {len(found.messages)} messages has {len(summary)} bytes, at most {SUMMARY_BYTES_MAX}"
    return encode_summary(_record(found._replace(messages=(), signals=(), reason=reason)))


def _record(found: Payload) -> dict[str, Any]:
    return {
        "form": found.form,
        "messages": [_message(each) for each in found.messages],
        "blobs": found.blobs,
        "signals": list(found.signals),
        "reason": found.reason,
    }


def _message(xcm: Xcm) -> dict[str, Any]:
    return {
        "version": xcm.version,
        "id": xcm.id,
        "instructions": list(xcm.instructions),
        "calls": list(xcm.calls),
        "assets": [{"location": each.location, "amount": str(each.amount)} for each in xcm.assets],
        "reason": xcm.reason,
    }
