# SPDX-License-Identifier: Apache-2.0
"""Values of the relay chain's storage that contain payloads or are simple, decoded by position; `layout` checks their shape.

Each function raises `DecodeError` unless the value ends where it should. Source: polkadot-sdk, polkadot/runtime/parachains/src.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from validator.plugin.api import Reader, Writer

T = TypeVar("T")

HASH_BYTES: Final = 32
"""Bytes of a hash, which is all that its value has."""


class Queued(NamedTuple):
    """A message that waits for a para."""

    sent_at: int
    """The block that queued it."""
    msg: bytes


class Channel(NamedTuple):
    """A value of ``Hrmp.HrmpChannels``."""

    max_capacity: int
    max_total_size: int
    max_message_size: int
    msg_count: int
    total_size: int
    mqc_head: bytes | None
    sender_deposit: int
    recipient_deposit: int


class OpenRequest(NamedTuple):
    """A value of ``Hrmp.HrmpOpenChannelRequests``."""

    confirmed: bool
    age: int
    sender_deposit: int
    max_message_size: int
    max_capacity: int
    max_total_size: int


def _whole(raw: bytes, read: Callable[[Reader], T]) -> T:
    reader = Reader(raw)
    value = read(reader)
    reader.end()
    return value


def decode_channel(raw: bytes) -> Channel:
    """Return a channel."""
    return _whole(
        raw,
        lambda r: Channel(r.u32(), r.u32(), r.u32(), r.u32(), r.u32(), r.option(r.hash), r.u128(), r.u128()),
    )


def encode_channel(channel: Channel) -> bytes:
    """Return the value of a channel."""
    out = Writer()
    for number in channel[:5]:
        out.u32(number)
    out.option(channel.mqc_head, out.hash)
    out.u128(channel.sender_deposit)
    out.u128(channel.recipient_deposit)
    return bytes(out.buffer)


def decode_queue(raw: bytes) -> tuple[Queued, ...]:
    """Return the messages of a downward queue or of a channel, oldest first."""
    return _whole(raw, lambda r: tuple(r.items(lambda: Queued(r.u32(), r.bytes()))))


def encode_queue(messages: Iterable[Queued]) -> bytes:
    """Return the value of a queue."""
    queue = tuple(messages)
    out = Writer()
    out.compact(len(queue))
    for message in queue:
        out.u32(message.sent_at)
        out.bytes(message.msg)
    return bytes(out.buffer)


def decode_digests(raw: bytes) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return, for each block with messages for a recipient, their senders."""
    return _whole(raw, lambda r: tuple(r.items(lambda: (r.u32(), tuple(r.items(r.u32))))))


def decode_u32(raw: bytes) -> int:
    """Return a number."""
    return _whole(raw, lambda r: r.u32())


def decode_hash(raw: bytes) -> bytes:
    """Return 32 bytes."""
    return _whole(raw, lambda r: r.hash())


def decode_paras(raw: bytes) -> tuple[int, ...]:
    """Return the paras of an index of channels."""
    return _whole(raw, lambda r: tuple(r.items(r.u32)))


def decode_channels(raw: bytes) -> tuple[tuple[int, int], ...]:
    """Return the channels of a list of requests: sender, recipient."""
    return _whole(raw, lambda r: tuple(r.items(lambda: (r.u32(), r.u32()))))


def decode_open_request(raw: bytes) -> OpenRequest:
    """Return a request to open a channel."""
    return _whole(raw, lambda r: OpenRequest(r.boolean(), r.u32(), r.u128(), r.u32(), r.u32(), r.u32()))


def decode_payloads(raw: bytes) -> tuple[bytes, ...]:
    """Return the messages of ``Ump.RelayDispatchQueues``."""
    return _whole(raw, lambda r: tuple(r.items(r.bytes)))
