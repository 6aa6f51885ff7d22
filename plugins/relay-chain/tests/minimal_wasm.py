# SPDX-License-Identifier: Apache-2.0
"""A runtime that returns constants: just enough WebAssembly for a simulator that asks it for its version and its metadata.

Source: WebAssembly core specification 1.0, chapter 5 (binary format).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

PAGE_BYTES: Final = 65_536
FREE_PAGES: Final = 32
"""Pages of memory behind the constants."""
DATA_AT: Final = 1_024

TYPE, FUNCTION, MEMORY, GLOBAL, EXPORT, CODE, DATA = 1, 3, 5, 6, 7, 10, 11
I32, I64, FUNCTION_TYPE = 0x7F, 0x7E, 0x60
I32_CONST, I64_CONST, END = b"\x41", b"\x42", b"\x0b"


def runtime_of(results: Mapping[str, bytes]) -> bytes:
    """Return a module whose functions, by name, return constants the way runtimes do: address and length in one number."""
    at, data, code = DATA_AT, [], []
    for value in results.values():
        data.append(b"\x00" + I32_CONST + _signed(at) + END + _sized(value))
        code.append(_sized(b"\x00" + I64_CONST + _signed(at | len(value) << 32) + END))
        at += len(value)
    heap = -(-at // PAGE_BYTES) * PAGE_BYTES
    exports = [
        _sized(b"memory") + b"\x02\x00",
        _sized(b"__heap_base") + b"\x03\x00",
        *(_sized(name.encode()) + b"\x00" + _unsigned(index) for index, name in enumerate(results)),
    ]
    return b"\0asm\1\0\0\0" + b"".join(
        (
            _section(TYPE, [bytes((FUNCTION_TYPE, 2, I32, I32, 1, I64))]),
            _section(FUNCTION, [b"\x00"] * len(results)),
            _section(MEMORY, [b"\x00" + _unsigned(heap // PAGE_BYTES + FREE_PAGES)]),
            _section(GLOBAL, [bytes((I32, 0)) + I32_CONST + _signed(heap) + END]),
            _section(EXPORT, exports),
            _section(CODE, code),
            _section(DATA, data),
        )
    )


def _section(id_: int, items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return bytes((id_,)) + _sized(_unsigned(len(listed)) + b"".join(listed))


def _sized(value: bytes) -> bytes:
    return _unsigned(len(value)) + value


def _unsigned(value: int) -> bytes:
    """Return LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _signed(value: int) -> bytes:
    """Return signed LEB128 of a number that is not negative."""
    out = bytearray()
    while value > 0x3F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
