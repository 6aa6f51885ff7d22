# SPDX-License-Identifier: Apache-2.0
"""Takes lanes over: ends what earlier writers left open, learns what they left, and knows whether another job has done so meanwhile.

A writer that is fenced finds out by itself, if it is not too late: a job whose machine stood still for minutes hears from Kafka's client
only that its records have timed out. Its next start of the query would fence the other job off, whose next start would do the same.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from streaming.reasons import BatchFailed
from validator.checkpoint.markers import NOT_WRITTEN, group_of, written_of
from validator.codec.inflight import NO_LANE
from validator.errors import Unavailable, UserError
from validator.history.engine import skipped_records
from validator.job.orders import lane_reports
from validator.kafka.calls import ABANDONED_S_MAX, CALL_S_MAX, OPEN_WRITER, waited_for
from validator.kafka.settings import OF_LANE, producer_config
from validator.kafka.transaction import FencedWriter, KafkaGone, WriteFailed, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from validator.config import Config
    from validator.core.inputs import Source
    from validator.kafka.settings import KafkaTable


TAKEN_OVER_AT_ONCE: Final = 8
"""Lanes that `end_open_transactions` handles in parallel."""


def end_open_transactions(kafka: KafkaTable, prefix: str, lanes: Iterable[str]) -> None:
    """End the transactions that earlier writers left open, so that no reader waits for them. Live writers are fenced off.

    Raises `Unavailable`, `UserError`.
    """

    def end(lane: str) -> None:
        config = producer_config(kafka, OF_LANE, transactional_id=group_of(prefix, lane))
        waited_for(OPEN_WRITER, FencedWriter(config, bound_s=CALL_S_MAX).open)

    with ThreadPoolExecutor(TAKEN_OVER_AT_ONCE) as pool:
        try:
            list(pool.map(end, lanes))
        except (TimeoutError, KafkaGone) as error:
            raise Unavailable(str(error)) from error
        except WriteFailed as error:
            raise UserError(str(error)) from error


class Rivals:
    """Remembers where the markers of this process's lanes were when it took them, and by which names it writes since."""

    def __init__(self) -> None:
        self._own: set[str] = set()
        self._taken: dict[str, tuple[int, int] | None] = {}

    def take_over(self, kafka: KafkaTable, prefix: str, lanes: Collection[str], application: str) -> None:
        """Take lanes over for a job of this name, and end the transactions that earlier writers left open.

        Raises `WriterFenced` if another job has written one of them since this process took it, `BatchFailed`, `UserError`.
        """
        self.look(kafka, prefix, lanes)
        try:
            end_open_transactions(kafka, prefix, lanes)
        except Unavailable:
            raise
        except UserError as error:  # it may pass with another attempt
            raise BatchFailed(str(error), progressed=False) from None
        self.taken(kafka, prefix, lanes, application)

    def look(self, kafka: KafkaTable, prefix: str, lanes: Collection[str]) -> None:
        """Look before lanes are taken over again. Raises `WriterFenced` if another job has written one since, `UserError`."""
        known = [lane for lane in lanes if lane in self._taken]
        for lane, last in written_of(kafka, prefix, known, lane="").items() if known else ():
            if last.place != self._taken[lane] and last.job and last.job not in self._own:
                raise WriterFenced(f"another job has taken over lane {lane}: {last.job}")

    def taken(self, kafka: KafkaTable, prefix: str, lanes: Collection[str], application: str) -> None:
        """Note that a job of this name has taken lanes over, and where their markers are then. Raises `UserError`."""
        self._own.add(application)
        new = [lane for lane in lanes if lane not in self._taken]
        found = written_of(kafka, prefix, new, lane="") if new else {}
        self._taken |= {lane: found.get(lane, NOT_WRITTEN).place for lane in new}


def writers(definitions: Iterable[str], retired: Iterable[str]) -> list[str]:
    """Return the lanes whose earlier writers may have left transactions open: those that are configured, or were once, and `NO_LANE`."""
    return [*definitions, NO_LANE, *retired]


def known_of_lanes(config: Config, lanes: Iterable[str] | None) -> dict[str, Any]:
    """Return by lane the records that it has skipped, and which lanes were parked, as settings of the query.

    A transaction that a killed job has left open hides what follows it. So those of ``lanes`` (None if the job writes nothing to Kafka) are
    ended first, and others are waited for. Raises `UserError`, `Unavailable`.
    """
    if lanes is not None:
        end_open_transactions(config.kafka, config.topics.prefix, lanes)
    skipped: dict[str, frozenset[Source]] = skipped_records(config.kafka, config.topics.prefix, ABANDONED_S_MAX)
    return {"skipped": skipped, "parked": frozenset(lane_reports(config, ABANDONED_S_MAX).parked)}
