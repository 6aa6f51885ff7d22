# SPDX-License-Identifier: Apache-2.0
"""What is kept of a message's payload."""

from __future__ import annotations

from typing import NamedTuple

from validator.plugin.protocol_api import Hash, blake2b_256


class Content(NamedTuple):
    """A payload's BLAKE2b-256 hash and bytes; ``summary`` is the plain form of what its XCM says."""

    hash: Hash
    size: int
    summary: bytes = b""


def content_of(payload: bytes) -> Content:
    """Return what is kept of a payload."""
    return Content(blake2b_256(payload), len(payload))
