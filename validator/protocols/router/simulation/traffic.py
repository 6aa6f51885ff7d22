# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain: its records block by block, and the naive model's verdicts on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validator.protocols.router.simulation.candidates import CHEAP_BYTES, CandidateTraffic, Upward
from validator.protocols.router.simulation.history import rules_of_history
from validator.protocols.router.simulation.later_requests import request_record
from validator.protocols.router.simulation.later_traffic import (
    SPECIAL_BYTES_MAX,
    LaterCandidateTraffic,
    LaterChannelTraffic,
    later_downward,
)
from validator.protocols.router.simulation.limits import BUDGET, LIMITS, limits_name
from validator.protocols.router.simulation.model import NaiveRouter
from validator.protocols.router.simulation.payloads import DOWNWARD, UPWARD, draw_size
from validator.protocols.router.simulation.requests import ChannelTraffic, genesis_balance
from validator.protocols.router.simulation.topology import recorded_channels, topology
from validator.simulate import Json, Judged, SimulatedBlock, SimulatedChain, SimulationSettings


class RouterSimulation(SimulatedChain):
    """One simulated chain under the Router: `router` is the model behind it."""

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        rng = self.draws
        self.config = dict(LIMITS[limits_name(settings)])
        self.rules = rules_of_history(settings, rng) if settings.history else []
        whose = "polkadot" if settings.topology is None else settings.topology
        count = settings.paras
        if count is None:
            recorded = {para for pair in recorded_channels(whose) for para in pair}
            count = max(len(recorded), settings.candidates_per_block * 11 // 10)
        paras, plan = topology(whose, count, rng, settings.channels_per_para)
        self.genesis_paras: list[Json] = []
        for para in sorted(paras):
            kind = "parathread" if para not in paras[:5] and rng.random() < 0.08 else "parachain"
            balance = (
                genesis_balance(settings, rng) if para not in paras[:5] else 100 * self.config["hrmp_sender_deposit"]
            )
            self.genesis_paras.append({"para_id": para, "kind": kind, "balance": balance})
        largest = SPECIAL_BYTES_MAX if settings.history else UPWARD[-1]
        self.upward = Upward(rng, self.config[BUDGET], settings.messages_per_round, largest)
        self.router = NaiveRouter(
            self.config,
            self.genesis_paras,
            ump_weights=self.upward.weights,
            ump_default_weight=self.upward.default_weight,
            ump_failing_messages=self.upward.failing,
            notifications=settings.notifications,
            enactment=settings.enactment,
            unlimited_balances=settings.unlimited_balances,
            rules=self.rules,
        )
        candidates, requests = CandidateTraffic, ChannelTraffic
        if settings.history:
            candidates, requests = LaterCandidateTraffic, LaterChannelTraffic
        self.traffic = candidates(settings, self.router, rng, self.upward)
        self.large_downward = False  # whether one has been refused
        self.channels = requests(settings, self.router, rng, paras, plan)
        self.traffic.new_session()

    def chain(self) -> Json:
        """Return the lane's full configuration: all that a Router needs to reach the same verdicts; ``rules`` if they change."""
        return {
            "lane": self.settings.lane,
            "protocol": "router",
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "hrmp_notifications": self.settings.notifications,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": self.config,
            "genesis_paras": self.genesis_paras,
            "ump_weights": self.upward.weights,
            "ump_default_weight": self.upward.default_weight,
            "ump_failing_messages": self.upward.failing,
            **({"rules": self.rules} if self.rules else {}),
        }

    def paras(self) -> list[int]:
        """Return the paras that are registered."""
        return sorted(self.router.kinds)

    def pending(self) -> list[Json]:
        """Return the candidates that wait for inclusion."""
        return self.router.pending

    def begin_block(self, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin the block."""
        return self.router.begin_block(self.block, included, timed_out)

    def requests(self) -> Iterator[Judged]:
        """Make requests that open the channels of the plan, close some, and break rules."""
        for _ in range(self.channels.count()):
            request = self.channels.request()
            if request is not None:
                result = self.router.request(request)
                self.channels.note(result)
                yield request_record(request), result

    def downward(self) -> Iterator[Judged]:
        """Make messages of recorded sizes; some are too large, some go to unknown paras."""
        if self.settings.history:
            for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
                for later in later_downward(self.router, self.draws, breaks=self.breaks()):
                    yield later, self.router.downward(later)
            return
        limit = self.router.config["max_downward_message_size"]
        paras = self.paras()
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            para = self.draws.choice(paras)
            size = draw_size(self.draws, DOWNWARD, limit)
            if self.breaks():
                # With a large limit the record is large, so break it rarely; else send to an unknown para (accepted).
                if limit <= CHEAP_BYTES or not self.large_downward or self.draws.random() < 0.1:
                    size = limit + 1
                    self.large_downward = True
                else:
                    para = 60_000 + self.draws.randrange(10)
            message: Json = {"para_id": para, "msg": self.draws.hex(size)}
            yield message, self.router.downward(message)

    def candidates(self) -> Iterator[tuple[Json, Json, tuple[str, ...]]]:
        """Make good and broken candidates."""
        for para in self.traffic.producers():
            candidate, broken = self.traffic.candidate(para)
            if candidate is not None:
                result = self.router.candidate(candidate)
                self.traffic.note(result)
                yield candidate, result, tuple(broken)

    def dispatched(self) -> list[list[Any]]:
        """Return the messages that the block's dispatch round handles."""
        return self.router.dispatch_round()

    def session_change(self) -> Json | None:
        """End the session after its last block."""
        if not self.channels.session_ends():
            return None
        change = self.channels.session_change()
        self.router.session_change(change)
        self.traffic.new_session()
        return change


def simulate(settings: SimulationSettings) -> Iterator[SimulatedBlock]:
    """Yield the blocks of a simulated chain; `RouterSimulation` also returns its lane's configuration."""
    return RouterSimulation(settings).blocks()
