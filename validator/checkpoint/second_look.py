# SPDX-License-Identifier: Apache-2.0
"""Looks twice before a message says to remove or to rebuild something.

A broker that has just become a leader, or a client that has just lost one, may say for a moment that records, partitions or topics are not
there. Whoever follows the message then removes a good checkpoint. So what Kafka seems to lack has to be seen twice, some time apart, the
second time by a new client at each broker. Until then it is `Unavailable`, for which a job waits.

What Kafka has needs no second look, such as the marker of a lane: no broker makes that up. Neither does what a local file says.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from validator.errors import Unavailable, UserError
from validator.kafka.topics import each_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from validator.config import Config
    from validator.kafka.settings import KafkaTable

    Question: TypeAlias = "Callable[[KafkaTable], Lack | None]"
    """Asks Kafka, with its own client; None if nothing is lacking. Raises `UserError` as its readers do."""

JOB_S: Final = 120.0
"""Seconds between the two looks of a job: a leader that has died has long been replaced."""

LOOKS_IN_PATIENCE: Final = 4
"""Looks for which `[job] give_up_after` leaves time if it is short."""

PERSON_S: Final = 10.0
"""Seconds between them where a person, or the batch of a job, waits for the answer."""


class Lack(NamedTuple):
    """What Kafka seems to lack, and what to do about it once that is certain."""

    fact: str
    advice: str = ""


class NotSure(Unavailable):
    """Something was seen that has to be seen again."""


class SeenTwice(UserError):
    """Something was seen twice, and by all brokers; the text says what to do."""


class SecondLook:
    """Remembers by subject when something was first seen to lack. ``brokers`` returns the tables of clients that ask one broker each."""

    def __init__(
        self,
        kafka: KafkaTable,
        after_s: float = JOB_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        brokers: Callable[[KafkaTable], Iterable[KafkaTable]] = each_broker,
    ) -> None:
        self._kafka, self._after_s = kafka, after_s
        self._clock, self._sleep, self._brokers = clock, sleep, brokers
        self._first: dict[str, float] = {}

    @classmethod
    def of_job(cls, config: Config) -> Self:
        """Return how a job looks twice: within the time that it waits for what is outside."""
        return cls(config.kafka, min(JOB_S, config.job.give_up_after / LOOKS_IN_PATIENCE))

    def refuse(self, subject: str, question: Question) -> None:
        """Return if nothing is lacking.

        Raises `UserError` as the question; `NotSure` until that was first seen ``after_s`` seconds ago, and while brokers do not agree;
        then `SeenTwice`.
        """
        found = question(self._kafka)
        if found is None:
            self._first.pop(subject, None)
            return
        first = self._first.setdefault(subject, self._clock())
        if self._clock() - first < self._after_s:
            raise NotSure(
                f"{found.fact}: this may pass, and is looked at again {self._after_s:.0f} s after it was first seen"
            )
        for kafka in self._brokers(self._kafka):
            if question(kafka) is None:
                del self._first[subject]
                raise NotSure(
                    f"{found.fact}, but not for the broker {kafka['bootstrap.servers']}: they are asked again"
                )
        advice = f": {found.advice}" if found.advice else ""
        raise SeenTwice(f"{found.fact} (seen twice, {self._after_s:.0f} s apart){advice}")

    def refuse_soon(self, subject: str, question: Question) -> None:
        """Wait between the two looks instead of raising `NotSure` after the first one; otherwise as `refuse`."""
        try:
            self.refuse(subject, question)
        except NotSure:
            self._sleep(self._after_s)
            self.refuse(subject, question)
