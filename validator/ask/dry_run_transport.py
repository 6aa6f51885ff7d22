# SPDX-License-Identifier: Apache-2.0
"""The transport `dry-run`: answers requests on one topic with answers on another, next to the job.

It is shipped with the product and runs as any transport does, `validator transport run dry-run`: one process is active, the others wait as
standby. Answers and the position after their requests are one transaction, so each request has exactly one answer, whatever is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from validator import DISTRIBUTION, __version__
from validator.ask.dry_run import Answerer, Standings
from validator.codec.dry_runs import answer_format, decode_answer, decode_request, request_format
from validator.core.limits import DRY_RUN_ANSWER_BYTES_MAX, RECORD_BYTES_MAX
from validator.plugin.api import API_VERSION, Manifest, Transport, hookimpl
from validator.plugin.job_api import OwnTopic, TopicForm
from validator.plugin.registry import Found, Plugin, register
from validator.topics import DRY_RUN_ANSWERS, DRY_RUN_REQUESTS, DRY_RUN_TOPICS

if TYPE_CHECKING:
    from validator.plugin.api import OutputReader, OutputRecord, TransportContext

NAME: Final = "dry-run"

REQUESTS_PER_COMMIT_MAX: Final = 100
"""Requests whose answers are committed together."""
REQUEST_BYTES_PER_COMMIT_MAX: Final = 32 * 1024 * 1024
"""Bytes of these requests after which no further one is taken."""
WAIT_S: Final = 1.0
"""Seconds that the transport waits for a request before it looks whether it should stop."""
PER_SECOND_DEFAULT: Final = 200
"""Requests that are answered in a second."""
PER_SECOND_MAX: Final = 100_000
"""The greatest value of that."""
WAITING_MAX_DEFAULT: Final = 10_000
"""Requests that may wait behind one of the same partition; with more of them it is refused instead of judged."""
WAITING_MAX_MAX: Final = 1_000_000
"""The greatest value of that."""
REFRESH_S_DEFAULT: Final = 2
"""Seconds between two looks for a newer state of a lane."""
REFRESH_S_MAX: Final = 3_600
"""The greatest value of that."""


@dataclass(frozen=True, slots=True)
class DryRunSettings:
    """`[transports.dry-run]`. Raises ``ValueError`` for a value out of range."""

    per_second: int = PER_SECOND_DEFAULT
    """Requests that are answered in a second."""
    waiting_max: int = WAITING_MAX_DEFAULT
    """Requests that may wait behind one of the same partition; with more of them it is refused."""
    refresh_seconds: int = REFRESH_S_DEFAULT
    """Seconds between two looks for a newer state of a lane."""

    def __post_init__(self) -> None:
        for name, high in (
            ("per_second", PER_SECOND_MAX),
            ("waiting_max", WAITING_MAX_MAX),
            ("refresh_seconds", REFRESH_S_MAX),
        ):
            if not 1 <= getattr(self, name) <= high:
                raise ValueError(f"{name}: expected 1 to {high}, found {getattr(self, name)}")


class DryRunPlugin:
    """The hooks of the transport; ``open_standings`` returns the states that are asked."""

    def __init__(self, open_standings: Callable[[DryRunSettings], Standings]) -> None:
        self._open = open_standings

    @hookimpl
    def validator_manifest(self) -> Manifest:
        return Manifest(NAME, __version__, API_VERSION, DryRunSettings)

    @hookimpl
    def validator_transports(self, config: DryRunSettings) -> Iterator[Transport]:
        def run(context: TransportContext) -> None:
            Service(context, Answerer(self._open(config)), config).run()

        yield Transport(NAME, run, cursors=True, own=own_topics())


def dry_run_plugin(open_standings: Callable[[DryRunSettings], Standings]) -> Plugin:
    """Return the plugin as the registry returns installed ones."""
    found = Found("validator.transports", NAME, __name__, DISTRIBUTION, __version__, __file__)
    return register(found, DryRunPlugin(open_standings))


def own_topics() -> tuple[OwnTopic, ...]:
    requests, answers = DRY_RUN_TOPICS
    return (
        OwnTopic(
            requests, TopicForm(request_format(), lambda value: decode_request(value).lane.encode(), RECORD_BYTES_MAX)
        ),
        OwnTopic(
            answers,
            TopicForm(
                answer_format(),
                lambda value: decode_answer(value).correlation,
                DRY_RUN_ANSWER_BYTES_MAX,
                columns=("lane", "correlation", "partition", "offset", "executed_block", "complete", "refused"),
            ),
        ),
    )


@dataclass(slots=True)
class Service:
    """One run of the transport. ``clock`` is in seconds, ``pause`` waits for some of them."""

    context: TransportContext
    answerer: Answerer
    settings: DryRunSettings
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _free_at_s: float = field(default=float("-inf"))
    """When the next request may be answered without exceeding the rate."""

    def run(self) -> None:
        """Answer requests until the context says to stop."""
        with closing(self.context.reader([DRY_RUN_REQUESTS])) as reader:
            reader.seek(self._starts(reader))
            while not self.context.stopping:
                if requests := self._take(reader):
                    self._answer(requests, reader)

    def _starts(self, reader: OutputReader) -> dict[tuple[str, int], int]:
        """Return where to begin: after the last answered request, or at the first one of a topic that was made again."""
        starts = {}
        for place, end in reader.ends().items():
            cursor = self.context.cursor(_cursor(place[1]))
            if cursor is not None and int(cursor) <= end:
                starts[place] = int(cursor)
        return starts

    def _take(self, reader: OutputReader) -> list[OutputRecord]:
        """Return the requests that are there, waiting for the first one, and for the rate."""
        while (left_s := self._free_at_s - self.clock()) > 0:
            if self.context.stopping:
                return []
            self.pause(min(left_s, WAIT_S))
        taken: list[OutputRecord] = []
        size = 0
        while len(taken) < self._requests_max and size < REQUEST_BYTES_PER_COMMIT_MAX:
            record = reader.receive(0 if taken else WAIT_S)
            if record is None:
                break
            taken.append(record)
            size += len(record.value)
        return taken

    def _answer(self, requests: list[OutputRecord], reader: OutputReader) -> None:
        self._free_at_s = self.clock() + len(requests) / self.settings.per_second
        ends = reader.ends()
        answers, cursors = [], {}
        for topic, partition, offset, _, value in requests:
            if self.context.stopping:  # the next run answers the rest
                break
            waiting = ends[topic, partition] - offset - 1
            answer = self.answerer.answer(
                value, partition, offset, waiting=waiting, waiting_max=self.settings.waiting_max
            )
            answers.append((DRY_RUN_ANSWERS, decode_answer(answer).correlation, answer))
            cursors[_cursor(partition)] = b"%d" % (offset + 1)
        if answers:
            self.context.commit(answers, cursors)

    @property
    def _requests_max(self) -> int:
        return min(REQUESTS_PER_COMMIT_MAX, self.settings.per_second)


def _cursor(partition: int) -> str:
    return f"requests.{partition}"
