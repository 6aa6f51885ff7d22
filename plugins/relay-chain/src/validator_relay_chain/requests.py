# SPDX-License-Identifier: Apache-2.0
"""Channel requests by the events of the pallet ``Hrmp``: a request that failed has none.

Fields have no names before runtime 1002005, so they are read by place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from validator_relay_chain.block import ChannelEvent

JsonRecord = dict[str, Any]


def requests_of(events: Iterable[ChannelEvent]) -> tuple[list[JsonRecord], list[str]]:
    """Return the requests of a block in order, without lane, block and index, and the names of events that have no record.

    A system channel is opened by its parts: the event says capacity and size, which the call takes from the configuration. An event whose
    fields are not those that its name stands for has no record.
    """
    found: list[JsonRecord] = []
    unread: list[str] = []
    for event in events:
        try:
            records = _records(event)
        except (LookupError, TypeError, ValueError):
            records = None
        if records is None:
            unread.append(f"event Hrmp.{event.name}")
        else:
            found += records
    return found, unread


def _records(event: ChannelEvent) -> list[JsonRecord] | None:
    fields = event.fields
    match event.name:
        case "OpenChannelRequested":
            return [_init(*fields)]
        case "OpenChannelAccepted":
            sender, recipient = fields
            return [_accept(sender, recipient)]
        case "ChannelClosed":
            origin, channel = fields
            return [{"kind": "close_channel", "origin": int(origin), "channel": _channel(channel)}]
        case "OpenChannelCanceled":
            origin, channel = fields
            return [{"kind": "cancel_open_request", "origin": int(origin), "channel": _channel(channel)}]
        case "HrmpChannelForceOpened":
            sender, recipient, places, size = map(int, fields)
            ends = {"sender": sender, "recipient": recipient}
            return [{"kind": "force_open_channel", **ends, "max_places": places, "max_message_size": size}]
        case "HrmpSystemChannelOpened":
            return [_init(*fields), _accept(fields[0], fields[1])]
        case "OpenChannelDepositsUpdated":
            sender, recipient = map(int, fields)
            return [{"kind": "poke_channel_deposits", "sender": sender, "recipient": recipient}]
    return None


def _init(sender: Any, recipient: Any, places: Any, size: Any) -> JsonRecord:
    return {
        "kind": "init_open_channel",
        "origin": int(sender),
        "recipient": int(recipient),
        "max_places": int(places),
        "max_message_size": int(size),
    }


def _accept(sender: Any, recipient: Any) -> JsonRecord:
    return {"kind": "accept_open_channel", "origin": int(recipient), "sender": int(sender)}


def _channel(value: Any) -> list[int]:
    sender, recipient = value.values() if isinstance(value, dict) else value
    return [int(sender), int(recipient)]
