# SPDX-License-Identifier: Apache-2.0
"""The plain form: bytes of None, booleans, integers, bytes, text, and tuples of them. Equal values have the same bytes."""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.protocol_api import DecodeError, Reader, Writer

_NONE, _FALSE, _TRUE, _NATURAL, _NEGATIVE, _BYTES, _TEXT, _TUPLE = range(8)
_CONSTANTS: Final = {_NONE: None, _FALSE: False, _TRUE: True}


def encode_plain(value: Any) -> bytes:
    """Return the plain form of a value."""
    out = Writer()
    _write(out, value)
    return bytes(out.buffer)


def decode_plain(encoded: bytes) -> Any:
    """Return the value of a plain form. Raises `DecodeError`."""
    reader = Reader(encoded)
    value = _read(reader)
    reader.end()
    return value


def _write(out: Writer, value: Any) -> None:
    if value is None:
        out.u8(_NONE)
    elif isinstance(value, bool):
        out.u8(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        out.u8(_NATURAL if value >= 0 else _NEGATIVE)
        out.compact(abs(value))
    elif isinstance(value, bytes):
        out.u8(_BYTES)
        out.bytes(value)
    elif isinstance(value, str):
        out.u8(_TEXT)
        out.bytes(value.encode())
    else:
        out.u8(_TUPLE)
        out.compact(len(value))
        for each in value:
            _write(out, each)


def _read(reader: Reader) -> Any:
    kind = reader.u8()
    if kind in _CONSTANTS:
        return _CONSTANTS[kind]
    match kind:
        case 3:
            return reader.compact()
        case 4:
            return -reader.compact()
        case 5:
            return reader.bytes()
        case 6:
            return reader.bytes().decode()
        case 7:
            return tuple(reader.items(lambda: _read(reader)))
        case _:
            raise DecodeError(f"plain value at offset {reader.position - 1} is of kind {kind}, expected one below 8")
