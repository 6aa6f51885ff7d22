# SPDX-License-Identifier: Apache-2.0
"""How a protocol describes its own input records, and the range checks for their shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from validator.core.errors import LimitError
from validator.core.limits import PAYLOAD_BYTES_MAX, U32_MAX

Shaped: TypeAlias = tuple[Any, ...]
"""Fields in the form of `Input.fields`."""

Shape: TypeAlias = Callable[[dict[str, Any]], Shaped]
"""Turns a decoded record into its fields, and checks their ranges."""

RECORD_TOPICS: Final = ("candidates", "channel-requests")
"""The topics that carry protocols' own records."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """A protocol's own type of input record.

    ``topic`` is one of `RECORD_TOPICS`, ``schema`` the record's name. ``shape`` is called with the whole decoded record,
    whose fields lane, block and index have been checked. It returns the other fields as plain nested tuples of integers, bytes, strings and
    None; `RuleSet.candidate` or `RuleSet.request` builds the protocol's type from them. It raises `LimitError` for a value out of range,
    checking fields in schema order.
    """

    topic: str
    schema: str
    shape: Shape


def check_u32(field: str, value: int) -> None:
    """Raise `LimitError` if a value is not a u32."""
    if not 0 <= value <= U32_MAX:
        raise LimitError(field, f"0 to {U32_MAX}", value)


def check_count(field: str, value: int, limit: int) -> None:
    """Raise `LimitError` if a value is not from 0 to ``limit``."""
    if not 0 <= value <= limit:
        raise LimitError(field, f"0 to {limit}", value)


def check_payload(field: str, payload: bytes) -> None:
    """Raise `LimitError` if a message's payload is longer than any payload may be."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitError(field, f"at most {PAYLOAD_BYTES_MAX} bytes", f"{len(payload)} bytes")


def relay_parent(field: str, block: int, value: int | None) -> int:
    """Return ``value``, or the number of the block before ``block`` if it is None. Raises `LimitError`."""
    if value is None:
        if block == 0:
            raise LimitError(field, "a block number, since block 0 has none before it", "null")
        return block - 1
    check_u32(field, value)
    return value
