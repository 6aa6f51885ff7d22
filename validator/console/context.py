# SPDX-License-Identifier: Apache-2.0
"""What every page needs: the console's parts, and the reader's query."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from validator import __version__
from validator.config import DEFAULT_PROTOCOL
from validator.console.model import Model
from validator.console.names import LaneLink
from validator.console.rendering import clock
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.sentences import plural

if TYPE_CHECKING:
    from validator.config import Config
    from validator.console.follow import Follower, StoredLanes
    from validator.console.letters import Letters
    from validator.console.model import LaneModel
    from validator.job.lag import Lag
    from validator.transports.lines import Fed

Query = Mapping[str, str]


class Missing(UserError):
    """There is no such page; the message says what there is."""


class Page(NamedTuple):
    """A template and what it shows."""

    template: str
    context: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsoleContext:
    """The parts of a running console."""

    config: Config
    model: Model
    follower: Follower
    stored: StoredLanes
    letters: Letters
    read_only: bool = False
    fed: Mapping[str, Fed] = field(default_factory=dict)
    """The lanes whose blocks a transport sends."""

    @property
    def version(self) -> tuple[object, ...]:
        """What changes whenever a page may look different."""
        return self.model.version, self.follower.stale_since_ms, id(self.follower.lags)

    def lag(self, lane: str) -> Lag | None:
        """Return how far a lane is behind, None if it has not been counted."""
        return self.follower.lags.get(lane)

    def lane(self, name: str) -> LaneModel:
        """Return a lane. Raises `Missing`."""
        found = self.model.lanes.get(name)
        if found is None:
            known = ", ".join(self.model.lanes) or "none yet"
            raise Missing(f"There is no lane {name!r} here; lanes: {known}.")
        return found

    def link(self, lane: str) -> LaneLink:
        """Return the path of a lane's pages, with the names of its paras."""
        chain = self.config.chains.get(lane)
        return LaneLink.of(lane, {} if chain is None else chain.names)

    def protocol(self, lane: str) -> str:
        """Return the protocol of a lane."""
        chain = self.config.chains.get(lane)
        return DEFAULT_PROTOCOL if chain is None else chain.protocol

    def common(self, tab: str, lane: LaneModel | None = None) -> dict[str, Any]:
        """Return what the frame around every page shows. ``tab`` is the page that is marked as current."""
        with self.model.lock:
            names, letters = list(self.model.lanes), len(self.model.not_put_back())
        if lane is None and names:
            lane = self.model.lanes[names[0]]
        since = self.follower.stale_since_ms
        return {
            "tab": tab,
            "product_version": __version__,
            "lanes": names,
            "lane": lane,
            "link": LaneLink() if lane is None else self.link(lane.name),
            "lag": None if lane is None else self.lag(lane.name),
            "waits": None if lane is None else waits(lane, self.lag(lane.name)),
            "stale_since": None if since is None else clock(since),
            "stale_problem": self.follower.problem,
            "reading": not self.follower.caught_up.is_set(),
            "letters_open": letters,
            "read_only": self.read_only,
            "prefix": self.config.topics.prefix,
        }


def waits(lane: LaneModel, lag: Lag | None) -> str | None:
    """Return in words what a lane waits for; its last status is older than records that no job has read."""
    if lag is not None and lag.records:
        least = "" if lag.complete else "at least "
        return f"waiting for a job to read {least}{plural(lag.records, 'record')}"
    waiting: str | None = lane.status["waiting_for"] if lane.status else None
    return waiting


def now_ms() -> int:
    """Return Unix time."""
    return int(time.time() * 1000)


def number_of(query: Query, name: str) -> int | None:
    """Return a query's number, None if there is none. Raises `UserError` with the field's name."""
    text = query.get(name, "").strip().replace(",", "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or int(text) > U32_MAX:
        raise UserError(f"{name}: expected a number from 0 to {U32_MAX:,}, found {text[:40]!r}")
    return int(text)
