# SPDX-License-Identifier: Apache-2.0
"""Handlers of upward messages with which a para manages its channels: calls of the relay chain's Hrmp pallet.

Source: polkadot-sdk, polkadot/runtime/parachains/src/hrmp.rs (``pallet::call``, ``pallet::event``). The chain's protocol supplies the rules
behind each call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from validator.plugin.api import Context, Handler, Manifest, MessageWeight, Writer, hookimpl
from validator_hrmp_calls.calls import (
    ACCEPT_OPEN_CHANNEL,
    CLOSE_CHANNEL,
    INIT_OPEN_CHANNEL,
    PALLET_INDEX,
    AcceptOpenChannel,
    Call,
    CloseChannel,
    InitOpenChannel,
    decode_accept_open_channel,
    decode_close_channel,
    decode_init_open_channel,
    encode,
)

__all__ = [
    "AcceptOpenChannel",
    "Call",
    "CloseChannel",
    "Config",
    "InitOpenChannel",
    "accept_open_channel",
    "close_channel",
    "decode_accept_open_channel",
    "decode_close_channel",
    "decode_init_open_channel",
    "encode",
    "init_open_channel",
]

__version__ = "1.0.0"

WEIGHT: Final = MessageWeight(1_000)
"""Base weight of a message. The context call costs extra; bytes cost nothing, because the size is fixed."""


@dataclass(frozen=True, slots=True)
class Config:
    """The Hrmp pallet's index in the relay chain's calls, a byte. Raises ``ValueError`` for a value out of range."""

    pallet_index: int = PALLET_INDEX

    def __post_init__(self) -> None:
        if not 0 <= self.pallet_index <= 255:
            raise ValueError(f"pallet_index: expected 0 to 255, found {self.pallet_index}")


def init_open_channel(context: Context, call: InitOpenChannel) -> None:
    """Request a channel from the message's origin.

    Emits ``open_channel_requested`` with the event's fields as SCALE: sender, recipient, proposed_max_capacity and
    proposed_max_message_size, a u32 each. Raises the errors of `Context.init_open_channel`.
    """
    context.init_open_channel(call.recipient, call.proposed_max_capacity, call.proposed_max_message_size)
    fields = (context.origin, call.recipient, call.proposed_max_capacity, call.proposed_max_message_size)
    context.emit("open_channel_requested", _encode_fields(*fields))


def accept_open_channel(context: Context, call: AcceptOpenChannel) -> None:
    """Confirm a request that was made to the message's origin.

    Emits ``open_channel_accepted``: sender, recipient, a u32 each. Raises the errors of `Context.accept_open_channel`.
    """
    context.accept_open_channel(call.sender)
    context.emit("open_channel_accepted", _encode_fields(call.sender, context.origin))


def close_channel(context: Context, call: CloseChannel) -> None:
    """Request that a channel be closed. The message's origin may be either end.

    Emits ``channel_closed``: by_parachain, and the channel's sender and recipient, a u32 each.
    Raises the errors of `Context.close_channel`.
    """
    context.close_channel(call.sender, call.recipient)
    context.emit("channel_closed", _encode_fields(context.origin, call.sender, call.recipient))


def _encode_fields(*values: int) -> bytes:
    out = Writer()
    for value in values:
        out.u32(value)
    return bytes(out.buffer)


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="hrmp-calls", version=__version__, api_version=(2, 0), config_type=Config)


@hookimpl
def validator_handlers(config: Config) -> Iterable[Handler]:
    """Yield a handler for each call; its prefix is the two index bytes."""
    for call, decode, handle in (
        (INIT_OPEN_CHANNEL, decode_init_open_channel, init_open_channel),
        (ACCEPT_OPEN_CHANNEL, decode_accept_open_channel, accept_open_channel),
        (CLOSE_CHANNEL, decode_close_channel, close_channel),
    ):
        prefix = bytes((config.pallet_index, call.call_index))
        yield Handler(kind=call.name, handle=handle, weight=WEIGHT, prefix=prefix, decode=decode)
