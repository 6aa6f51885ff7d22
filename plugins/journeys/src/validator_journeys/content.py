# SPDX-License-Identifier: Apache-2.0
"""What is kept of a message's payload."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from validator.plugin.protocol_api import Hash, blake2b_256
from validator_journeys.plain import decode_plain, encode_plain
from validator_journeys.xcm import Payload, Xcm, XcmAsset, read_payload

SUMMARY_BYTES_MAX: Final = 2048
"""Maximum bytes of a summary in its plain form: it bounds the memory that a waiting message takes."""


class Content(NamedTuple):
    """A payload's BLAKE2b-256 hash and bytes; ``summary`` is the plain form of its `Payload`."""

    hash: Hash
    size: int
    summary: bytes = b""


def content_of(kind: str, payload: bytes) -> Content:
    """Return what is kept of the payload of a horizontal, downward or upward message."""
    return Content(blake2b_256(payload), len(payload), _summary(read_payload(kind, payload)))


def _summary(found: Payload) -> bytes:
    """Return the plain form, of a payload that says too much without its messages."""
    summary = encode_plain(found)
    if len(summary) <= SUMMARY_BYTES_MAX:
        return summary
    reason = f"the summary of {len(found.messages)} messages has {len(summary)} bytes, at most {SUMMARY_BYTES_MAX}"
    return encode_plain(found._replace(messages=(), signals=(), reason=reason))


def summary_of(content: Content) -> dict[str, Any] | None:
    """Return a summary as a record; None if the payload was not read."""
    if not content.summary:
        return None
    form, messages, blobs, signals, reason = decode_plain(content.summary)
    return {
        "form": form,
        "messages": [_message(Xcm(*each)) for each in messages],
        "blobs": blobs,
        "signals": list(signals),
        "reason": reason,
    }


def _message(xcm: Xcm) -> dict[str, Any]:
    assets = [XcmAsset(*each) for each in xcm.assets]
    return {
        "version": xcm.version,
        "id": xcm.id,
        "instructions": list(xcm.instructions),
        "calls": list(xcm.calls),
        "assets": [{"location": each.location, "amount": str(each.amount)} for each in assets],
        "reason": xcm.reason,
    }
