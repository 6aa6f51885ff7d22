# SPDX-License-Identifier: Apache-2.0
"""Canonical base64, by pybase64 (the extra `fast`) or by the standard library, with equal verdicts. Source: RFC 4648 section 4."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Final

_CANONICAL_ENDS: Final = (b"", b"AQgw", b"AEIMQUYcgkosw048")
"""The last characters before ``==`` and before ``=`` whose unused bits are zero, by the bytes that the last group holds."""

Decoder = Callable[[bytes, None, bool], bytes]
"""Takes the text, no other alphabet, and whether to validate; it may accept unused bits that are not zero."""
Codec = tuple[Decoder, Callable[[bytes], bytes]]
"""Decodes, and encodes."""


def standard_codec() -> Codec:
    """Return the codec of the standard library."""
    return lambda text, _, validate: binascii.a2b_base64(text, strict_mode=validate), lambda data: binascii.b2a_base64(
        data, newline=False
    )


def fast_codec() -> Codec:
    """Return the codec of pybase64. Raises ``ImportError`` where it is not installed."""
    from pybase64 import b64decode, b64encode

    return b64decode, b64encode


try:
    _decode, _encode = fast_codec()
except ImportError:
    _decode, _encode = standard_codec()


def decode(text: bytes, by: Decoder = _decode) -> bytes:
    """Return the bytes of a canonical base64 text.

    Raises ``ValueError`` for characters outside the standard alphabet (also white space), for missing or surplus padding, and for unused
    trailing bits that are not zero.
    """
    data = by(text, None, True)  # noqa: FBT003 - by name, it would take half as long again for a short text
    last = len(data) % 3
    if len(text) != (len(data) + 2) // 3 * 4 or (last and text[last - 4] not in _CANONICAL_ENDS[last]):
        raise ValueError("base64 is not canonical")
    return data


encode = _encode
"""Return bytes in base64, with padding."""
