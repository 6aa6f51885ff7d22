# SPDX-License-Identifier: Apache-2.0
"""Checks on what a transport submits, shared by the real context and the one for tests."""

from __future__ import annotations

from validator.core.limits import RECORD_BYTES_MAX
from validator.topics import INPUT_TOPICS


def check_submission(topic: str, key: bytes, value: bytes) -> None:
    """Raise ``ValueError`` for an unknown input topic, a key or value that is not bytes, and a value longer than a record may be."""
    if topic not in INPUT_TOPICS:
        raise ValueError(f"topic: expected one of {', '.join(sorted(INPUT_TOPICS))}, found {topic!r}")
    for name, part in (("key", key), ("value", value)):
        if type(part) is not bytes:
            raise ValueError(f"{name}: expected bytes, found {type(part).__name__}")
    if len(value) > RECORD_BYTES_MAX:
        raise ValueError(f"value: expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}")


def check_timeout(timeout_s: float) -> None:
    """Raise ``ValueError`` if a timeout is negative or not a finite number."""
    if type(timeout_s) not in (int, float) or not 0 <= timeout_s < float("inf"):
        raise ValueError(f"timeout_s: expected seconds, at least 0, found {timeout_s!r}")
