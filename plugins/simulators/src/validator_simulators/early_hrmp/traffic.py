# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain under early HRMP, judged by the naive model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from validator_simulators import Draws, Json, LeastMet, ModelledChain, SimulationSettings
from validator_simulators.early_hrmp.model import NaiveEarlyHrmp

RequestWay: TypeAlias = Callable[[NaiveEarlyHrmp, Draws], Json | None]

NOBODY_FIRST: Final = 900_000
"""Ids from here up are never registered."""
CLOSING_PERCENT: Final = 12
"""Percentage of a well-behaved chain's requests. Those that neither close nor accept a channel open one."""
ACCEPTING_PERCENT: Final = 45


def init(origin: int, recipient: int) -> Json:
    """Return a request to open a channel."""
    return {"kind": "init_open_channel", "origin": origin, "recipient": recipient}


def accept(model: NaiveEarlyHrmp, draws: Draws, request: Json, origin: int) -> Json:
    """Return a call that accepts a request, by its index or, if its recipient accepts it, by its sender."""
    if origin == request["recipient"] and draws.percent(50):
        return {"kind": "accept_open_channel", "origin": origin, "sender": request["sender"]}
    return {"kind": "accept_open_channel", "origin": origin, "index": model.requests.index(request)}


def close(origin: int, channel: Json) -> Json:
    """Return a request to close a channel."""
    return {"kind": "close_channel", "origin": origin, "sender": channel["sender"], "recipient": channel["recipient"]}


def request_record(request: Json) -> Json:
    """Return a request in the JSON form of its record. There are two calls to accept a request."""
    if request["kind"] != "accept_open_channel":
        return dict(request)
    if "sender" in request:
        return {**request, "kind": "accept_open_channel_from"}
    return {"kind": request["kind"], "origin": request["origin"], "request_index": request["index"]}


def good_request(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    """Return a request that will be accepted, or None if there is nothing to request."""
    if draws.percent(CLOSING_PERCENT):
        channel = _closable(model, draws)
        return close(draws.choice((channel["sender"], channel["recipient"])), channel) if channel else None
    if draws.percent(ACCEPTING_PERCENT):
        return _good_accept(model, draws)
    return _good_init(model, draws)


def _good_init(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    deposit = model.config["hrmp_sender_deposit"]
    sender = draws.one_of([para for para in _with_places(model) if _affords(model, para, deposit)])
    if sender is None:
        return None
    recipient = draws.one_of(_strangers(model, sender))
    return None if recipient is None else init(sender, recipient)


def _good_accept(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    deposit = model.config["hrmp_recipient_deposit"]
    waiting = [each for each in _unconfirmed(model) if _affords(model, each["recipient"], deposit)]
    request = draws.one_of(waiting)
    return None if request is None else accept(model, draws, request, request["recipient"])


# --- queries on the model ---


def _unconfirmed(model: NaiveEarlyHrmp) -> list[Json]:
    return [each for each in model.requests if not each["confirmed"]]


def _affords(model: NaiveEarlyHrmp, para: int, deposit: int) -> bool:
    return model.unlimited or model.free.get(para, 0) >= deposit


def _outbound(model: NaiveEarlyHrmp, para: int) -> int:
    return len([each for each in [*model.channels, *model.requests] if each["sender"] == para])


def _with_places(model: NaiveEarlyHrmp) -> list[int]:
    """Return the paras that may open another channel."""
    return [para for para in sorted(model.paras) if _outbound(model, para) < model.config["hrmp_max_outbound_channels"]]


def _strangers(model: NaiveEarlyHrmp, sender: int) -> list[int]:
    """Return the paras to which a sender has neither a channel nor a request."""
    known = [each["recipient"] for each in [*model.channels, *model.requests] if each["sender"] == sender]
    return [para for para in sorted(model.paras) if para != sender and para not in known]


def _closable(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    """Return a channel without a close request. Channels with messages, which will be sealed, are preferred."""
    closing = [(each["sender"], each["recipient"]) for each in model.closing]
    there = [
        each for each in model.channels if not each["sealed"] and (each["sender"], each["recipient"]) not in closing
    ]
    full = [each for each in there if each["messages"]]
    return draws.one_of(full if full and draws.percent(70) else there)


def _anybody(model: NaiveEarlyHrmp, draws: Draws) -> int:
    return draws.choice(sorted(model.paras))


def _nobody(draws: Draws) -> int:
    return NOBODY_FIRST + draws.randrange(10)


# --- one way to break each rule ---


def _invalid_sender(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    return init(_nobody(draws), draws.choice((_anybody(model, draws), _nobody(draws))))


def _invalid_recipient(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    return init(_anybody(model, draws), _nobody(draws))


def _to_self(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    para = _anybody(model, draws)
    return init(para, para)


def _already_exists(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    channel = draws.one_of(model.channels)
    return None if channel is None else init(channel["sender"], channel["recipient"])


def _already_requested(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    pairs = [(each["sender"], each["recipient"]) for each in model.requests if each["sender"] in model.paras]
    pair = draws.one_of(pairs)
    return None if pair is None else init(*pair)


def _limit_exceeded(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    roomy = _with_places(model)
    pairs = [
        (sender, recipient)
        for sender in sorted(model.paras)
        if sender not in roomy
        for recipient in _strangers(model, sender)
    ]
    pair = draws.one_of(pairs)
    return None if pair is None else init(*pair)


def _insufficient_balance(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    deposit = model.config["hrmp_recipient_deposit"]
    request = draws.one_of([each for each in _unconfirmed(model) if not _affords(model, each["recipient"], deposit)])
    if request is not None and draws.percent(50):
        return accept(model, draws, request, request["recipient"])
    deposit = model.config["hrmp_sender_deposit"]
    poor = draws.one_of([para for para in _with_places(model) if not _affords(model, para, deposit)])
    recipient = None if poor is None else draws.one_of(_strangers(model, poor))
    return None if poor is None or recipient is None else init(poor, recipient)


def _no_such_request(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    origin = _anybody(model, draws)
    if draws.percent(50):
        return {"kind": "accept_open_channel", "origin": origin, "index": len(model.requests) + draws.randrange(3)}
    senders = [each["sender"] for each in model.requests if each["recipient"] == origin]
    sender = draws.one_of([para for para in sorted(model.paras) if para not in senders])
    return None if sender is None else {"kind": "accept_open_channel", "origin": origin, "sender": sender}


def _not_recipient(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    request = draws.one_of(model.requests)
    if request is None:
        return None
    others = [para for para in sorted(model.paras) if para != request["recipient"]]
    return accept(model, draws, request, draws.choice(others))


def _already_confirmed(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    request = draws.one_of([each for each in model.requests if each["confirmed"]])
    return None if request is None else accept(model, draws, request, request["recipient"])


def _close_without_channel(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    sender = _anybody(model, draws)
    there = model.egress(sender)
    recipient = draws.choice([para for para in [*sorted(model.paras), _nobody(draws)] if para not in there])
    return close(sender, {"sender": sender, "recipient": recipient})


def _close_sealed_channel(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    channel = draws.one_of([each for each in model.channels if each["sealed"]])
    return None if channel is None else close(draws.choice((channel["sender"], _anybody(model, draws))), channel)


def _unauthorized(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    channel = draws.one_of([each for each in model.channels if not each["sealed"]])
    if channel is None:
        return None
    ends = (channel["sender"], channel["recipient"])
    return close(draws.choice([para for para in [*sorted(model.paras), _nobody(draws)] if para not in ends]), channel)


def _already_underway(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    entry = draws.one_of(model.closing)
    return None if entry is None else close(draws.choice((entry["sender"], entry["recipient"])), entry)


REQUEST_WAYS: Final[dict[str, RequestWay]] = {
    "Open/InvalidSender": _invalid_sender,
    "Open/InvalidRecipient": _invalid_recipient,
    "Open/ToSelf": _to_self,
    "Open/AlreadyExists": _already_exists,
    "Open/AlreadyRequested": _already_requested,
    "Open/LimitExceeded": _limit_exceeded,
    "InsufficientBalance": _insufficient_balance,
    "Accept/NoSuchRequest": _no_such_request,
    "Accept/NotRecipient": _not_recipient,
    "Accept/AlreadyConfirmed": _already_confirmed,
    "Close/NoSuchChannel": _close_without_channel,
    "Close/ChannelSealed": _close_sealed_channel,
    "Close/Unauthorized": _unauthorized,
    "Close/AlreadyUnderway": _already_underway,
}
"""By the error that the request should provoke."""


class RequestTraffic:
    """Makes requests. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveEarlyHrmp, draws: Draws) -> None:
        self.model = model
        self.draws = draws
        self.errors = LeastMet(draws, REQUEST_WAYS)

    def broken(self) -> Json | None:
        """Return a request that will be rejected."""
        for kind in self.errors.order():
            request = REQUEST_WAYS[kind](self.model, self.draws)
            if request is not None:
                return request
        return None

    def play(self, *, breaks: bool) -> tuple[Json, Json] | None:
        """Return the record of the next request and the model's verdict, or None if no request is possible."""
        request = self.broken() if breaks else good_request(self.model, self.draws)
        if request is None:
            return None
        result = self.model.request(request)
        self.errors.note(result)
        return request_record(request), result


CandidateWay: TypeAlias = Callable[[NaiveEarlyHrmp, Draws, Json], bool]
"""Changes a good candidate so that it provokes the error. Returns whether it succeeded."""

PAYLOAD_BYTES_MAX: Final = 150
LOOKBACK_BLOCKS: Final = 20


def _message(candidate: Json, recipient: int, payload: str = "") -> Json:
    return {"sender": candidate["para_id"], "recipient": recipient, "payload": payload}


def _add(candidate: Json, message: Json) -> None:
    """Insert a message in order. Replace an existing message to the same recipient."""
    others = [each for each in candidate["hrmp_messages"] if each["recipient"] != message["recipient"]]
    candidate["hrmp_messages"] = sorted([*others, message], key=lambda each: each["recipient"])


def _parent(model: NaiveEarlyHrmp, candidate: Json) -> int:
    parent = candidate["relay_parent_number"]
    return model.now - 1 if parent is None else int(parent)


# --- one way to break each rule ---


def _unknown_para(_model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    nobody = NOBODY_FIRST + draws.randrange(10)
    candidate["para_id"] = nobody
    candidate["hrmp_messages"] = [{**each, "sender": nobody} for each in candidate["hrmp_messages"]]
    return True


def _not_sorted(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    others = [para for para in sorted(model.paras) if para != candidate["para_id"]]
    first, second = sorted(draws.sample(others, 2))
    candidate["hrmp_messages"] = [_message(candidate, second), _message(candidate, first)]
    return True


def _duplicate_recipient(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    if not candidate["hrmp_messages"]:
        _add(candidate, _message(candidate, draws.choice(sorted(model.paras))))
    at = draws.randrange(len(candidate["hrmp_messages"]))
    candidate["hrmp_messages"].insert(at, dict(candidate["hrmp_messages"][at]))
    return True


def _sender_mismatch(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    para = candidate["para_id"]
    others = [each for each in [*sorted(model.paras), NOBODY_FIRST] if each != para]
    recipient = draws.choice(model.egress(para) or others)
    _add(candidate, {**_message(candidate, recipient), "sender": draws.choice(others)})
    return True


def _no_such_channel(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    there = model.egress(candidate["para_id"])
    others = [para for para in [*sorted(model.paras), NOBODY_FIRST] if para not in there]
    _add(candidate, _message(candidate, draws.choice(others)))
    return True


def _channel_sealed(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    channel = draws.one_of([each for each in _channels_of(model, candidate) if each["sealed"]])
    if channel is not None:
        _add(candidate, _message(candidate, channel["recipient"]))
    return channel is not None


def _capacity_exceeded(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    limit = model.config["hrmp_channel_max_places"]
    full = [each for each in _channels_of(model, candidate) if not each["sealed"] and len(each["messages"]) >= limit]
    channel = draws.one_of(full)
    if channel is not None:
        _add(candidate, _message(candidate, channel["recipient"], draws.hex(draws.randrange(4))))
    return channel is not None


def _total_size_exceeded(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    recipient = draws.one_of(_roomy(model, candidate["para_id"]))
    if recipient is not None:
        _, _, left = model.channel_headroom(candidate["para_id"], recipient)
        _add(candidate, _message(candidate, recipient, draws.hex(left + draws.choice((1, 1, 9)))))
    return recipient is not None


def _advancement_rule(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    last = model.watermarks.get(candidate["para_id"])
    if last is not None:
        candidate["dmq_watermark"] = draws.choice((last, max(0, last - draws.randrange(LOOKBACK_BLOCKS))))
    return last is not None


def _ahead_relay_parent(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    candidate["dmq_watermark"] = _parent(model, candidate) + draws.randint(1, 3)
    return True


def _lands_on_block_with_no_messages(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    para, parent = candidate["para_id"], _parent(model, candidate)
    lowest = max(model.watermarks.get(para, -1) + 1, parent - LOOKBACK_BLOCKS, 0)
    empty = [block for block in range(lowest, parent) if block not in model.landings(para)]
    watermark = draws.one_of(empty)
    if watermark is not None:
        candidate["dmq_watermark"] = watermark
    return watermark is not None


def _channels_of(model: NaiveEarlyHrmp, candidate: Json) -> list[Json]:
    return [each for each in model.channels if each["sender"] == candidate["para_id"]]


def _roomy(model: NaiveEarlyHrmp, para: int) -> list[int]:
    """Return the recipients to which a para may send one more message."""
    return [recipient for recipient in model.egress(para) if model.channel_headroom(para, recipient)[1]]


OUTBOUND_WAYS: Final[dict[str, CandidateWay]] = {
    "Candidate/UnknownPara": _unknown_para,
    "Outbound/NotSorted": _not_sorted,
    "Outbound/DuplicateRecipient": _duplicate_recipient,
    "Outbound/SenderMismatch": _sender_mismatch,
    "Outbound/NoSuchChannel": _no_such_channel,
    "Outbound/ChannelSealed": _channel_sealed,
    "Outbound/CapacityExceeded": _capacity_exceeded,
    "Outbound/TotalSizeExceeded": _total_size_exceeded,
}
WATERMARK_WAYS: Final[dict[str, CandidateWay]] = {
    "Watermark/AdvancementRule": _advancement_rule,
    "Watermark/AheadRelayParent": _ahead_relay_parent,
    "Watermark/LandsOnBlockWithNoMessages": _lands_on_block_with_no_messages,
}
CANDIDATE_WAYS: Final = {**OUTBOUND_WAYS, **WATERMARK_WAYS}
"""By the error that the candidate should provoke."""


class CandidateTraffic:
    """Makes candidates. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveEarlyHrmp, draws: Draws, horizontal_per_100: int) -> None:
        self.model = model
        self.draws = draws
        self.horizontal_per_100 = horizontal_per_100
        self.errors = LeastMet(draws, CANDIDATE_WAYS)

    def good(self, para: int) -> Json | None:
        """Return a candidate that will be accepted, or None if no watermark is possible for the para."""
        model, draws = self.model, self.draws
        last = model.watermarks.get(para, -1)
        parent = model.now - 1
        if draws.percent(15) and parent - 1 > last:
            parent -= 1
        if parent <= last:
            return None
        landings = [block for block in model.landings(para) if last < block <= parent]
        candidate: Json = {
            "para_id": para,
            "relay_parent_number": None if parent == model.now - 1 and draws.percent(70) else parent,
            "dmq_watermark": draws.choice(landings) if landings and draws.percent(50) else parent,
            "hrmp_messages": [],
        }
        roomy = _roomy(model, para)
        for recipient in draws.sample(roomy, min(draws.count(self.horizontal_per_100), len(roomy))):
            _, _, left = model.channel_headroom(para, recipient)
            size = min(left, draws.randrange(PAYLOAD_BYTES_MAX + 1))
            _add(candidate, _message(candidate, recipient, draws.hex(size)))
        return candidate

    def broken(self, para: int) -> tuple[Json, tuple[str, ...]] | None:
        """Return a candidate that will be rejected, and the errors that it targets; one in four targets two."""
        candidate = self.good(para)
        if candidate is None:
            return None
        for kind in self.errors.order():
            if CANDIDATE_WAYS[kind](self.model, self.draws, candidate):
                kinds = [kind]
                other = self.draws.choice(list(WATERMARK_WAYS))
                if kind in OUTBOUND_WAYS and self.draws.percent(25):
                    kinds += [other] * WATERMARK_WAYS[other](self.model, self.draws, candidate)
                return candidate, tuple(kinds)
        return None

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate, the model's verdict, and the errors that the candidate targets."""
        kinds: tuple[str, ...] = ()
        if breaks:
            candidate, kinds = self.broken(para) or (None, ())
        else:
            candidate = self.good(para)
        if candidate is None:
            return None
        result = self.model.candidate(candidate)
        self.errors.note(result)
        return candidate, result, kinds


LIMITS: Final[dict[str, int]] = {
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_size": 400,
    "hrmp_max_outbound_channels": 4,
    "hrmp_sender_deposit": 100,
    "hrmp_recipient_deposit": 60,
    "hrmp_open_request_ttl": 2,
}
"""A chain's initial limits: counts, bytes, balances and session boundaries, all small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "hrmp_channel_max_places": (2, 3, 4),
    "hrmp_channel_max_size": (250, 400, 600),
    "hrmp_max_outbound_channels": (3, 4, 5),
    "hrmp_sender_deposit": (80, 100, 120),
    "hrmp_recipient_deposit": (40, 60, 80),
    "hrmp_open_request_ttl": (1, 2, 3),
}


class EarlyHrmpSimulation(ModelledChain):
    """One simulated chain under early HRMP."""

    protocol = "early-hrmp"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveEarlyHrmp = NaiveEarlyHrmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            waits=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)
