# SPDX-License-Identifier: Apache-2.0
"""How old the front of each queue is, also while the operator does not run; when an alarm begins and ends, for the operator's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from validator.cli.command_api import POLL_S, Config, TopicReader, UserError
from validator_xcmp_bodies import records


def aged(queues: Iterable[Mapping[str, Any]], executed: Mapping[str, int], alarm_blocks: int) -> list[dict[str, Any]]:
    """Return the last record of each queue with the age of its front in blocks, by chain and recipient.

    The age counts to the last block that the chain has executed (``executed``, by chain) or the operator has seen, whichever is higher.
    So a front raises the alarm at ``alarm_blocks`` even if the operator has seen none of the blocks in which it grew old.
    """
    rows = {(row["lane"], row["recipient"]): dict(row) for row in queues}
    heights = dict(executed)
    for row in rows.values():
        heights[row["lane"]] = max(heights.get(row["lane"], 0), row["height"])
    for row in rows.values():
        lane, front = row["lane"], row["front"]
        age = None if front is None else heights[lane] - front["sent_at"]
        late = age is not None and age >= alarm_blocks
        row |= {"front_age_blocks": age, "alarm": row["alarm"] or late}
    return [row for _, row in sorted(rows.items())]


BEGINS: Final = "alarm begins"
ENDS: Final = "alarm ends"

RETRY_S: Final = 5.0
"""Seconds until the statuses are read again after Kafka has not answered."""


class Alarms:
    """The alarms of all queues, and which of them have been announced."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], dict[str, Any]] = {}
        self._announced: set[tuple[str, int]] = set()

    def apply(self, status: dict[str, Any]) -> None:
        """Take a record of `xcmp.queues`."""
        self._last[status["lane"], status["recipient"]] = status

    def news(self) -> Iterator[dict[str, Any]]:
        """Yield an event for each alarm that has begun or ended since the last call, by chain and recipient."""
        for queue, status in sorted(self._last.items()):
            if status["alarm"] == (queue in self._announced):
                continue
            (self._announced.add if status["alarm"] else self._announced.discard)(queue)
            yield _event(status)


def _event(status: dict[str, Any]) -> dict[str, Any]:
    begins, front = status["alarm"], status["front"]
    event = {
        "event": BEGINS if begins else ENDS,
        "level": "warning" if begins else "info",
        "lane": status["lane"],
        "recipient": status["recipient"],
        "height": status["height"],
    }
    if front is None:
        return event
    place = {"front": f"{front['sent_at']}/{front['sender']}", "age_blocks": status["height"] - front["sent_at"]}
    return {**event, **place, "missing": not front["held"]}


def watch(config: Config, log: Callable[[dict[str, Any]], None], stop: Event) -> None:
    """Log the alarms of a configuration's queues until ``stop``. While Kafka does not answer, there is no news."""
    alarms = Alarms()
    while not stop.is_set():
        try:
            _follow(config, alarms, log, stop)
        except UserError as error:
            log({"event": "alarms unknown", "level": "warning", "timestamp": _now(), "reason": str(error)})
            stop.wait(RETRY_S)


def _follow(config: Config, alarms: Alarms, log: Callable[[dict[str, Any]], None], stop: Event) -> None:
    with TopicReader(config.kafka, config.topics.prefix, [records.QUEUES], newest=True) as reader:
        while not stop.is_set():
            for record in reader.poll(POLL_S):
                alarms.apply(records.decode(records.QUEUES, record.value))
            if reader.at_end:
                for event in alarms.news():
                    log({**event, "timestamp": _now()})


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
