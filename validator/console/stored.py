# SPDX-License-Identifier: Apache-2.0
"""Parts of lanes from the job's checkpoint, read when somebody asks, and seldom."""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from validator.ask.state import document, restore, stored_lanes
from validator.console.limits import STATE_AGE_S
from validator.errors import UserError
from validator.lanes.configured import job_directory
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from validator.ask.state import RestoredState
    from validator.config import Config
    from validator.console.kept import Json


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
