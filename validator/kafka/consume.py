# SPDX-License-Identifier: Apache-2.0
"""Polls records from a consumer as soon as there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


def available(consumer: Consumer, records_max: int, timeout_s: float) -> list[Message]:
    """Return the records that have arrived, at most ``records_max``; wait up to ``timeout_s`` for the first one.

    `Consumer.consume` alone waits its full timeout for a full list, which never comes at the end of a topic.
    """
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(records_max - 1, 0)]
