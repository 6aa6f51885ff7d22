# SPDX-License-Identifier: Apache-2.0
"""Channel requests and session changes of a simulated chain. Channels open and close; paras join and leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from validator.protocols.router.simulation.broken_requests import WAYS, accept_request, close_request, init_request
from validator.protocols.router.simulation.limits import BUDGET, CHANGES, FIRST_CHANGE, LIMITS, limits_name
from validator.protocols.router.simulation.model import Channel, NaiveRouter
from validator.protocols.router.simulation.topology import FIRST_MADE_UP_PARA, channels_to_hubs
from validator.simulate import Draws, Json, SimulationSettings

IGNORED_SHARE: Final = 0.12  # of requests; nobody accepts these, so they expire
NARROW_SHARE: Final = 0.3  # of channels, with few places and small messages
CLOSING_SHARE: Final = 0.08  # of requests
LEAVING_SHARE: Final = 0.3  # of sessions; half of the leavers request it, half are removed by the session change
MOST_REQUESTS_IN_A_BLOCK: Final = 12
MOST_PLANNED_PER_PARA: Final = 8
WARM_UP_SESSIONS: Final = 8  # short sessions at the start, in which the channels are opened
WARM_UP_SESSION_BLOCKS: Final = 10


class ChannelTraffic:
    """Opens the channels of a topology step by step, closes some, and makes paras join and leave."""

    def __init__(
        self, settings: SimulationSettings, router: NaiveRouter, rng: Draws, paras: list[int], plan: list[Channel]
    ) -> None:
        self.settings = settings
        self.router = router
        self.rng = rng
        self.hubs = paras[:5]
        self.plan = list(plan)
        self.wanted_paras = len(paras)
        self.next_para = max(FIRST_MADE_UP_PARA, *(para + 1 for para in paras))
        self.leaver: int | None = None
        self.sessions = 0
        self.blocks_of_session = 0
        self.ignored: set[Channel] = set()
        self.changes: Mapping[str, tuple[int, ...]] = CHANGES[limits_name(settings)]
        self.gone: list[int] = []
        self.seen: dict[str, int] = dict.fromkeys(WAYS, 0)

    def count(self) -> int:
        """Return how many requests a block has. It has more while most channels are not open yet."""
        ordinary = self.rng.count(self.settings.requests_per_100_blocks)
        if len(self.router.channels) * 2 >= len(self.plan):
            return ordinary
        missing = len(self.plan) - len(self.router.channels) - len(self.router.requests)
        return ordinary + max(
            0, min(max(MOST_REQUESTS_IN_A_BLOCK, len(self.plan) // 20), 3 * missing // self._session_length())
        )

    def _session_length(self) -> int:
        length = self.settings.session_length_blocks
        return length if self.sessions >= WARM_UP_SESSIONS else min(WARM_UP_SESSION_BLOCKS, length)

    def session_ends(self) -> bool:
        """Return whether this block is the last of its session. Call it once per block."""
        self.blocks_of_session += 1
        if self.blocks_of_session < self._session_length():
            return False
        self.blocks_of_session = 0
        self.sessions += 1
        return True

    def request(self) -> Json | None:
        """Return the next request, or None if there is nothing to request."""
        if self.leaver is not None:
            leaver, self.leaver = self.leaver, None
            return {"kind": "schedule_para_cleanup", "para_id": leaver}
        if self.rng.random() < self.settings.violation_share:
            return self._break()
        chance = self.rng.random()
        if chance < CLOSING_SHARE:
            open_channels = [pair for pair in sorted(self.router.channels) if pair not in self.router.closing]
            if open_channels:
                pair = self.rng.choice(open_channels)
                return close_request(self.rng.choice(pair), pair)
        return (self._accept() or self._open()) if self.rng.random() < 0.5 else (self._open() or self._accept())

    def note(self, result: Json) -> None:
        """Record the verdict, so that rules not yet broken come first."""
        if not result["ok"]:
            kind = result["error"]["kind"]
            self.seen[kind] = self.seen.get(kind, 0) + 1

    def session_change(self) -> Json:
        """Return the session change at the end of this block."""
        outgoing: list[int] = []
        stable = [para for para in sorted(self.router.kinds) if para not in self.hubs]
        if len(stable) > 3 and self.rng.random() < LEAVING_SHARE:
            leaver = self.rng.choice(stable)
            if self.rng.random() < 0.5:
                outgoing.append(leaver)
            else:
                self.leaver = leaver  # requests its cleanup in the next session
        leaving = sorted({*outgoing, *self.router.outgoing})
        onboarding: list[Json] = []
        if len(self.router.kinds) - len(leaving) < self.wanted_paras and self.rng.random() < 0.6:
            onboarding.append(self._newcomer())
        self.gone.extend(para for para in leaving if para in self.router.kinds)
        if len(self.plan) > MOST_PLANNED_PER_PARA * self.wanted_paras:  # forget the channels of paras that never return
            known = {*self.router.kinds, *self.gone[-10:], *(para["para_id"] for para in onboarding)}
            self.plan = [pair for pair in self.plan if pair[0] in known and pair[1] in known]
        return {"outgoing": outgoing, "onboarding": onboarding, "new_config": self.new_config()}

    def new_config(self) -> dict[str, int] | None:
        """Return the limits that a session change sets."""
        changes = self.changes
        if self.settings.configuration_changes_per_100_sessions and self.sessions == 1:
            return dict(FIRST_CHANGE[limits_name(self.settings)])
        if self.router.config[BUDGET] == 0:  # one session without dispatch is enough
            return {BUDGET: changes[BUDGET][0]}
        if self.rng.random() * 100 >= self.settings.configuration_changes_per_100_sessions:
            return None
        names = self.rng.sample(sorted(changes), self.rng.randint(1, 3))
        return {name: self.rng.choice(changes[name]) for name in sorted(names)}

    def _newcomer(self) -> Json:
        if self.gone and self.rng.random() < 0.4:  # an offboarded para returns
            para = self.gone.pop(0)
        else:
            para, self.next_para = self.next_para, self.next_para + 1
            self.plan.extend(channels_to_hubs(para, self.hubs, self.rng))
        kind = "parathread" if self.rng.random() < 0.2 else "parachain"
        return {"para_id": para, "kind": kind, "balance": genesis_balance(self.settings, self.rng)}

    def _open(self) -> Json | None:
        config, deposit = self.router.config, self.router.config["hrmp_sender_deposit"]
        outbound = self._channel_counts()[0]
        for _ in range(20):
            pair = self.rng.choice(self.plan)
            sender, recipient = pair
            known = pair in self.router.channels or pair in self.router.requests
            if known or sender not in self.router.kinds or not self.router.is_valid(recipient):
                continue
            if outbound.get(sender, 0) >= self.router.channel_limit(sender, "outbound"):
                continue
            if not self.router.can_reserve(sender, deposit):
                continue
            self.ignored.discard(pair)
            if self.rng.random() < IGNORED_SHARE:
                self.ignored.add(pair)
            places, size = config["hrmp_channel_max_places"], config["hrmp_channel_max_message_size"]
            if self.rng.random() < NARROW_SHARE:
                places, size = min(places, self.rng.randint(1, 3)), min(size, self.rng.randint(100, 1300))
            return init_request(sender, recipient, places, size)
        return None

    def _accept(self) -> Json | None:
        deposit = self.router.config["hrmp_recipient_deposit"]
        inbound = self._channel_counts()[1]
        for pair in sorted(self.router.requests):
            recipient = pair[1]
            if self.router.requests[pair]["confirmed"] or pair in self.ignored:
                continue
            room = inbound.get(recipient, 0) < self.router.channel_limit(recipient, "inbound")
            if room and self.router.can_reserve(recipient, deposit):
                return accept_request(pair)
        return None

    def _channel_counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return, by para, how many channels and requests count against the limits of senders and of recipients."""
        outbound = dict(self.router.open_request_count)
        inbound: dict[int, int] = {}
        for (_, recipient), request in self.router.requests.items():
            inbound[recipient] = inbound.get(recipient, 0) + request["confirmed"]
        for sender, recipient in self.router.channels:
            outbound[sender] = outbound.get(sender, 0) + 1
            inbound[recipient] = inbound.get(recipient, 0) + 1
        return outbound, inbound

    def _break(self) -> Json | None:
        kinds = self.rng.sample(list(WAYS), len(WAYS))
        if self.rng.random() < 0.5:
            kinds.sort(key=lambda kind: self.seen[kind])
        for kind in kinds:
            ways = self.rng.sample(WAYS[kind], len(WAYS[kind]))
            for way in ways:
                request = way(self.router, self.rng)
                if request is not None:
                    return request
        return None


def genesis_balance(settings: SimulationSettings, rng: Draws) -> int:
    """Return a para's initial balance: mostly large, sometimes exactly one deposit or less."""
    deposit = LIMITS[limits_name(settings)]["hrmp_sender_deposit"]
    return rng.choice((deposit // 2, deposit, deposit * 3)) if rng.random() < 0.12 else deposit * 100
