# SPDX-License-Identifier: Apache-2.0
"""Channel requests and session changes of a simulated chain. Channels open and close; paras join and leave.

A request that breaks a given rule is built from the model's state, and is None if the rule cannot be broken now. Requests of the later
kinds are drawn and tried on the model, which then forgets them; the one with the result met least so far is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from validator_simulators import Draws, Json, SimulationSettings
from validator_simulators.router.chains import (
    BUDGET,
    CHANGES,
    FIRST_CHANGE,
    FIRST_MADE_UP_PARA,
    LIMITS,
    channels_to_hubs,
    limits_name,
)
from validator_simulators.router.later_rules import REQUESTS, is_system
from validator_simulators.router.model import Channel, NaiveRouter, saved

Way = Callable[[NaiveRouter, Draws], Json | None]


def init_request(origin: int, recipient: int, max_places: int, max_message_size: int) -> Json:
    """Return a request to open a channel."""
    sizes = {"max_places": max_places, "max_message_size": max_message_size}
    return {"kind": "init_open_channel", "origin": origin, "recipient": recipient, **sizes}


def accept_request(channel: Channel) -> Json:
    """Return the recipient's acceptance of a request."""
    return {"kind": "accept_open_channel", "origin": channel[1], "sender": channel[0]}


def close_request(origin: int, channel: Channel) -> Json:
    """Return a request to close a channel."""
    return {"kind": "close_channel", "origin": origin, "channel": list(channel)}


def _any_para(router: NaiveRouter, rng: Draws) -> int:
    return rng.choice(sorted(router.kinds))


def _pair(router: NaiveRouter, rng: Draws) -> Channel:
    return rng.choice(sorted(router.kinds)), rng.choice(sorted(router.kinds))


def _of(channels: list[Channel], rng: Draws) -> Channel | None:
    return rng.choice(channels) if channels else None


def _init(router: NaiveRouter, rng: Draws, pair: Channel | None, places: int = 1, size: int = 1) -> Json | None:
    """Return a request for the pair. Half of them break a second rule, to test the order of the checks."""
    if pair is None:
        return None
    if rng.random() < 0.3:
        size = rng.choice((0, router.config["hrmp_channel_max_message_size"] + 1))
    elif rng.random() < 0.2:
        places = rng.choice((0, router.config["hrmp_channel_max_places"] + 1))
    return init_request(*pair, places, size)


def to_self(router: NaiveRouter, rng: Draws) -> Json | None:
    para = _any_para(router, rng)
    return _init(router, rng, (para, para))


def zero_places(router: NaiveRouter, rng: Draws) -> Json | None:
    return init_request(*_pair(router, rng), 0, rng.choice((0, 1)))


def too_many_places(router: NaiveRouter, rng: Draws) -> Json | None:
    limit = router.config["hrmp_channel_max_places"]
    return init_request(*_pair(router, rng), limit + rng.choice((1, 1, 7)), rng.choice((0, 1)))


def zero_size(router: NaiveRouter, rng: Draws) -> Json | None:
    return init_request(*_pair(router, rng), 1, 0)


def too_large_size(router: NaiveRouter, rng: Draws) -> Json | None:
    limit = router.config["hrmp_channel_max_message_size"]
    return init_request(*_pair(router, rng), 1, limit + rng.choice((1, 1, 100)))


def invalid_recipient(router: NaiveRouter, rng: Draws) -> Json | None:
    return _init(router, rng, (_any_para(router, rng), 70_000 + rng.randrange(1000)))


def already_exists(router: NaiveRouter, rng: Draws) -> Json | None:
    return _init(router, rng, _of(sorted(router.channels), rng))


def already_requested(router: NaiveRouter, rng: Draws) -> Json | None:
    return _init(router, rng, _of(sorted(router.requests), rng))


def _free_pairs(router: NaiveRouter, origins: list[int]) -> list[Channel]:
    pairs = [(origin, recipient) for origin in origins for recipient in sorted(router.kinds) if origin != recipient]
    return [pair for pair in pairs if pair not in router.channels and pair not in router.requests]


def outbound_limit(router: NaiveRouter, rng: Draws) -> Json | None:
    full = [
        para
        for para in sorted(router.kinds)
        if len(router.egress(para)) + router.open_request_count.get(para, 0) >= router.channel_limit(para, "outbound")
    ]
    return _init(router, rng, _of(_free_pairs(router, full[:3]), rng))


def poor_sender(router: NaiveRouter, rng: Draws) -> Json | None:
    poor = [
        para
        for para in sorted(router.kinds)
        if not router.can_reserve(para, router.config["hrmp_sender_deposit"])
        and len(router.egress(para)) + router.open_request_count.get(para, 0) < router.channel_limit(para, "outbound")
    ]
    pair = _of(_free_pairs(router, poor[:3]), rng)
    return None if pair is None else init_request(*pair, 1, 1)


def _unconfirmed(router: NaiveRouter) -> list[Channel]:
    return [pair for pair in sorted(router.requests) if not router.requests[pair]["confirmed"]]


def _inbound_full(router: NaiveRouter, para: int) -> bool:
    inbound = len(router.ingress(para)) + router.accepted_request_count.get(para, 0)
    return inbound >= router.channel_limit(para, "inbound")


def poor_recipient(router: NaiveRouter, rng: Draws) -> Json | None:
    deposit = router.config["hrmp_recipient_deposit"]
    poor = [
        p for p in _unconfirmed(router) if not router.can_reserve(p[1], deposit) and not _inbound_full(router, p[1])
    ]
    pair = _of(poor, rng)
    return None if pair is None else accept_request(pair)


def nothing_to_accept(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _pair(router, rng)
    return None if pair in router.requests else accept_request(pair)


def accepted_already(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _of([pair for pair in sorted(router.requests) if router.requests[pair]["confirmed"]], rng)
    return None if pair is None else accept_request(pair)


def inbound_limit(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _of([pair for pair in _unconfirmed(router) if _inbound_full(router, pair[1])], rng)
    return None if pair is None else accept_request(pair)


def not_a_party(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _of(sorted(router.channels), rng) or _pair(router, rng)
    origin = _any_para(router, rng)
    return None if origin in pair else close_request(origin, pair)


def nothing_to_close(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _pair(router, rng)
    return None if pair in router.channels else close_request(rng.choice(pair), pair)


def closing_already(router: NaiveRouter, rng: Draws) -> Json | None:
    pair = _of(sorted(router.closing), rng)
    return None if pair is None else close_request(rng.choice(pair), pair)


WAYS: Final[dict[str, list[Way]]] = {
    "OpenHrmpChannelToSelf": [to_self],
    "OpenHrmpChannelZeroCapacity": [zero_places],
    "OpenHrmpChannelCapacityExceedsLimit": [too_many_places],
    "OpenHrmpChannelZeroMessageSize": [zero_size],
    "OpenHrmpChannelMessageSizeExceedsLimit": [too_large_size],
    "OpenHrmpChannelInvalidRecipient": [invalid_recipient],
    "OpenHrmpChannelAlreadyExists": [already_exists],
    "OpenHrmpChannelAlreadyRequested": [already_requested],
    "OpenHrmpChannelLimitExceeded": [outbound_limit],
    "InsufficientBalance": [poor_sender, poor_recipient],
    "AcceptHrmpChannelDoesntExist": [nothing_to_accept],
    "AcceptHrmpChannelAlreadyConfirmed": [accepted_already],
    "AcceptHrmpChannelLimitExceeded": [inbound_limit],
    "CloseHrmpChannelUnauthorized": [not_a_party],
    "CloseHrmpChannelDoesntExist": [nothing_to_close],
    "CloseHrmpChannelAlreadyUnderway": [closing_already],
}


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


DRAWN: Final = 10
"""Number of requests from which one is chosen."""
OK: Final = "ok"
ERRORS_BY_STAGE: Final = {"waiting": "Queued", "processed": "AlreadyProcessed", "aside": "InsufficientWeight"}
"""What a request to service a message gets that does not give its weight."""


def request_record(request: Json) -> Json:
    """Return a request as a record: there ``index`` is the record's own, so that of an upward message is ``message_index``."""
    if request["kind"] != "service_overweight":
        return request
    return {("message_index" if name == "index" else name): value for name, value in request.items()}


class LaterRequests:
    """Makes requests of the later kinds, and requests to offboard a para that message_queue refuses."""

    def __init__(self, router: NaiveRouter, rng: Draws) -> None:
        self.router = router
        self.rng = rng
        self.met: Counter[tuple[str, str]] = Counter()  # by kind of request and of error

    def request(self, *, breaks: bool) -> Json | None:
        """Return a request that breaks a rule or none, or None if no drawn one is such.

        Without a rule to break, the kind is drawn first, so that kinds which nearly always succeed leave room for others.
        """
        kinds = [*REQUESTS, "schedule_para_cleanup"] if breaks else [self.rng.choice(list(REQUESTS))]
        if breaks and self.router.has("message_queue"):
            kinds += ["service_overweight"] * 3  # its errors need messages at different stages
        if not breaks and not any(self.router.has(feature) for feature in REQUESTS[kinds[0]]):
            return None
        found: dict[tuple[str, str], Json] = {}
        for _ in range(DRAWN):
            kind = self.rng.choice(kinds)
            make: Any = getattr(self, f"_{kind}")
            request = {"kind": kind, **make()}
            result = self._tried(request)
            if (result != OK) == breaks:
                found.setdefault((kind, result), request)
                if not breaks:
                    break
        if not found:
            return None
        least = min(found, key=lambda result: (self.met[result], *result))
        self.met[least] += 1
        return found[least]

    def rare(self) -> Json | None:
        """Return a request to service an upward message that gets an error not met yet, if the queue has a message for it now."""
        queue, kind = self.router.queue, "service_overweight"
        if queue is None:
            return None
        for para in sorted(queue.messages):
            for message in queue.messages[para]:
                result = ERRORS_BY_STAGE[message["stage"]]
                weight = self.router.upward_weight(message["msg"])
                if weight > 0 and not self.met[(kind, result)]:
                    self.met[(kind, result)] += 1
                    place = {"page": message["page"], "index": message["index"]}
                    return {"kind": kind, "para_id": para, **place, "weight_limit": weight - 1}
        return None

    def _tried(self, request: Json) -> str:
        """Return what the model says to a request, "ok" or a kind of error, and leave the model as it was."""
        router = self.router
        before = {
            **saved(router),
            "outgoing": list(router.outgoing),
            "serviced": list(router.serviced),
            "queue": deepcopy(router.queue) if request["kind"] == "service_overweight" else router.queue,
        }
        result = router.request(request)
        vars(router).update(before)
        return OK if result["ok"] else str(result["error"]["kind"])

    # -- plausible requests ---------------------------------------------------------------------------------------

    def _para(self) -> int:
        return self.rng.choice(sorted(self.router.kinds))

    def _system(self) -> int:
        """Return a system para, at times any para."""
        systems = [para for para in sorted(self.router.kinds) if is_system(para)]
        return self.rng.choice(systems) if systems and self.rng.random() < 0.9 else self._para()

    def _one_of(self, pairs: list[Channel]) -> Channel:
        """Return one of the pairs, at times any pair."""
        if pairs and self.rng.random() < 0.85:
            return self.rng.choice(pairs)
        return self._para(), self._para()

    def _cancel_open_request(self) -> Json:
        channel = self._one_of(sorted(self.router.requests))
        origin = self.rng.choice(channel) if self.rng.random() < 0.8 else self._para()
        return {"origin": origin, "channel": list(channel)}

    def _force_open_channel(self) -> Json:
        sender, recipient = self._one_of(sorted(self.router.requests) if self.rng.random() < 0.5 else [])
        places = self.rng.randint(1, self.router.config["hrmp_channel_max_places"])
        size = self.rng.randint(100, self.router.config["hrmp_channel_max_message_size"])
        if self.rng.random() < 0.1:
            places, size = self.rng.choice(((0, size), (places + 1000, size), (places, 0), (places, size + 1_000_000)))
        return {"sender": sender, "recipient": recipient, "max_places": places, "max_message_size": size}

    def _establish_system_channel(self) -> Json:
        return {"sender": self._system(), "recipient": self._system()}

    def _establish_channel_with_system(self) -> Json:
        """Connect a para to a system para, most often to one without channels or requests between the two."""
        taken = {frozenset(pair) for pair in (*self.router.channels, *self.router.requests)}
        origin = self._para()
        apart = [
            para
            for para in sorted(self.router.kinds)
            if is_system(para) and para != origin and frozenset((origin, para)) not in taken
        ]
        return {
            "origin": origin,
            "target": self.rng.choice(apart) if apart and self.rng.random() < 0.7 else self._system(),
        }

    def _poke_channel_deposits(self) -> Json:
        """Poke a channel, most often one whose deposits are not what they would be now."""
        router = self.router
        now = router.config["hrmp_sender_deposit"], router.config["hrmp_recipient_deposit"]
        stale = [
            pair
            for pair, channel in sorted(router.channels.items())
            if (channel["sender_deposit"], channel["recipient_deposit"])
            != ((0, 0) if any(map(is_system, pair)) else now)
        ]
        others = sorted(router.channels) + sorted(router.requests)
        sender, recipient = self._one_of(stale if stale and self.rng.random() < 0.7 else others)
        return {"sender": sender, "recipient": recipient}

    def _service_overweight(self) -> Json:
        """Service a message of the queue, most often one that was set aside; at times name none that is there, or too little weight."""
        queue = self.router.queue
        found = [] if queue is None else [(p, message) for p in sorted(queue.messages) for message in queue.messages[p]]
        if not found:
            return {"para_id": self._para(), "page": 0, "index": 0, "weight_limit": 0}
        stages = sorted({message["stage"] for _, message in found})
        stage = "aside" if "aside" in stages and self.rng.random() < 0.4 else self.rng.choice(stages)
        para, message = self.rng.choice([each for each in found if each[1]["stage"] == stage])
        page, index = message["page"], message["index"]
        weight_limit = self.router.upward_weight(message["msg"])
        chance = self.rng.random()
        if chance < 0.1:
            page += self.rng.randint(1, 3)
        elif chance < 0.2:
            index += self.rng.randint(1, 3)
        elif chance < 0.5:
            weight_limit = self.rng.randrange(weight_limit + 1)
        return {"para_id": para, "page": page, "index": index, "weight_limit": weight_limit}

    def _force_process_open(self) -> Json:
        return {}

    def _force_process_close(self) -> Json:
        return {}

    def _force_clean(self) -> Json:
        """Clean a para up, most often one with few channels: a chain without its hubs has nothing to say."""
        degree = Counter(para for pair in self.router.channels for para in pair)
        paras = [self._para() for _ in range(4)]
        return {"para_id": min(paras, key=lambda para: (degree[para], para))}

    def _schedule_para_cleanup(self) -> Json:
        """Offboard a para, one with upward messages if there is any."""
        paras = sorted(self.router.kinds)
        busy = [para for para in paras if self.router.upward_waiting(para)]
        return {"para_id": self.rng.choice(busy or paras)}
