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


def content_of(kind: str, payload: bytes) -> Content:  # noqa: ARG001 - the reading of XCM depends on it
    """Return what is kept of the payload of a horizontal, downward or upward message."""
    return Content(blake2b_256(payload), len(payload))
