# SPDX-License-Identifier: Apache-2.0
"""Writes test records to Kafka with one producer per broker: an idempotent producer takes half a second to start."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from validator.service.sender import RecordSender

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def send(kafka: Mapping[str, Any], prefix: str, records: Iterable[tuple[str, bytes | None, bytes | None]]) -> None:
    """Write (topic without the prefix, key, value) in order; return once the broker has acknowledged all of them."""
    sender = _sender(tuple(sorted(kafka.items())))
    for topic, key, value in records:
        sender.send(prefix + topic, key, value)  # type: ignore[arg-type]  # a foreign record may have no key or no value
    sender.flush()


@cache
def _sender(kafka: tuple[tuple[str, Any], ...]) -> RecordSender:
    return RecordSender(dict(kafka), "")
