# SPDX-License-Identifier: Apache-2.0
"""Pre-shared keys in files. Source: channel_rules 1.2.6, 3.4."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from validator_channel.limits import KEY_BYTES

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_psk(path: Path) -> bytes:
    """Return a pre-shared key: 64 hex digits in a file that only its owner may read.

    Raises ``ValueError``, which never holds the key: for a file that cannot be read, then for its mode, then for what is in it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = file.read(2 * KEY_BYTES + 2)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if mode & _OTHERS:
        raise ValueError(f"{path}: expected a file that only its owner may read (mode 0600), found mode {mode:04o}")
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path}: expected {2 * KEY_BYTES} hex digits")
    return key
