# SPDX-License-Identifier: Apache-2.0
"""The entry points for channels, offboarding and overweight messages of the naive model: router_rules 1.6, router_profiles 3.

Each raises `Refused` for the first rule that a request breaks. The model takes back what the earlier parts of such a request did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from validator.protocols.router.simulation.hashing import (
    accepted_notification,
    closing_notification,
    open_notification,
)
from validator.protocols.router.simulation.later_rules import REQUESTS, is_system
from validator.protocols.router.simulation.refusal import Refused
from validator.protocols.router.simulation.sessions import close_closing, open_confirmed, remove_channels_of
from validator.simulate import Json

if TYPE_CHECKING:
    from validator.protocols.router.simulation.model import Channel, NaiveRouter


def apply_request(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Apply a request; raise `Refused` for one whose features do not hold before anything else is looked at (router_profiles 1)."""
    kind = request["kind"]
    if kind in REQUESTS and not any(router.has(feature) for feature in REQUESTS[kind]):
        raise Refused("RequestNotInForce", request=kind)
    if kind not in ENTRY_POINTS:
        raise ValueError(f"unknown kind of request: {kind!r}")
    ENTRY_POINTS[kind](router, request)


# -- router.txt -------------------------------------------------------------------------------------------------------


def init_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request a channel (order of router.txt, I-02, I-14)."""
    origin, recipient = request["origin"], request["recipient"]
    places, size = request["max_places"], request["max_message_size"]
    deposit = router.deposits((origin, recipient))[0]
    channels = len(router.egress(origin)) + router.open_request_count.get(origin, 0)
    broken = {
        "ToSelf": origin == recipient,
        "ZeroCapacity": places == 0,
        "CapacityExceedsLimit": places > router.config["hrmp_channel_max_places"],
        "ZeroMessageSize": size == 0,
        "MessageSizeExceedsLimit": size > router.config["hrmp_channel_max_message_size"],
        "InvalidRecipient": not router.is_valid(recipient),
        "AlreadyExists": (origin, recipient) in router.channels,
        "AlreadyRequested": (origin, recipient) in router.requests,
        "LimitExceeded": channels >= router.channel_limit(origin, "outbound"),
    }
    order = list(broken)
    if router.has("as_the_chain"):  # PR-12
        order = [order[0], order[5], *order[1:5], order[7], order[6], order[8]]
    for error in order:
        if broken[error]:
            raise Refused(f"OpenHrmpChannel{error}")
    if not router.can_reserve(origin, deposit):
        raise Refused("InsufficientBalance")
    router.reserve(origin, deposit)
    router.open_request_count[origin] = router.open_request_count.get(origin, 0) + 1
    router.requests[(origin, recipient)] = {
        "confirmed": False,
        "age": 0,
        "sender_deposit": deposit,
        "recipient_deposit": 0,
        "limit_used_places": places,
        "limit_used_bytes": router.config["hrmp_channel_max_size"],
        "limit_message_size": size,
    }
    router.notify(recipient, open_notification(origin, size, places))


def accept_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Confirm a request; it remembers what the recipient leaves (PR-05)."""
    origin, sender = request["origin"], request["sender"]
    opening = router.requests.get((sender, origin))
    if opening is None:
        raise Refused("AcceptHrmpChannelDoesntExist")
    if opening["confirmed"]:
        raise Refused("AcceptHrmpChannelAlreadyConfirmed")
    channels = len(router.ingress(origin)) + router.accepted_request_count.get(origin, 0)
    if channels >= router.channel_limit(origin, "inbound"):
        raise Refused("AcceptHrmpChannelLimitExceeded")
    deposit = router.deposits((sender, origin))[1]
    if not router.can_reserve(origin, deposit):
        raise Refused("InsufficientBalance")
    router.reserve(origin, deposit)
    opening["confirmed"] = True
    opening["recipient_deposit"] = deposit
    router.accepted_request_count[origin] = router.accepted_request_count.get(origin, 0) + 1
    router.notify(sender, accepted_notification(origin))


def close_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Note that a channel is to be closed."""
    origin, channel = request["origin"], _channel(request)
    if origin not in channel:
        raise Refused("CloseHrmpChannelUnauthorized")
    if channel not in router.channels:
        raise Refused("CloseHrmpChannelDoesntExist")
    if channel in router.closing:
        raise Refused("CloseHrmpChannelAlreadyUnderway")
    router.closing.append(channel)
    other = channel[1] if origin == channel[0] else channel[0]
    router.notify(other, closing_notification(origin, *channel))


def schedule_para_cleanup(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Note that a para is to be offboarded; under message_queue not while it has unprocessed messages (3.9, PR-15).

    On the chain it is refused a second time, and does nothing for a para that it does not know (chain_2026 3.18).
    """
    para = request["para_id"]
    if router.has("as_the_chain"):
        if para in router.outgoing:
            raise Refused("CannotOffboard")
        if para not in router.kinds:
            return
    if router.has("message_queue") and router.upward_waiting(para):
        raise Refused("CannotOffboard")
    router.outgoing = sorted({*router.outgoing, para})


# -- later kinds ------------------------------------------------------------------------------------------------------


def cancel_open_request(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Take back a request that is not confirmed (3.4)."""
    channel = _channel(request)
    if request["origin"] not in channel:
        raise Refused("CancelHrmpOpenChannelUnauthorized")
    if channel not in router.requests:
        raise Refused("OpenHrmpChannelDoesntExist")
    _cancel(router, channel)


def _cancel(router: NaiveRouter, channel: Channel) -> None:
    if router.requests[channel]["confirmed"]:
        raise Refused("OpenHrmpChannelAlreadyConfirmed")
    opening = router.requests.pop(channel)
    router.count_one_request_less(channel[0])
    router.unreserve(channel[0], opening["sender_deposit"])


def force_open_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept in one; without the plain form's restriction a request that exists is cancelled first (3.6)."""
    sender, recipient = request["sender"], request["recipient"]
    if router.has("force_open_channel") and (sender, recipient) in router.requests:
        _cancel(router, (sender, recipient))
    _init_and_accept(router, sender, recipient, request["max_places"], request["max_message_size"])


def establish_system_channel(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept a channel between two system paras, with the limits of the configuration (3.12)."""
    sender, recipient = request["sender"], request["recipient"]
    if not (is_system(sender) and is_system(recipient)):
        raise Refused("ChannelCreationNotAuthorized")
    places, size = router.limit("hrmp_channel_max_places"), router.limit("hrmp_channel_max_message_size")
    _init_and_accept(router, sender, recipient, places, size)


def establish_channel_with_system(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Request and accept channels to a system para and back (3.12)."""
    origin, target = request["origin"], request["target"]
    if not is_system(target):
        raise Refused("ChannelCreationNotAuthorized")
    places = router.limit("hrmp_system_channel_max_places")
    size = router.limit("hrmp_system_channel_max_message_size")
    _init_and_accept(router, origin, target, places, size)
    _init_and_accept(router, target, origin, places, size)


def poke_channel_deposits(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Bring a channel's deposits to what the configuration asks now, nothing for system paras in any case (3.12)."""
    pair = request["sender"], request["recipient"]
    channel = router.channels.get(pair)
    if channel is None:
        raise Refused("OpenHrmpChannelDoesntExist")
    wanted = router.config["hrmp_sender_deposit"], router.config["hrmp_recipient_deposit"]
    if is_system(pair[0]) or is_system(pair[1]):
        wanted = 0, 0
    for para, key, deposit in zip(pair, ("sender_deposit", "recipient_deposit"), wanted, strict=True):
        missing = deposit - channel[key]
        if not router.can_reserve(para, missing):
            raise Refused("InsufficientBalance")
        if missing > 0:
            router.reserve(para, missing)
        else:
            router.unreserve(para, -missing)
        channel[key] = deposit


def service_overweight(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Hand over a message that was set aside, ahead of the round (3.9)."""
    assert router.queue is not None
    router.serviced.append(router.queue.service(dict(request), router.upward_weight))


def force_process_open(router: NaiveRouter, _request: Mapping[str, Any]) -> None:
    """Open what is confirmed, now (chain_2026 3.16)."""
    open_confirmed(router)


def force_process_close(router: NaiveRouter, _request: Mapping[str, Any]) -> None:
    """Close what is to be closed, now (chain_2026 3.16)."""
    close_closing(router)


def force_clean(router: NaiveRouter, request: Mapping[str, Any]) -> None:
    """Close all channels of a para; the chain forgets its counts of requests, too (chain_2026 3.16, PR-17)."""
    remove_channels_of(router, request["para_id"])
    if router.has("as_the_chain"):
        router.open_request_count.pop(request["para_id"], None)
        router.accepted_request_count.pop(request["para_id"], None)


def _init_and_accept(router: NaiveRouter, sender: int, recipient: int, places: int, size: int) -> None:
    sizes = {"max_places": places, "max_message_size": size}
    init_open_channel(router, {"origin": sender, "recipient": recipient, **sizes})
    accept_open_channel(router, {"origin": recipient, "sender": sender})


def _channel(request: Mapping[str, Any]) -> Channel:
    sender, recipient = request["channel"]
    return sender, recipient


EntryPoint = Callable[["NaiveRouter", Mapping[str, Any]], None]

ENTRY_POINTS: Final[dict[str, EntryPoint]] = {
    "init_open_channel": init_open_channel,
    "accept_open_channel": accept_open_channel,
    "close_channel": close_channel,
    "schedule_para_cleanup": schedule_para_cleanup,
    "cancel_open_request": cancel_open_request,
    "force_open_channel": force_open_channel,
    "establish_system_channel": establish_system_channel,
    "establish_channel_with_system": establish_channel_with_system,
    "poke_channel_deposits": poke_channel_deposits,
    "service_overweight": service_overweight,
    "force_process_open": force_process_open,
    "force_process_close": force_process_close,
    "force_clean": force_clean,
}


def saved(router: NaiveRouter) -> Json:
    """Return copies of all that a request may change before a later part of it is refused."""
    return {
        "free": dict(router.free),
        "reserved": dict(router.reserved),
        "channels": {pair: dict(channel) for pair, channel in router.channels.items()},
        "requests": {pair: dict(request) for pair, request in router.requests.items()},
        "open_request_count": dict(router.open_request_count),
        "accepted_request_count": dict(router.accepted_request_count),
        "closing": list(router.closing),
        "dmq": {para: list(queue) for para, queue in router.dmq.items()},
        "dmq_heads": dict(router.dmq_heads),
    }
