# SPDX-License-Identifier: Apache-2.0
"""Simulated chains of protocols whose model keeps channels, requests and paras in the conformance format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

from validator.simulate.chain import Judged, SimulatedChain
from validator.simulate.results import Json
from validator.simulate.sessions import SessionTraffic
from validator.simulate.settings import SimulationSettings

DOWNWARD_BYTES_MAX: Final = 120
"""Limit on the payload of the relay chain's own downward messages."""
GONE_PERCENT: Final = 2
"""Percentage of these messages that go to a para that has left."""
SLEEPY_EVERY: Final = 4
"""One para in this many seldom has a candidate, so that messages to it pile up."""
SLEEPY_PERCENT: Final = 12
LIVELY_PERCENT: Final = 85


def is_sleepy(para: int) -> bool:
    """Return whether a para seldom has a candidate."""
    return para % SLEEPY_EVERY == 0


class Model(Protocol):
    """A naive model of a protocol; its methods are called in the order of a block's phases."""

    pending: list[Json]

    @property
    def paras(self) -> Collection[int]:
        """Return the registered paras."""

    def begin_block(self, block: int, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin a block and return a result for each inclusion, then for each timeout."""

    def downward(self, para: int, msg: str) -> Any:
        """Queue a downward message of the relay chain, which always succeeds."""

    def session_change(self, change: Json) -> None:
        """End the session: ``outgoing``, ``onboarding``, ``new_config``."""


class Requests(Protocol):
    """Makes channel requests."""

    def play(self, *, breaks: bool) -> Judged | None:
        """Return the next request and the model's result, or None if there is nothing to request."""


class Candidates(Protocol):
    """Makes candidates."""

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate, the model's result, and the error kinds that it is made to cause; None for no candidate."""


class ModelledChain(SimulatedChain):
    """A simulated chain made of a model and makers of requests and candidates, which a subclass sets in its constructor."""

    protocol: ClassVar[str]
    limits: ClassVar[Mapping[str, int]]
    """The limits that a chain starts with."""
    changes: ClassVar[Mapping[str, tuple[int, ...]]]
    """The values that session changes may set limits to."""
    model: Model
    channels: Requests
    traffic: Candidates

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.sessions = SessionTraffic(settings, self.draws, self.changes)

    def chain(self) -> Json:
        """Return the chain's complete configuration."""
        return {
            "lane": self.settings.lane,
            "protocol": self.protocol,
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": dict(self.limits),
            "genesis_paras": self.sessions.genesis,
        }

    def paras(self) -> list[int]:
        """Return the registered paras, ascending."""
        return sorted(self.model.paras)

    def pending(self) -> list[Json]:
        """Return the pending candidates."""
        return self.model.pending

    def begin_block(self, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin the block."""
        return self.model.begin_block(self.block, included, timed_out)

    def requests(self) -> Iterator[Judged]:
        """Make valid and invalid requests."""
        for _ in range(self.draws.count(self.settings.requests_per_100_blocks)):
            played = self.channels.play(breaks=self.breaks())
            if played is not None:
                yield played

    def downward(self) -> Iterator[Judged]:
        """Make downward messages of the relay chain, some of them to paras that have left."""
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            gone = self.draws.one_of(self.sessions.gone) if self.draws.percent(GONE_PERCENT) else None
            para = self.draws.choice(self.paras()) if gone is None else gone
            message = self.draws.hex(self.draws.randrange(DOWNWARD_BYTES_MAX))
            self.model.downward(para, message)
            yield {"para_id": para, "msg": message}, {"ok": True}

    def candidates(self) -> Iterator[tuple[Json, Json, tuple[str, ...]]]:
        """Make valid and invalid candidates."""
        for para in self.producers():
            played = self.traffic.play(para, breaks=self.breaks())
            if played is not None:
                yield played

    def producers(self) -> list[int]:
        """Return the paras that have a candidate in this block: each at most one, and none while another is pending."""
        busy = [item["candidate"]["para_id"] for item in self.pending()]
        awake = [
            para
            for para in self.paras()
            if para not in busy and self.draws.percent(SLEEPY_PERCENT if is_sleepy(para) else LIVELY_PERCENT)
        ]
        return self.draws.sample(awake, min(self.settings.candidates_per_block, len(awake)))

    def session_change(self) -> Json | None:
        """End the session if this is its last block."""
        if not self.sessions.end_after(self.block):
            return None
        change = self.sessions.change(self.model.paras)
        self.model.session_change({**change, "new_config": change["limits"]})
        return change
