# SPDX-License-Identifier: Apache-2.0
"""Channel requests of a simulated chain: good ones, and for each error some that break its rule, if the state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from validator.simulate import Draws, Json, LeastMet
from validator_early_hrmp.simulation.model import NaiveEarlyHrmp

Way: TypeAlias = Callable[[NaiveEarlyHrmp, Draws], Json | None]

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


def _no_such_channel(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
    sender = _anybody(model, draws)
    there = model.egress(sender)
    recipient = draws.choice([para for para in [*sorted(model.paras), _nobody(draws)] if para not in there])
    return close(sender, {"sender": sender, "recipient": recipient})


def _channel_sealed(model: NaiveEarlyHrmp, draws: Draws) -> Json | None:
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


WAYS: Final[dict[str, Way]] = {
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
    "Close/NoSuchChannel": _no_such_channel,
    "Close/ChannelSealed": _channel_sealed,
    "Close/Unauthorized": _unauthorized,
    "Close/AlreadyUnderway": _already_underway,
}
"""By the error that the request should provoke."""


class RequestTraffic:
    """Makes requests. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveEarlyHrmp, draws: Draws) -> None:
        self.model = model
        self.draws = draws
        self.errors = LeastMet(draws, WAYS)

    def broken(self) -> Json | None:
        """Return a request that will be rejected."""
        for kind in self.errors.order():
            request = WAYS[kind](self.model, self.draws)
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
