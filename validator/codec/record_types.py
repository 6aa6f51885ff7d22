# SPDX-License-Identifier: Apache-2.0
"""What a protocol says of its own input records, and the range checks that their shapes are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from validator.core.errors import LimitError
from validator.core.limits import PAYLOAD_BYTES_MAX, U32_MAX

Shaped: TypeAlias = tuple[Any, ...]
"""Fields as `Input.fields` has them."""

Shape: TypeAlias = Callable[[dict[str, Any]], Shaped]
"""What makes fields of a decoded record, and checks their ranges."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """A type of input record that is a protocol's own.

    ``topic`` is ``candidates`` or ``channel-requests``, ``schema`` the record's name. Its fields lane, block and index are checked already
    when ``shape`` is called with the whole decoded record. ``shape`` returns the rest as plain nested tuples of integers, bytes, strings
    and None, from which the rule set's `RuleSet.candidate` or `RuleSet.request` makes the protocol's type; it raises `LimitError` for a
    value that is out of its range, fields in the order of the schema.
    """

    topic: str
    schema: str
    shape: Shape


def check_u32(field: str, value: int) -> None:
    """Raise `LimitError` where a value is no u32."""
    if not 0 <= value <= U32_MAX:
        raise LimitError(field, f"0 to {U32_MAX}", value)


def check_count(field: str, value: int, limit: int) -> None:
    """Raise `LimitError` where a value is not from 0 to ``limit``."""
    if not 0 <= value <= limit:
        raise LimitError(field, f"0 to {limit}", value)


def check_payload(field: str, payload: bytes) -> None:
    """Raise `LimitError` where a message's payload is longer than any may be."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitError(field, f"at most {PAYLOAD_BYTES_MAX} bytes", f"{len(payload)} bytes")


def relay_parent(field: str, block: int, value: int | None) -> int:
    """Return a block number that is the one before ``block`` where it is not given. Raises `LimitError`."""
    if value is None:
        if block == 0:
            raise LimitError(field, "a block number, since block 0 has none before it", "null")
        return block - 1
    check_u32(field, value)
    return value
