# SPDX-License-Identifier: Apache-2.0
"""Knows whether another job has taken lanes over while this one ran, before this one takes them back.

A writer that is fenced finds out by itself, if it is not too late: a job whose machine stood still for minutes hears from Kafka's client
only that its records have timed out. Its next start of the query would fence the other job off, whose next start would do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.reasons import BatchFailed
from streaming.transactions import take_over
from validator.checkpoint.markers import NOT_WRITTEN, written_of
from validator.kafka.transaction import KafkaGone, WriteFailed, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from validator.kafka.settings import KafkaTable


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
        end_open_transactions(kafka, prefix, lanes)
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


def end_open_transactions(kafka: KafkaTable, prefix: str, lanes: Iterable[str]) -> None:
    """End the transactions that earlier writers of some lanes left open. Raises `BatchFailed`."""
    try:
        take_over(kafka, prefix, lanes)
    except WriteFailed as error:
        raise BatchFailed(str(error), progressed=False, outside=isinstance(error, KafkaGone)) from None
