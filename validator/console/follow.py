# SPDX-License-Identifier: Apache-2.0
"""Reads the topics into the model, in one thread, and counts in another how far lanes are behind; reads the checkpoint when somebody asks.

It reads as any consumer does: committed records, no consumer group, nothing is written. If Kafka is away, the model keeps what it has, and
reading is tried again.
"""

from __future__ import annotations

import math
import time
import traceback
from collections import OrderedDict
from contextlib import ExitStack
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from validator.ask.state import document, restore, stored_lanes
from validator.console.limits import (
    JOURNEYS_AGAIN_S,
    LAG_INTERVAL_S,
    LAG_SHARE_MAX,
    LARGE_RECORDS_TAIL,
    RECORDS_TAIL,
    STATE_AGE_S,
    VERDICTS_MAX,
)
from validator.console.model import COMPACTED, LARGE, TAILED, VERDICTS
from validator.errors import Unavailable, UserError
from validator.job.lag import Lag, lags
from validator.kafka.reader import TopicReader
from validator.kafka.retry import ANSWER_S_MAX
from validator.kafka.settings import SPARING, WHOLE
from validator.lanes.configured import configured_codec, job_directory
from validator.messages import JOURNEYS
from validator.plugin.pack import use_artefacts
from validator.waiting import FOLLOWER
from validator.web.limits import STOP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from validator.ask.state import RestoredState
    from validator.config import Config
    from validator.console.model import Json, Model
    from validator.kafka.settings import Reading


POLL_S: Final = 0.2
"""Seconds that one round over the topics waits for verdicts."""
FIRST_POLL_S: Final = 0.01
"""The same before everything has been read once, when other topics may have much to read."""


class Follower:
    """Keeps a model up to date until it is stopped. Creating it connects, and raises `UserError` if that fails.

    ``stale_since_ms`` is Unix time from which on Kafka has not answered, None while it does; ``caught_up`` is set once all records
    of the time of the start have been read; ``say`` takes a line for the log.
    """

    def __init__(self, config: Config, model: Model, say: Callable[[str], None]) -> None:
        self.stale_since_ms: int | None = None
        self.problem = ""
        self.caught_up = Event()
        self.lags: dict[str, Lag] = {}
        self._config, self._model, self._say = config, model, say
        self._stopping = Event()
        self._threads = [Thread(target=self._read, daemon=True), Thread(target=self._count, daemon=True)]
        with ExitStack() as stack:
            self._readers = [
                stack.enter_context(self._reader(topics, tail, reading))
                for topics, tail, reading in (
                    ((VERDICTS,), VERDICTS_MAX, WHOLE),
                    (COMPACTED, None, WHOLE),
                    (TAILED, RECORDS_TAIL, WHOLE),
                    (LARGE, LARGE_RECORDS_TAIL, SPARING),
                )
            ]
            self._open = stack.pop_all()
        self._look_for_messages_s = 0.0

    def start(self) -> None:
        """Begin to read."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop reading and close the connections."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_S + ANSWER_S_MAX)
        if not self._threads[0].is_alive():
            self._open.close()

    def _reader(self, topics: Sequence[str], tail: int | None, reading: Reading) -> TopicReader:
        config = self._config
        return TopicReader(config.kafka, config.topics.prefix, topics, tail=tail, reading=reading)

    def _read(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self._look_for_messages()
                for number, reader in enumerate(self._readers):
                    wait_s = 0 if number else POLL_S if self.caught_up.is_set() else FIRST_POLL_S
                    self._model.take(reader.poll(wait_s))
                if all(reader.at_end for reader in self._readers):
                    self.caught_up.set()
                failures, self.stale_since_ms = 0, None
            except UserError as error:
                self._failed(error)
                failures += 1
                self._stopping.wait(FOLLOWER.after(failures))
            except Exception:  # noqa: BLE001 - the pages stay, and say since when they are old
                self._failed(UserError("the console has stopped reading because of a bug: its log has the traceback"))
                self._say(traceback.format_exc())
                return

    def _look_for_messages(self) -> None:
        """Begin to read the topic of messages once a job has made it."""
        if not self._model.has_messages or time.monotonic() < self._look_for_messages_s:
            return
        try:
            reader = self._reader((JOURNEYS,), None, WHOLE)
        except Unavailable:
            raise
        except UserError:
            self._look_for_messages_s = time.monotonic() + JOURNEYS_AGAIN_S
            return
        self._readers.append(self._open.enter_context(reader))
        self._look_for_messages_s = math.inf

    def _failed(self, error: UserError) -> None:
        if self.stale_since_ms is None:
            self.stale_since_ms = int(time.time() * 1000)
            self._say(str(error))
        self.problem = str(error)

    def _count(self) -> None:
        """Count again and again what each lane has not consumed, with pauses that leave the machine to others."""
        config = self._config
        checkpoint = job_directory(config) / "checkpoint"
        codec = configured_codec(config)
        while not self._stopping.is_set():
            began = time.monotonic()
            with self._model.lock:
                parked = {name: lane.parked for name, lane in self._model.lanes.items() if lane.parked is not None}
                lanes = list(self._model.lanes)
            try:
                self.lags = lags(config.kafka, config.topics.prefix, codec, lanes, checkpoint, parked)
            except UserError:
                self.lags = {}  # the other thread says that Kafka is away
            except Exception:  # noqa: BLE001 - the pages show everything else
                self.lags = {}
                self._say(traceback.format_exc())
                return
            self._stopping.wait(max(LAG_INTERVAL_S, (time.monotonic() - began) / LAG_SHARE_MAX))


class StoredLanes:
    """Reads one checkpoint at a time, in a separate process, and keeps the last lane for `STATE_AGE_S`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = Lock()
        self._kept: OrderedDict[str, tuple[float, RestoredState]] = OrderedDict()

    def para(self, lane: str, para: int) -> Json:
        """Return what `validator state show --para` shows. Raises `UserError`: no checkpoint, no such lane or para."""
        if not self._lock.acquire(blocking=False):
            raise UserError("the checkpoint is being read for another page: try again in some seconds")
        try:
            return document(self._lane(lane), para)
        finally:
            self._lock.release()

    def _lane(self, lane: str) -> RestoredState:
        found = self._kept.get(lane)
        if found is not None and time.monotonic() - found[0] < STATE_AGE_S:
            return found[1]
        use_artefacts(self._config.plugins.artefacts)
        self._kept.clear()  # a lane may be large
        directory = job_directory(self._config)
        with stored_lanes(directory, [lane]) as stored:
            restored = restore(stored, lane, directory)
        self._kept[lane] = time.monotonic(), restored
        return restored
