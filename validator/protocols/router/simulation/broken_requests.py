# SPDX-License-Identifier: Apache-2.0
"""Channel requests that break a given rule, built from the model's state; None if the rule cannot be broken now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator.protocols.router.simulation.model import Channel, NaiveRouter
from validator.simulate import Draws, Json

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
