# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain: its records block by block, and the naive model's verdicts on them, also where its rules change with height."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator_simulators import Draws, Json, Judged, SimulatedBlock, SimulatedChain, SimulationSettings, size_of
from validator_simulators.router.candidates import (
    CHEAP_BYTES,
    HUNTS_PER_SHARE,
    CandidateTraffic,
    Upward,
    Way,
    watermark_ahead,
)
from validator_simulators.router.chains import (
    BUDGET,
    DOWNWARD,
    HISTORY_CHANGES,
    LIMITS,
    LONG_DOWNWARD_EVERY,
    LONG_DOWNWARD_SIZE,
    UPWARD,
    draw_size,
    limits_name,
    recorded_channels,
    rules_of_history,
    topology,
)
from validator_simulators.router.later_rules import STANDS_FOR
from validator_simulators.router.model import Channel, NaiveRouter, messages_of, relay_parent_of
from validator_simulators.router.requests import ChannelTraffic, LaterRequests, genesis_balance, request_record

SPECIAL_BYTES_MAX: Final = 70
"""Size limit of heavy, weightless and failing upward messages; lowered limits of the chain do not keep these out."""
LATER_SHARE: Final = 0.4  # of requests
BROKEN_FACTOR: Final = 2
"""By this, requests of the later kinds break rules more often than others: they have many errors, and few blocks to meet them in."""
LEAVING_WITH_REQUESTS_SHARE: Final = 0.1  # of sessions
LEAVING_IN_TIME_SHARE: Final = 0.4
"""Share of sessions under message_queue in which a para without upward messages requests its cleanup, and may then send none."""
STANDING_SHARE: Final = 0.12  # of candidates, whose watermark is one that only the later rules allow
OVERWEIGHT_SHARE: Final = 0.08  # of candidates with upward messages; one of these is heavier than a round
SIGNALS_SHARE: Final = 0.5  # of candidates, where there are signals
UNPROCESSED_SHARE: Final = 0.7  # of candidates that need not process anything
LONGEST_BURST: Final = 8  # a downward queue that takes more messages than this is not filled


class LaterChannelTraffic(ChannelTraffic):
    """Requests of every kind, and session changes that set later limits and offboard paras with requests."""

    def __init__(
        self, settings: SimulationSettings, router: NaiveRouter, rng: Draws, paras: list[int], plan: list[Channel]
    ) -> None:
        super().__init__(settings, router, rng, paras, plan)
        self.later = LaterRequests(router, rng)
        self.changes = {**self.changes, **HISTORY_CHANGES}

    def request(self) -> Json | None:
        """Return the next request, or None if there is nothing to request."""
        if self.leaver is None and self.rng.random() < LATER_SHARE:
            request = self.later.rare() if self.rng.random() < HUNTS_PER_SHARE * self.settings.violation_share else None
            request = request or self.later.request(
                breaks=self.rng.random() < BROKEN_FACTOR * self.settings.violation_share
            )
            if request is not None:
                return request
        return super().request()

    def session_change(self) -> Json:
        """Return the session change at the end of this block; at times another para leaves, one with open requests."""
        change = super().session_change()
        router = self.router
        leaving = {*change["outgoing"], *router.outgoing}
        parties = {para for pair in router.requests for para in pair if para in router.kinds} - {*self.hubs, *leaving}
        if len(router.kinds) > 6 and parties and self.rng.random() < LEAVING_WITH_REQUESTS_SHARE:
            leaver = self.rng.choice(sorted(parties))
            change["outgoing"].append(leaver)
            self.gone.append(leaver)
            leaving.add(leaver)
        if self.leaver is None and router.has("message_queue") and self.rng.random() < LEAVING_IN_TIME_SHARE:
            paras = [para for para in sorted(router.kinds) if para not in {*self.hubs, *leaving}]
            self.leaver = self.rng.one_of([para for para in paras if not router.upward_waiting(para)])
        return change

    def new_config(self) -> dict[str, int] | None:
        """Return the limits that a session change sets: those of one session let a few downward messages fill a queue."""
        config = super().new_config()
        if not self.settings.configuration_changes_per_100_sessions:
            return config
        for_now = "max_downward_message_size"
        own: dict[str, int] = {}
        if self.sessions % LONG_DOWNWARD_EVERY == 0:
            own[for_now] = LONG_DOWNWARD_SIZE
        elif self.router.config[for_now] == LONG_DOWNWARD_SIZE:
            own[for_now] = self.changes[for_now][0]
        for key, general in STANDS_FOR.items():
            if self.router.limit(key) > self.router.config[general]:
                own[key] = self.changes[key][0]  # one session without these requests is enough
        return {**(config or {}), **own} or None


class LaterCandidateTraffic(CandidateTraffic):
    """Candidates that do what the later rules allow, and break them."""

    def __init__(self, settings: SimulationSettings, router: NaiveRouter, rng: Draws, upward: Upward) -> None:
        super().__init__(settings, router, rng, upward)
        self.ways |= {
            "HrmpWatermark/AheadRelayParent": ahead_or_behind,
            "UpwardMessages/IsOffboarding": sent_while_leaving,
        }
        self.ways = {kind: beside_signals(way) for kind, way in self.ways.items()} | SIGNAL_WAYS
        self.seen = dict.fromkeys(self.ways, 0)

    def producers(self) -> list[int]:
        """Return the paras that have a candidate in this block; the block's requests may have changed who may send to whom."""
        if self.router.has("forced_requests"):
            self.load_egress()
        return super().producers()

    def good(self, para: int) -> Json | None:
        """Return a candidate that breaks no rule, or None if the para can make none."""
        candidate = super().good(para)
        if candidate is None:
            return None
        messages = candidate["upward_messages"]
        if messages and self.router.has("message_queue") and self.rng.random() < OVERWEIGHT_SHARE:
            self._make_overweight(para, messages)
        if self._is_offboarding(para):
            candidate["upward_messages"] = []
        queue = self.router.dmq.get(para, [])
        if self.router.has("dmp_by_relay_parent") and queue:
            seen = queue[0]["sent_at"] <= relay_parent_of(self.router, candidate)
            if not seen and self.rng.random() < UNPROCESSED_SHARE:
                candidate["processed_downward_messages"] = 0
        if self.router.has("ump_signals"):
            signals = None
            if self.rng.random() < SIGNALS_SHARE:
                signals = self.rng.sample(self._signals(), self.rng.randrange(len(self._signals()) + 1))
            candidate["upward_messages"] = with_signals(candidate["upward_messages"], signals)
        return candidate

    def _signals(self) -> list[str]:
        """Return a signal of each kind in force; bytes behind a whole signal mean nothing."""
        select = "00" + self.rng.hex(2) + self.rng.choice(("", "", "aa"))
        if not self.router.has("approved_peer_signal"):
            return [select]
        return [select, peer_signal(self.rng.hex(self.rng.choice((0, 38, 63, 64))))]

    def _make_overweight(self, para: int, messages: list[str]) -> None:
        """Put a message that no round can take in the place of one of the messages, if the queue has room for it."""
        config, heavy = self.router.config, self.upward.heavy[-1]
        place = self.rng.randrange(len(messages))
        others = [*self.router.upward_waiting(para), *messages[:place], *messages[place + 1 :]]
        room = config["max_upward_queue_size"] - sum(map(size_of, others))
        if size_of(heavy) <= min(room, config["max_upward_message_size"]):
            messages[place] = heavy

    def watermark(self, para: int) -> tuple[int | None, int | None]:
        """Return relay parent and watermark; at times the watermark stays, or goes back with the relay parent (PR-06)."""
        last = self.router.watermarks.get(para)
        if last is not None and self.router.has("relaxed_watermark") and self.rng.random() < STANDING_SHARE:
            if self.router.has("watermark_may_stay") and self.rng.random() < 0.6:
                return None, last
            parent = max(0, last - self.rng.choice((0, 0, 1)))
            return parent, parent
        return super().watermark(para)

    def fill_up(self, candidate: Json) -> None:
        """Exhaust a limit, unless the para is about to leave."""
        if not self._is_offboarding(candidate["para_id"]):
            entries = candidate["upward_messages"]
            super().fill_up(candidate)
            if self.router.has("ump_signals"):
                filled = candidate["upward_messages"]
                if filled is entries:  # another limit is exhausted
                    return
                signals = entries[entries.index("") + 1 :] if "" in entries else None
                candidate["upward_messages"] = with_signals(filled, signals)

    def _is_offboarding(self, para: int) -> bool:
        return self.router.has("message_queue") and para in self.router.outgoing


def with_signals(messages: list[str], signals: list[str] | None) -> list[str]:
    """Return messages, none of them empty, then the separator and signals if there are any; a separator alone is legal, too."""
    return [message or "00" for message in messages] + ([] if signals is None else ["", *signals])


def peer_signal(peer: str) -> str:
    """Return the signal that approves a peer of at most 64 bytes."""
    size = size_of(peer)
    return "01" + (f"{4 * size:02x}" if size < 64 else "0101") + peer


def beside_signals(way: Way) -> Way:
    """Return a way to break a rule that leaves a candidate's signals alone."""

    def run(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
        if not router.has("ump_signals"):
            return way(router, rng, candidate, egress, cost)
        entries = candidate["upward_messages"]
        signals = entries[entries.index("") + 1 :] if "" in entries else None
        candidate["upward_messages"] = list(messages_of(router, candidate))
        broken = way(router, rng, candidate, egress, cost)
        candidate["upward_messages"] = with_signals(candidate["upward_messages"], signals)
        return broken

    return run


def undecodable_signal(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    """Put an entry behind the separator that is no signal of the kinds in force."""
    if not router.has("ump_signals"):
        return False
    wrong = ["", "00", "0001", "02" + rng.hex(3), "0104", peer_signal("aa" * 64)[:-2], "010501" + "aa" * 65]
    if not router.has("approved_peer_signal"):
        wrong.append(peer_signal(rng.hex(8)))
    signals = [rng.choice(wrong)]
    if router.has("approved_peer_signal"):
        signals = rng.choice((signals, ["000102", *signals], [*signals, "000102"]))
    candidate["upward_messages"] = with_signals(messages_of(router, candidate), signals)
    return True


def too_many_signals(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    """Signal more than there are kinds."""
    if not router.has("ump_signals"):
        return False
    signals = ["000000", "000001"]
    if router.has("approved_peer_signal"):
        signals = [*rng.choice((["000000", "0100"], ["0100", "000000"])), rng.choice(("000000", "0100", "ff"))]
    candidate["upward_messages"] = with_signals(messages_of(router, candidate), signals)
    return True


def duplicate_signal(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    """Signal a kind twice."""
    if not router.has("approved_peer_signal"):
        return False
    signals = rng.choice((["000000", "000001"], ["0100", peer_signal(rng.hex(4))]))
    candidate["upward_messages"] = with_signals(messages_of(router, candidate), signals)
    return True


SIGNAL_WAYS: Final[dict[str, Way]] = {
    "UmpSignals/Undecodable": undecodable_signal,
    "UmpSignals/TooMany": too_many_signals,
    "UmpSignals/Duplicate": duplicate_signal,
}


def sent_while_leaving(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    """Let a para that is scheduled for offboarding send an upward message."""
    if not router.has("message_queue") or candidate["para_id"] not in router.outgoing:
        return False
    candidate["upward_messages"] = [rng.hex(rng.randint(0, 8))]
    return True


def ahead_or_behind(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
    """Give a watermark after the relay parent, at times one that is also not after the last one: then the order of checks decides."""
    last = router.watermarks.get(candidate["para_id"])
    if last is None or last == 0 or rng.random() < 0.6:
        return watermark_ahead(router, rng, candidate, egress, cost)
    candidate["relay_parent_number"] = last - 1
    candidate["hrmp_watermark"] = last
    return True


def later_downward(router: NaiveRouter, rng: Draws, *, breaks: bool) -> Iterator[Json]:
    """Yield downward messages: one, or as many as fill a queue and one more."""
    limit = router.config["max_downward_message_size"]
    para = rng.choice(sorted(router.kinds))
    size = draw_size(rng, DOWNWARD, limit)
    count = 1
    if breaks and router.has("dmq_length_limit") and router.longest_downward_queue() <= LONGEST_BURST:
        count = router.longest_downward_queue() + 2 - min(1, len(router.dmq.get(para, [])))
    elif breaks and limit <= CHEAP_BYTES and rng.random() < 0.35:
        size = limit + 1
    elif breaks:
        para = 60_000 + rng.randrange(10)  # accepted until downward_needs_head
    for _ in range(count):
        yield {"para_id": para, "msg": rng.hex(size)}


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
