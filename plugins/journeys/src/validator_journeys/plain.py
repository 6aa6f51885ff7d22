# SPDX-License-Identifier: Apache-2.0
"""The plain form: MessagePack of None, booleans, integers, bytes, text, and tuples of them. Equal values have the same bytes."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from validator.plugin.protocol_api import DecodeError

_NATURAL: Final = 0
"""The extension type of an integer of more than 64 bits, big-endian: amounts have up to 128."""


def encode_plain(value: Any) -> bytes:
    """Return the plain form of a value."""
    encoded: bytes = msgpack.packb(value, default=_large)
    return encoded


def decode_plain(encoded: bytes) -> Any:
    """Return the value of a plain form, whose tuples are plain ones. Raises `DecodeError`."""
    try:
        return msgpack.unpackb(encoded, use_list=False, ext_hook=_extension)
    except (ValueError, msgpack.UnpackException) as error:
        raise DecodeError(f"plain value: {error or type(error).__name__}") from error


def _large(value: Any) -> msgpack.ExtType:
    if not isinstance(value, int) or value < 0:
        raise TypeError(f"expected a value that has a plain form, found {value!r}")
    return msgpack.ExtType(_NATURAL, value.to_bytes(-(-value.bit_length() // 8)))


def _extension(kind: int, data: bytes) -> int:
    if kind != _NATURAL:
        raise ValueError(f"no extension has type {kind}")
    return int.from_bytes(data)
