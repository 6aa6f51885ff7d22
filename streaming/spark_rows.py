# SPDX-License-Identifier: Apache-2.0
"""Keys and values of the job's state variables as Spark stores them (``unsaferow``). Numbers are little endian.

Every key begins with the number of its variable. Rows follow, each after a version byte. A row has a word of null bits and one word per
field. The word of a string, of bytes and of a nested row holds their place in the row and their size. Sources: `UnsafeRow` and
`RocksDBStateEncoder` of Spark 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error

from streaming.changelog import StoreUnreadable

_VARIABLE = Struct("<H")
_PREFIX_SIZE = Struct("<I")
_FIELD = Struct("<II")
"""Size and place of what a field names."""
_INT = Struct("<i")

_NULL_BITS = 8
"""Bytes of the word of null bits in a row of up to 64 fields."""
_VERSION = 0
_JOINT = ord(",")
"""The byte that RocksDB's operator may put between list entries. It never begins the size of an entry, which is one more than a multiple
of 8."""


def variable_prefix(number: int) -> bytes:
    """Return the first bytes of every key of a variable."""
    return _VARIABLE.pack(number)


def lane_of_key(key: bytes) -> str:
    """Return the lane of a value's or a list's key. Raises `StoreUnreadable`."""
    return _text(_read(_row(key[_VARIABLE.size :])))


def lane_and_slot(key: bytes) -> tuple[str, int]:
    """Return the lane and the user key of a map's key. Raises `StoreUnreadable`."""
    start = _VARIABLE.size + _PREFIX_SIZE.size
    if len(key) < start:
        raise StoreUnreadable(f"a key of {len(key)} bytes is too short")
    end = start + _PREFIX_SIZE.unpack_from(key, _VARIABLE.size)[0]
    lane = _read(_read(_row(key[start:end])))
    slot = _read(_row(key[end:]))
    if len(slot) != _NULL_BITS + 8:
        raise StoreUnreadable(f"expected one number in a map's key, found {len(slot)} bytes")
    return _text(lane), _INT.unpack_from(slot, _NULL_BITS)[0]


def binary_of(value: bytes) -> bytes:
    """Return the only field of a value. Raises `StoreUnreadable`."""
    return _read(_row(value))


def list_of(value: bytes) -> Iterator[bytes]:
    """Yield the only field of each entry of a list. Raises `StoreUnreadable`."""
    at = 0
    while at < len(value):
        if value[at] == _JOINT:
            at += 1
        try:
            (size,) = _INT.unpack_from(value, at)
        except error:
            raise StoreUnreadable(f"a list of {len(value)} bytes is damaged at byte {at}") from None
        at += _INT.size
        if size % 8 != 1 or at + size > len(value):
            raise StoreUnreadable(f"a list of {len(value)} bytes is damaged at byte {at}")
        yield binary_of(value[at : at + size])
        at += size


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as wrong:
        raise StoreUnreadable(f"expected a lane's name in UTF-8, found byte {data[wrong.start]:#04x}") from None


def _row(data: bytes) -> bytes:
    if not data or data[0] != _VERSION:
        raise StoreUnreadable(f"expected a row of version {_VERSION}, found {data[:1].hex() or 'nothing'}")
    return data[1:]


def _read(row: bytes) -> bytes:
    """Return what the only field of a row names."""
    if len(row) < _NULL_BITS + _FIELD.size or row[0]:
        raise StoreUnreadable(f"expected a row with one field, found {len(row)} bytes")
    size, place = _FIELD.unpack_from(row, _NULL_BITS)
    if place + size > len(row):
        raise StoreUnreadable(f"a row of {len(row)} bytes names bytes {place} to {place + size}")
    return row[place : place + size]
