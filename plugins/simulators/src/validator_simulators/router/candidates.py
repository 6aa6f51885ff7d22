# SPDX-License-Identifier: Apache-2.0
"""Candidates of a simulated chain: good ones, ones that exhaust a limit, and ones that break rules.

A way to break a rule reads the model and changes a good candidate in place. It returns False if the chain's state does not allow this rule
to be broken. Ways compose: two of them make a candidate that breaks two rules at once, which tests the order of the checks. The model
decides the actual verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator_simulators import Draws, Json, SimulationSettings
from validator_simulators.router.chains import HORIZONTAL, UPWARD, draw_size
from validator_simulators.router.model import NaiveRouter, relay_parent_of

Way = Callable[[NaiveRouter, Draws, Json, list[int], int], bool]
"""(model, random, candidate to change, recipients of the para's channels, maximum bytes to spend) -> whether it succeeded."""


def put_message(candidate: Json, recipient: int, data: str, most: int) -> None:
    """Insert a horizontal message in sorted order. Replace one to the same recipient and drop others beyond ``most``."""
    others = [message for message in candidate["horizontal_messages"] if message["recipient"] != recipient]
    kept = [*others[: most - 1], {"recipient": recipient, "data": data}]
    candidate["horizontal_messages"] = sorted(kept, key=lambda message: int(message["recipient"]))


def _put(router: NaiveRouter, candidate: Json, recipient: int, data: str) -> bool:
    most = router.config["hrmp_max_message_num_per_candidate"]
    if most > 0:
        put_message(candidate, recipient, data, most)
    return most > 0


# -- downward, upward -------------------------------------------------------------------------------------------------


def no_downward_processed(router: NaiveRouter, _rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    queue = router.dmq.get(candidate["para_id"])
    if not queue:
        return False
    if router.has("dmp_by_relay_parent") and queue[0]["sent_at"] > relay_parent_of(router, candidate):
        return False
    candidate["processed_downward_messages"] = 0
    return True


def too_many_processed(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    candidate["processed_downward_messages"] = len(router.dmq.get(candidate["para_id"], [])) + rng.choice((1, 1, 2, 9))
    return True


def too_many_upward(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    permitted = router.config["max_upward_message_num_per_candidate"]
    while len(candidate["upward_messages"]) <= permitted:
        candidate["upward_messages"].append(rng.hex(rng.randint(1, 8)))
    return True


def large_upward(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], cost: int) -> bool:
    size = router.config["max_upward_message_size"] + 1
    if size > cost:
        return False
    messages = candidate["upward_messages"]
    messages[-1:] = [rng.hex(size)]
    return True


def full_upward_queue(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    room = router.config["max_upward_queue_count"] - len(router.upward_waiting(candidate["para_id"]))
    if max(room + 1, 0) > router.config["max_upward_message_num_per_candidate"]:
        return False
    while len(candidate["upward_messages"]) <= room:
        candidate["upward_messages"].append(rng.hex(rng.randint(0, 8)))
    return True


def full_upward_bytes(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], cost: int) -> bool:
    queue = router.upward_waiting(candidate["para_id"])
    count = min(
        router.config["max_upward_message_num_per_candidate"], router.config["max_upward_queue_count"] - len(queue)
    )
    missing = router.config["max_upward_queue_size"] + 1 - sum(len(message) // 2 for message in queue)
    largest = router.config["max_upward_message_size"]
    if count <= 0 or missing <= 0 or missing > cost or missing > count * largest:
        return False
    sizes = [missing // count + (number < missing % count) for number in range(count)]
    if missing <= largest:
        sizes = [missing]
    candidate["upward_messages"] = [rng.hex(size) for size in sizes]
    return True


# -- watermark --------------------------------------------------------------------------------------------------------


def standing_watermark(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    last = router.watermarks.get(candidate["para_id"])
    if last is None:
        return False
    new = max(0, last - rng.choice((0, 0, 1, 5)))
    if router.has("relaxed_watermark") and new == relay_parent_of(router, candidate):
        return False
    if router.has("watermark_may_stay") and new == last:
        return False
    candidate["hrmp_watermark"] = new
    return True


def watermark_ahead(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    candidate["hrmp_watermark"] = relay_parent_of(router, candidate) + rng.choice((1, 1, 2, 100))
    return True


def watermark_between(router: NaiveRouter, rng: Draws, candidate: Json, _egress: list[int], _cost: int) -> bool:
    para = candidate["para_id"]
    busy = {block for block, _ in router.digests.get(para, [])}
    relay_parent = relay_parent_of(router, candidate)
    start = max(router.watermarks.get(para, -1) + 1, relay_parent - 50)
    quiet = [block for block in range(start, relay_parent) if block not in busy]
    if quiet:
        candidate["hrmp_watermark"] = rng.choice(quiet)
    return bool(quiet)


# -- outbound ---------------------------------------------------------------------------------------------------------


def too_many_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    permitted = router.config["hrmp_max_message_num_per_candidate"]
    sent = {message["recipient"] for message in candidate["horizontal_messages"]}
    recipients = [*(para for para in egress if para not in sent), *range(90_000, 90_001 + permitted)]
    missing = permitted + 1 - len(candidate["horizontal_messages"])
    extra = [{"recipient": para, "data": rng.hex(4)} for para in recipients[: max(0, missing)]]
    candidate["horizontal_messages"] = sorted(
        candidate["horizontal_messages"] + extra, key=lambda message: int(message["recipient"])
    )
    return True


def unsorted_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    messages = candidate["horizontal_messages"]
    if router.config["hrmp_max_message_num_per_candidate"] < 2 or not egress:
        return False
    if len(messages) < 2:
        first = messages[0]["recipient"] if messages else rng.choice(egress)
        second = rng.choice(egress)  # the same recipient twice is not sorted either
        pair = sorted((first, second))
        messages = [{"recipient": para, "data": rng.hex(rng.randint(1, 40))} for para in pair]
    candidate["horizontal_messages"] = messages[::-1]
    return True


def no_channel(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    strangers = [para for para in router.kinds if para not in egress]
    recipient = rng.choice(strangers) if strangers and rng.random() < 0.8 else 80_000 + rng.randrange(1000)
    return _put(router, candidate, recipient, rng.hex(rng.randint(1, 100)))


def large_outbound(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
    para = candidate["para_id"]
    limits = [(router.channels[(para, recipient)]["limit_message_size"], recipient) for recipient in egress]
    if not limits or min(limits)[0] + 1 > cost:
        return False
    limit, recipient = min(limits)
    return _put(router, candidate, recipient, rng.hex(limit + 1))


def full_channel_bytes(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], cost: int) -> bool:
    para = candidate["para_id"]
    for recipient in egress:
        channel = router.channels[(para, recipient)]
        missing = channel["limit_used_bytes"] + 1 - router.used_bytes((para, recipient))
        if missing <= min(cost, channel["limit_message_size"]):
            return _put(router, candidate, recipient, rng.hex(missing))
    return False


def full_channel_places(router: NaiveRouter, rng: Draws, candidate: Json, egress: list[int], _cost: int) -> bool:
    para = candidate["para_id"]
    for recipient in egress:
        channel = (para, recipient)
        if router.used_places(channel) >= router.channels[channel]["limit_used_places"]:
            return _put(router, candidate, recipient, rng.hex(rng.randint(0, 2)))
    return False


WAYS: Final[dict[str, Way]] = {
    "ProcessedDownwardMessages/AdvancementRule": no_downward_processed,
    "ProcessedDownwardMessages/Underflow": too_many_processed,
    "UpwardMessages/MoreMessagesThanPermitted": too_many_upward,
    "UpwardMessages/MessageSize": large_upward,
    "UpwardMessages/CapacityExceeded": full_upward_queue,
    "UpwardMessages/TotalSizeExceeded": full_upward_bytes,
    "HrmpWatermark/AdvancementRule": standing_watermark,
    "HrmpWatermark/AheadRelayParent": watermark_ahead,
    "HrmpWatermark/LandsOnBlockWithNoMessages": watermark_between,
    "OutboundHrmp/MoreMessagesThanPermitted": too_many_outbound,
    "OutboundHrmp/NotSorted": unsorted_outbound,
    "OutboundHrmp/NoSuchChannel": no_channel,
    "OutboundHrmp/MaxMessageSizeExceeded": large_outbound,
    "OutboundHrmp/TotalSizeExceeded": full_channel_bytes,
    "OutboundHrmp/CapacityExceeded": full_channel_places,
}


CHEAP_BYTES: Final = 4096  # a rule that costs more bytes to break is broken once, then rarely
ANY_COST: Final = 1 << 30
HUNTS_PER_SHARE: Final = 6  # a block hunts for a rule not yet broken with this multiple of the violation share
MOST_PARAS_HUNTED: Final = 60
AT_THE_LIMIT_SHARE: Final = 0.05
TWO_RULES_SHARE: Final = 0.25
LAGGING_SHARE: Final = 0.15


class Upward:
    """The heavy, weightless and failing upward messages of a chain, and their weights."""

    def __init__(self, rng: Draws, budget: int, messages_per_round: int, size_max: int = UPWARD[-1]) -> None:
        heavy = (budget * 6 // 10, budget, budget * 3)
        self.default_weight = budget // messages_per_round
        self.heavy = [rng.hex(draw_size(rng, UPWARD, size_max)) for _ in heavy]
        self.weightless = rng.hex(draw_size(rng, UPWARD, size_max))
        self.failing = [rng.hex(draw_size(rng, UPWARD, size_max)) for _ in range(2)]
        self.weights = dict(zip(self.heavy, heavy, strict=True)) | {self.weightless: 0, self.failing[0]: budget // 4}
        self.special = [*self.heavy, self.weightless, *self.failing]


class CandidateTraffic:
    """Makes the candidates of a block, each against the state that the previous one left."""

    def __init__(self, settings: SimulationSettings, router: NaiveRouter, rng: Draws, upward: Upward) -> None:
        self.settings = settings
        self.router = router
        self.rng = rng
        self.upward = upward
        self.ways = dict(WAYS)
        self.seen: dict[str, int] = dict.fromkeys(WAYS, 0)  # error kinds in verdicts so far
        self.egress: dict[int, list[int]] = {}
        self.lagging: list[int] = []
        # A heavy message ends a dispatch round, so their share shrinks at higher rates.
        upward_per_block = settings.candidates_per_block * settings.upward_per_100_candidates / 100
        self.special_share = min(0.08, 0.5 / max(1, upward_per_block))
        self.burst_share = 0.05 if upward_per_block < 20 else 0.03 / settings.candidates_per_block
        self.rare: tuple[Json, str] | None = None  # this block's find, see _hunt

    def new_session(self) -> None:
        """Reload who may send to whom, and choose the paras whose watermarks lag during the session."""
        self.load_egress()
        self.lagging = [para for para in sorted(self.router.kinds) if self.rng.random() < LAGGING_SHARE]

    def load_egress(self) -> None:
        """Reload who may send to whom."""
        self.egress = {}
        for sender, recipient in sorted(self.router.channels):
            self.egress.setdefault(sender, []).append(recipient)

    def producers(self) -> list[int]:
        """Return the paras that have a candidate in this block, in the order of their cores.

        A para with a pending candidate gets no second one, as on the chain: both would be checked against the same limits.
        """
        busy = {item["candidate"]["para_id"] for item in self.router.pending}
        idle = [para for para in sorted(self.router.kinds) if para not in busy]
        chosen = self.rng.sample(idle, min(self.settings.candidates_per_block, len(idle)))
        self.rare = None
        if chosen and self.rng.random() < HUNTS_PER_SHARE * self.settings.violation_share:
            self.rare = self._hunt(self.rng.sample(idle, min(len(idle), MOST_PARAS_HUNTED)))
        if self.rare is not None and self.rare[0]["para_id"] not in chosen:
            chosen[0] = self.rare[0]["para_id"]
        return chosen

    def _hunt(self, paras: list[int]) -> tuple[Json, str] | None:
        """Return a candidate that breaks a rule not yet broken. Some rules need a full queue, which few paras have."""
        unseen = [kind for kind, count in self.seen.items() if count == 0]
        for kind in unseen:
            for para in paras:
                candidate = self.good(para)
                if candidate and self.ways[kind](self.router, self.rng, candidate, self.egress.get(para, []), ANY_COST):
                    return candidate, kind
        return None

    def candidate(self, para: int) -> tuple[Json | None, tuple[str, ...]]:
        """Return a candidate, or None if the para can make none, and the error kinds that it targets."""
        if self.rare is not None and self.rare[0]["para_id"] == para:
            return self.rare[0], (self.rare[1],)
        candidate = self.good(para)
        if candidate is None:
            return None, ()
        if self.rng.random() < self.settings.violation_share:
            return candidate, self._break(candidate)
        if self.rng.random() < AT_THE_LIMIT_SHARE:
            self.fill_up(candidate)
        return candidate, ()

    def note(self, result: Json) -> None:
        """Record the verdict, so that rules not yet broken come first."""
        if not result["ok"]:
            self.seen[result["error"]["kind"]] += 1

    # -- good ones ------------------------------------------------------------------------------------------------

    def good(self, para: int) -> Json | None:
        """Return a candidate that breaks no rule, or None if the para can make none."""
        relay_parent, watermark = self.watermark(para)
        if watermark is None:
            return None
        return {
            "para_id": para,
            "relay_parent_number": relay_parent,
            "hrmp_watermark": watermark,
            "upward_messages": self._upward(para),
            "processed_downward_messages": self._processed(para),
            "horizontal_messages": self._horizontal(para),
        }

    def watermark(self, para: int) -> tuple[int | None, int | None]:
        """Return the relay parent to state (None: the parent block) and the watermark, or None if no watermark is possible."""
        last = self.router.watermarks.get(para, -1)
        parent = self.router.now - 1
        stated = None
        if self.rng.random() < 0.08:
            stated = parent = max(0, parent - self.rng.choice((0, 0, 0, 1)))
        if parent <= last:
            return None, None
        blocks = sorted({block for block, _ in self.router.digests.get(para, []) if last < block < parent})
        if blocks and (para in self.lagging or self.rng.random() < 0.1):
            return stated, blocks[0]
        return stated, parent

    def _processed(self, para: int) -> int:
        length = len(self.router.dmq.get(para, []))
        return length if length == 0 or self.rng.random() < 0.7 else self.rng.randint(1, length)

    def _upward(self, para: int) -> list[str]:
        config, queue = self.router.config, self.router.upward_waiting(para)
        count = self.rng.count(self.settings.upward_per_100_candidates)
        # a burst fills the queue with messages so heavy that a round takes only one
        burst = count > 0 and self.rng.random() < self.burst_share
        if burst:
            count = config["max_upward_message_num_per_candidate"]
        count = min(
            count, config["max_upward_message_num_per_candidate"], config["max_upward_queue_count"] - len(queue)
        )
        room = config["max_upward_queue_size"] - sum(len(message) // 2 for message in queue)
        messages: list[str] = []
        for _ in range(count):
            message = self.rng.hex(draw_size(self.rng, UPWARD, config["max_upward_message_size"]))
            if burst:
                message = self.upward.heavy[1]
            elif self.rng.random() < self.special_share:
                message = self.rng.choice(self.upward.special)
            size = len(message) // 2
            if size > min(room, config["max_upward_message_size"]):
                break
            room -= size
            messages.append(message)
        return messages

    def _horizontal(self, para: int) -> list[Json]:
        count = self.rng.count(self.settings.horizontal_per_100_candidates)
        recipients = self.egress.get(para, [])
        count = min(count, self.router.config["hrmp_max_message_num_per_candidate"], len(recipients))
        messages = []
        for recipient in sorted(self.rng.sample(recipients, count)) if count else []:
            size = draw_size(self.rng, HORIZONTAL, self._room((para, recipient)))
            if size > 0:
                messages.append({"recipient": recipient, "data": self.rng.hex(size)})
        return messages

    def _room(self, pair: tuple[int, int]) -> int:
        """Return the size of the largest message that the channel can take now, 0 if it is full."""
        channel = self.router.channels[pair]
        if self.router.used_places(pair) >= channel["limit_used_places"]:
            return 0
        room: int = min(channel["limit_message_size"], channel["limit_used_bytes"] - self.router.used_bytes(pair))
        return room

    def fill_up(self, candidate: Json) -> None:
        """Exhaust a limit without exceeding it: the boundary case next to a violation."""
        config, para = self.router.config, candidate["para_id"]
        channels = self.egress.get(para, [])
        rooms = [(self._room((para, recipient)), recipient) for recipient in channels]
        cheap = [(room, recipient) for room, recipient in rooms if 0 < room <= CHEAP_BYTES]
        most = config["hrmp_max_message_num_per_candidate"]
        if cheap and most > 0 and self.rng.random() < 0.6:
            room, recipient = self.rng.choice(cheap)
            put_message(candidate, recipient, self.rng.hex(room), most)
        elif rooms and self.rng.random() < 0.5:
            open_to = [recipient for room, recipient in rooms if room > 0][:most]
            empty = self.rng.random() < 0.3
            candidate["horizontal_messages"] = [
                {"recipient": recipient, "data": "" if empty else self.rng.hex(1)} for recipient in open_to
            ]
        else:
            queue = self.router.upward_waiting(para)
            count = min(config["max_upward_message_num_per_candidate"], config["max_upward_queue_count"] - len(queue))
            candidate["upward_messages"] = ["" if number == 1 else "00" for number in range(max(0, count))]

    # -- bad ones -------------------------------------------------------------------------------------------------

    def _break(self, candidate: Json) -> tuple[str, ...]:
        """Break one rule, sometimes two. Half of the time, rules that were rarely broken come first."""
        kinds = self.rng.sample(list(self.ways), len(self.ways))
        if self.rng.random() < 0.5:
            kinds.sort(key=lambda kind: self.seen[kind])
        wanted = 2 if self.rng.random() < TWO_RULES_SHARE else 1
        broken: list[str] = []
        egress = self.egress.get(candidate["para_id"], [])
        for kind in kinds:
            cost = ANY_COST if self.seen[kind] == 0 or self.rng.random() < 0.01 else CHEAP_BYTES
            if self.ways[kind](self.router, self.rng, candidate, egress, cost):
                broken.append(kind)
            if len(broken) == wanted:
                break
        return tuple(broken)
