# SPDX-License-Identifier: Apache-2.0
"""The map of channels, and the page of one channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from validator.console.channel_map import WORDS, draw
from validator.console.context import ConsoleContext, Missing, Page, Query, link_of, number_of
from validator.console.drawings import bar
from validator.console.kept import ChannelId, KeptChannel
from validator.console.limits import LIST_MAX
from validator.console.shown import UNREACHED, count
from validator.errors import UserError

if TYPE_CHECKING:
    from validator.console.lane import LaneModel

SHOWN: Final = ("all", "busy", "nearly", "full")
"""Which channels the map shows: all open ones, those with traffic, nearly full and full ones, full ones."""
_RANK: Final = {"full": 0, "nearly": 1}


def channels_page(console: ConsoleContext, path: dict[str, str], query: Query) -> Page:
    """Who talks to whom."""
    lane = console.lane(path["lane"])
    problem, para = "", None
    try:
        para = number_of(query, "para")
    except UserError as error:
        problem = str(error)
    show = query.get("show") if query.get("show") in SHOWN else "all"
    open_ones = {ends: channel for ends, channel in lane.channels.items() if channel.state != "gone"}
    shown = {ends: channel for ends, channel in open_ones.items() if _is_shown(ends, channel, para, show or "all")}
    order = sorted(shown, key=lambda ends: (_RANK.get(shown[ends].state, 2), -shown[ends].messages, ends))
    return Page(
        "channels.html",
        {
            **console.common("channels", lane),
            "problem": problem,
            "para": para,
            "show": show,
            "open": len(open_ones),
            "paras": sorted({end for ends in open_ones for end in ends}),
            "full": sum(channel.state == "full" for channel in open_ones.values()),
            "nearly": sum(channel.state == "nearly" for channel in open_ones.values()),
            "carried": sum(channel.messages > 0 for channel in open_ones.values()),
            "messages": sum(channel.messages for channel in open_ones.values()),
            "map": draw(shown, link_of(lane.name)),
            "rows": [channel_row(ends, shown[ends]) for ends in order[:LIST_MAX]],
            "more": max(0, len(order) - LIST_MAX),
            "requests": list(lane.requests.items())[-LIST_MAX:],
        },
    )


def _is_shown(ends: ChannelId, channel: KeptChannel, para: int | None, show: str) -> bool:
    if para is not None and para not in ends:
        return False
    match show:
        case "busy":
            return channel.messages > 0
        case "nearly":
            return channel.state in ("full", "nearly")
        case "full":
            return channel.state == "full"
        case _:
            return True


def channel_row(ends: ChannelId, channel: KeptChannel) -> dict[str, Any]:
    """Return a channel's row."""
    now = channel.now
    return {
        "ends": ends,
        "state": channel.state,
        "word": WORDS[channel.state],
        "bar": bar(channel.used(), channel.state),
        "messages": channel.messages,
        "places_left": None if now is None else now["places_left"],
        "bytes_left": None if now is None else now["bytes_left"],
        "message_size_max": None if now is None else now["message_size_max"],
        "of_places": _of(channel.places_most),
        "as_of": None if now is None else now["block"],
    }


def _of(most: int) -> str:
    """Say how many places a channel has at least."""
    return "" if most > UNREACHED else f"of at least {count(most)}"


def channel_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """One channel."""
    lane = console.lane(path["lane"])
    ends = int(path["sender"]), int(path["recipient"])
    channel = lane.channels.get(ends)
    events = _events(lane, ends)
    if channel is None and not events:
        raise Missing(f"Lane {lane.name} has no channel {ends[0]} → {ends[1]} that the console knows.")
    channel = KeptChannel() if channel is None else channel
    return Page(
        "channel.html",
        {
            **console.common("channels", lane),
            "row": channel_row(ends, channel),
            "records": [
                {**record, "bar": bar(channel.used(record), channel.state)} for record in reversed(channel.records)
            ],
            "events": events,
            "request": lane.requests.get(ends),
        },
    )


def _events(lane: LaneModel, ends: ChannelId) -> list[Any]:
    return [event for event in reversed(lane.events) if (event["sender"], event["recipient"]) == ends][:LIST_MAX]
