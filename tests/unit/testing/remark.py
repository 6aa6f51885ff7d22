# SPDX-License-Identifier: Apache-2.0
"""A valid plugin that uses every kind of call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from validator.plugin.api import Context, ContextError, Handler, Manifest, MessageWeight, hookimpl

PREFIX = b"\x00\x01"


@dataclass(frozen=True)
class Config:
    """The greatest length of a remark in bytes, and the para that gets a copy."""

    bytes_max: int = 64
    copy_to: int | None = None


def keep(context: Context, payload: bytes) -> None:
    """Keep a remark by its sender, and count them."""
    remark = payload[len(PREFIX) :]
    if len(remark) > context.config.bytes_max:
        raise ContextError(f"expected at most {context.config.bytes_max} bytes, found {len(remark)}")
    context.charge(7 * len(remark))
    key = context.origin.to_bytes(4, "little")
    count = int.from_bytes(context.read(b"count") or b"", "little") + 1
    context.write(b"count", count.to_bytes(4, "little"))
    context.write(key, remark)
    context.emit("kept", key)
    if context.config.copy_to is not None:
        context.queue_downward_message(context.config.copy_to, remark)
        context.transfer(context.config.copy_to, 5)


def ask(context: Context, payload: bytes) -> None:
    """Ask for a channel to the para that the message names."""
    context.init_open_channel(int.from_bytes(payload[2:6], "little"), 2, 8)


@hookimpl
def validator_manifest() -> Manifest:
    return Manifest(name="remark", version="1.0.0", api_version=(2, 0), config_type=Config)


@hookimpl
def validator_handlers() -> Iterable[Handler]:
    yield Handler(kind="remark", handle=keep, prefix=PREFIX, weight=MessageWeight(1_000, per_byte=10))
    yield Handler(kind="ask", handle=ask, prefix=b"\x00\x02", weight=MessageWeight(1_000), payload_bytes_max=6)
