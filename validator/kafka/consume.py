# SPDX-License-Identifier: Apache-2.0
"""Takes records from a consumer as soon as there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


def available(consumer: Consumer, records_max: int, timeout_s: float) -> list[Message]:
    """Return what has come, at most ``records_max``; wait for the first of it as long as ``timeout_s``.

    `Consumer.consume` alone waits all its time for a full list, which at the end of a topic never comes.
    """
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(records_max - 1, 0)]
