# SPDX-License-Identifier: Apache-2.0
"""Polls records from a consumer as soon as there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError

from validator.errors import UserError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

NOT_UNPACKED: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._CRIT_SYS_RESOURCE})
"""What librdkafka reports of a producer's batch that it has no memory to unpack, or that is larger unpacked than it takes."""


class NotUnpacked(UserError):
    """Records cannot be unpacked (`NOT_UNPACKED`)."""


def available(consumer: Consumer, records_max: int, timeout_s: float) -> list[Message]:
    """Return the records that have arrived, at most ``records_max``; wait up to ``timeout_s`` for the first one.

    `Consumer.consume` alone waits its full timeout for a full list, which never comes at the end of a topic. Raises `MemoryError`, also
    where the client itself raises something else.
    """
    try:
        first = consumer.poll(timeout_s)
        if first is None or records_max == 1:
            return [] if first is None else [first]
        return [first, *consumer.consume(records_max - 1, 0)]
    except SystemError as error:  # "returned a result with an exception set"
        if isinstance(error.__cause__ or error.__context__, MemoryError):
            raise MemoryError from error
        raise
