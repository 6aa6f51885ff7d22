# SPDX-License-Identifier: Apache-2.0
"""What a start without a checkpoint learns from Kafka about its lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.transactions import take_over
from validator.codec.arrivals import NO_LANE
from validator.errors import Unavailable, UserError
from validator.history.engine import skipped_records
from validator.job.orders import lane_reports
from validator.kafka.calls import ABANDONED_S_MAX
from validator.kafka.transaction import KafkaGone, WriteFailed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from validator.config import Config
    from validator.core.inputs import Source


def writers(definitions: Iterable[str], retired: Iterable[str]) -> list[str]:
    """Return the lanes whose earlier writers may have left transactions open: those that are configured, or were once, and `NO_LANE`."""
    return [*definitions, NO_LANE, *retired]


def known_of_lanes(config: Config, lanes: Iterable[str] | None) -> dict[str, Any]:
    """Return by lane the records that it has skipped, and which lanes were parked, as settings of the query.

    A transaction that a killed job has left open hides what follows it. So those of ``lanes`` (None if the job writes nothing to Kafka) are
    ended first, and others are waited for. Raises `UserError`, `Unavailable`.
    """
    if lanes is not None:
        try:
            take_over(config.kafka, config.topics.prefix, lanes)
        except KafkaGone as error:
            raise Unavailable(str(error)) from error
        except WriteFailed as error:
            raise UserError(str(error)) from error
    skipped: dict[str, frozenset[Source]] = skipped_records(config.kafka, config.topics.prefix, ABANDONED_S_MAX)
    return {"skipped": skipped, "parked": frozenset(lane_reports(config, ABANDONED_S_MAX).parked)}
