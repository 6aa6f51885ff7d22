# SPDX-License-Identifier: Apache-2.0
"""Upward messages of kind ``beacon``: ``be`` and a text. The plugin stores the block of each para's last one and notifies a listener."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from validator.plugin.api import Context, Handler, Manifest, MessageWeight, hookimpl

PREFIX = b"be"
TEXT_BYTES_MAX = 32


@dataclass(frozen=True)
class Configuration:
    """The keys that a chain sets under `config`."""

    listener: int
    """The para that is notified."""


def beacon(context: Context, payload: bytes) -> None:
    """Store the block under the sender's id, and send the sender's id and text to the listener."""
    sender = context.origin.to_bytes(4, "little")
    block = context.block.to_bytes(4, "little")
    context.write(sender, block)
    context.queue_downward_message(context.config.listener, sender + payload[len(PREFIX) :])
    context.emit("alive", block)


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's identity; the version equals the distribution's."""
    return Manifest(name="beacon", version="2.1.0", api_version=(2, 0), config_type=Configuration)


@hookimpl
def validator_handlers() -> Iterable[Handler]:
    """Yield the handler."""
    yield Handler(
        kind="beacon",
        handle=beacon,
        prefix=PREFIX,
        weight=MessageWeight(300, per_byte=2),
        payload_bytes_max=len(PREFIX) + TEXT_BYTES_MAX,
    )
