# SPDX-License-Identifier: Apache-2.0
"""Handlers of upward messages that leave a remark: calls of the relay chain's System pallet. This is the smallest handler plugin.

It stores the BLAKE2b-256 hash of a para's latest remark under the para's id. A call is the pallet's index (a byte, 0), the call's index (a
byte) and the remark as a SCALE ``Vec<u8>``. Source: polkadot-sdk, substrate/frame/system/src/lib.rs (``remark``, ``remark_with_event``).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from validator.plugin.api import Context, Handler, Manifest, MessageWeight, Reader, hookimpl

__version__ = "1.0.0"

REMARK = b"\x00\x00"
REMARK_WITH_EVENT = b"\x00\x07"
WEIGHT = MessageWeight(500, per_byte=1)


def decode_remark(payload: bytes) -> bytes:
    """Return the remark of a call of either kind. Raises `DecodeError` if it is truncated, then if bytes are left over."""
    reader = Reader(payload)
    reader.take(len(REMARK))
    remark = reader.bytes()
    reader.end()
    return remark


def remark(context: Context, text: bytes) -> None:
    """Store the hash of a remark under its sender's id, a u32."""
    context.write(context.origin.to_bytes(4, "little"), blake2b(text, digest_size=32).digest())


def remark_with_event(context: Context, text: bytes) -> None:
    """Do the same as `remark`, and emit ``remarked`` with the hash."""
    remark(context, text)
    context.emit("remarked", blake2b(text, digest_size=32).digest())


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="remark", version=__version__, api_version=(2, 0))


@hookimpl
def validator_handlers() -> Iterable[Handler]:
    """Yield a handler for each of the two calls."""
    yield Handler(kind="remark", handle=remark, weight=WEIGHT, prefix=REMARK, decode=decode_remark)
    yield Handler(
        kind="remark_with_event",
        handle=remark_with_event,
        weight=WEIGHT,
        prefix=REMARK_WITH_EVENT,
        decode=decode_remark,
    )
