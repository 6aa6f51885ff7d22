# SPDX-License-Identifier: Apache-2.0
"""Adds partitions to an existing topic, as Kafka's tools do: the partition of most keys changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewPartitions

from validator.kafka.retry import partitions_of
from validator.kafka.settings import admin_config

if TYPE_CHECKING:
    from collections.abc import Mapping

APPEAR_S_MAX = 60.0


def add_partitions(kafka: Mapping[str, Any], topic: str, count: int = 3) -> None:
    """Return once the broker names ``count`` partitions."""
    admin = AdminClient(admin_config(kafka))
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result()
    deadline = time.monotonic() + APPEAR_S_MAX
    while len(partitions_of(admin, topic)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)
