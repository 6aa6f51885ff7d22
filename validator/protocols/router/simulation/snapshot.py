# SPDX-License-Identifier: Apache-2.0
"""Export and import of the naive model's state, in the state keys of the traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from validator.protocols.router.simulation.model import Channel, NaiveRouter

CHANNEL_LIMITS = ("limit_used_places", "limit_used_bytes", "limit_message_size")


def channel_name(channel: tuple[int, int]) -> str:
    """Return the name of a channel in a trace, `sender->recipient`."""
    return f"{channel[0]}->{channel[1]}"


def channel_of(name: str) -> tuple[int, int]:
    """Parse a channel's name into (sender, recipient)."""
    sender, recipient = name.split("->")
    return int(sender), int(recipient)


def router_state(router: NaiveRouter) -> dict[str, Any]:
    """Return all state keys in ascending order, without empty rows and zero counts."""
    channels = sorted(router.channels)
    paras_in = sorted({recipient for _, recipient in channels})
    paras_out = sorted({sender for sender, _ in channels})
    free = {para: 0 if router.unlimited_balances else amount for para, amount in router.free.items()}
    accounts = sorted(
        para
        for para in {*router.free, *router.reserved}
        if para in router.kinds or free.get(para) or router.reserved.get(para)
    )
    return {
        "channels": {channel_name(pair): _channel(router, pair) for pair in channels},
        "channel_set": [channel_name(pair) for pair in channels],
        "open_requests": {channel_name(pair): _request(router, pair) for pair in sorted(router.requests)},
        "open_request_set": [channel_name(pair) for pair in sorted(router.requests)],
        "close_request_set": [channel_name(pair) for pair in sorted(router.closing)],
        "open_request_count": _rows({para: count for para, count in router.open_request_count.items() if count}),
        "accepted_request_count": _rows({para: n for para, n in router.accepted_request_count.items() if n}),
        "ingress": _rows({para: router.ingress(para) for para in paras_in}),
        "egress": _rows({para: router.egress(para) for para in paras_out}),
        "contents": {
            channel_name(pair): [dict(message) for message in router.channels[pair]["messages"]]
            for pair in channels
            if router.channels[pair]["messages"]
        },
        "digests": _rows({para: _digest(entries) for para, entries in router.digests.items() if entries}),
        "watermarks": _rows(router.watermarks),
        "dmq": _rows({para: [dict(message) for message in queue] for para, queue in router.dmq.items() if queue}),
        "dmq_heads": _rows(router.dmq_heads),
        "mqc_heads": _rows(
            {para: [[s, router.channels[(s, para)]["mqc_head"]] for s in router.ingress(para)] for para in paras_in}
        ),
        **_upward(router),
        "balances": _rows(
            {para: {"free": free.get(para, 0), "reserved": router.reserved.get(para, 0)} for para in accounts}
        ),
        "valid_paras": sorted(router.kinds),
        "outgoing_paras": list(router.outgoing),
        "ready_ring": None if router.queue is None else list(router.queue.ring),
        "ump_overweight": None if router.queue is None else router.queue.overweight(),
    }


def _upward(router: NaiveRouter) -> dict[str, Any]:
    """Return the keys of upward messages. Those set aside have a size, but stand in no queue."""
    queue = router.queue
    paras = router.ump if queue is None else queue.messages
    waiting = router.ump if queue is None else {para: queue.waiting(para) for para in paras}
    unprocessed = {para: router.upward_waiting(para) for para in paras}
    first = router.next_dispatch_round_start_with
    if queue is not None:
        first = queue.ring[0] if queue.ring else None
    return {
        "ump_queues": _rows({para: list(payloads) for para, payloads in waiting.items() if payloads}),
        "ump_queue_size": _rows(
            {para: [len(every), sum(len(m) // 2 for m in every)] for para, every in unprocessed.items() if every}
        ),
        "needs_dispatch": router.needs_dispatch(),
        "next_dispatch_round_start_with": first,
    }


def load_state(router: NaiveRouter, state: Mapping[str, Any]) -> None:
    """Load a state without the message queue into an empty Router. Every para of `valid_paras` becomes a parachain.

    A state names no recipient's deposit of a confirmed request: it is taken to be the configuration's.
    """
    assert state.get("ready_ring") is None, "the keys of a state do not say which pages the messages are in"
    for name, channel in state.get("channels", {}).items():
        kept = {key: value for key, value in channel.items() if key not in ("used_places", "used_bytes")}
        messages = [dict(message) for message in state.get("contents", {}).get(name, [])]
        router.channels[channel_of(name)] = {**kept, "messages": messages}
    for name, request in state.get("open_requests", {}).items():
        left = router.config["hrmp_recipient_deposit"] if request["confirmed"] else 0
        router.requests[channel_of(name)] = {**request, "recipient_deposit": left}
    router.closing = [channel_of(name) for name in state.get("close_request_set", [])]
    router.open_request_count = _ids(state, "open_request_count")
    router.accepted_request_count = _ids(state, "accepted_request_count")
    router.watermarks = _ids(state, "watermarks")
    router.dmq_heads = _ids(state, "dmq_heads")
    router.dmq = {para: [dict(message) for message in queue] for para, queue in _ids(state, "dmq").items()}
    router.ump = {para: list(queue) for para, queue in _ids(state, "ump_queues").items()}
    router.digests = {
        para: [(block, sender) for block, senders in entries for sender in senders]
        for para, entries in _ids(state, "digests").items()
    }
    router.next_dispatch_round_start_with = state.get("next_dispatch_round_start_with")
    for para, balance in _ids(state, "balances").items():
        router.free[para], router.reserved[para] = balance["free"], balance["reserved"]
    router.kinds = dict.fromkeys(state.get("valid_paras", []), "parachain")
    router.outgoing = sorted(state.get("outgoing_paras", []))


def _request(router: NaiveRouter, pair: Channel) -> dict[str, Any]:
    return {key: value for key, value in router.requests[pair].items() if key != "recipient_deposit"}


def _channel(router: NaiveRouter, pair: Channel) -> dict[str, Any]:
    channel = router.channels[pair]
    return {
        "sender_deposit": channel["sender_deposit"],
        "recipient_deposit": channel["recipient_deposit"],
        **{key: channel[key] for key in CHANNEL_LIMITS},
        "used_places": router.used_places(pair),
        "used_bytes": router.used_bytes(pair),
        "mqc_head": channel["mqc_head"],
    }


def _digest(entries: list[tuple[int, int]]) -> list[list[Any]]:
    grouped: dict[int, list[int]] = {}
    for block, sender in entries:
        grouped.setdefault(block, []).append(sender)
    return [[block, senders] for block, senders in grouped.items()]


def _rows(table: Mapping[int, Any]) -> dict[str, Any]:
    return {str(para): table[para] for para in sorted(table)}


def _ids(state: Mapping[str, Any], key: str) -> dict[int, Any]:
    return {int(para): value for para, value in state.get(key, {}).items()}
