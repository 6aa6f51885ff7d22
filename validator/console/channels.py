# SPDX-License-Identifier: Apache-2.0
"""The pages of channels: the map, and one channel.

The map has paras on a circle and a line for each channel, its width by traffic and its colour by headroom.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup

from validator.console.context import ConsoleContext, Missing, Page, Query, link_of, number_of
from validator.console.limits import LIST_MAX, MAP_CHANNELS_MAX, MAP_PARAS_MAX
from validator.console.model import ChannelId, KeptChannel
from validator.console.rendering import bar, count
from validator.core.limits import UNREACHED
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.console.model import LaneModel


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
    order = _ordered(shown)
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


def _ordered(channels: Mapping[ChannelId, KeptChannel]) -> list[ChannelId]:
    """Return channels, full ones first, then nearly full ones, then those with the most traffic."""
    return sorted(channels, key=lambda ends: (_RANK.get(channels[ends].state, 2), -channels[ends].messages, ends))


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


SIZE: Final = 640
RADIUS: Final = 240
CSS: Final = {"full": "e-bad", "nearly": "e-warn", "room": "e-ok", "unknown": "e-quiet", "gone": "e-quiet"}
WORDS: Final = {
    "full": "full",
    "nearly": "at least 80 % used",
    "room": "room left",
    "unknown": "headroom not known",
    "gone": "gone",
}
WIDTH_MAX: Final = 6.0


class Drawn(NamedTuple):
    """The map, and how many channels and paras it leaves out."""

    svg: Markup
    channels: int
    paras: int
    channels_left_out: int


def draw(channels: Mapping[ChannelId, KeptChannel], link: str) -> Drawn:
    """Return the map of open channels; if there are too many, of full ones and then of those with the most traffic."""
    open_ones = {ends: channel for ends, channel in channels.items() if channel.state != "gone"}
    order = _ordered(open_ones)
    chosen: list[ChannelId] = []
    paras: set[int] = set()
    for ends in order:
        if len(chosen) < MAP_CHANNELS_MAX and len(paras | set(ends)) <= MAP_PARAS_MAX:
            chosen.append(ends)
            paras |= set(ends)
    places = _places(sorted(paras))
    most = max((open_ones[ends].messages for ends in chosen), default=0)
    edges = [_edge(ends, open_ones[ends], places, most) for ends in reversed(chosen)]  # the full ones on top
    nodes = [_node(para, places, chosen, link, first=not at) for at, para in enumerate(sorted(paras))]
    label = f"{len(chosen)} channels between {len(paras)} paras; the table has the same"
    svg = _MAP.format(SIZE, SIZE, label, Markup("").join(edges), Markup("").join(nodes))
    return Drawn(svg, len(chosen), len(paras), len(order) - len(chosen))


def _places(paras: list[int]) -> dict[int, tuple[float, float, float]]:
    """Return each para's place on the circle, and its angle from the top in radians."""
    places = {}
    for at, para in enumerate(paras):
        angle = 2 * math.pi * at / max(1, len(paras))
        x, y = SIZE / 2 + RADIUS * math.sin(angle), SIZE / 2 - RADIUS * math.cos(angle)
        places[para] = (x, y, angle)
    return places


def _edge(ends: ChannelId, channel: KeptChannel, places: Mapping[int, tuple[float, float, float]], most: int) -> Markup:
    (x1, y1, _), (x2, y2, _) = places[ends[0]], places[ends[1]]
    # the way to the middle, and to the right of the way, so that both directions can be seen
    middle_x, middle_y = (x1 + x2) / 2, (y1 + y2) / 2
    bend_x = middle_x + (SIZE / 2 - middle_x) * 0.35 + (y2 - y1) * -0.09
    bend_y = middle_y + (SIZE / 2 - middle_y) * 0.35 + (x2 - x1) * 0.09
    width = 1.2 if not channel.messages else 1.5 + (WIDTH_MAX - 1.5) * math.sqrt(channel.messages / most)
    path = f"M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"
    css = CSS[channel.state] if channel.messages or channel.state in _RANK else "e-quiet"
    words = f"{ends[0]} → {ends[1]}: {channel.messages} messages, {WORDS[channel.state]}"
    return _EDGE.format(css=css, sender=ends[0], recipient=ends[1], path=path, width=round(width, 1), words=words)


def _node(
    para: int,
    places: Mapping[int, tuple[float, float, float]],
    chosen: list[ChannelId],
    link: str,
    *,
    first: bool,
) -> Markup:
    x, y, angle = places[para]
    degree = sum(para in ends for ends in chosen)
    radius = min(10.0, 3.5 + degree * 0.5)
    degrees = math.degrees(angle)
    on_left = degrees > 180
    turned = degrees - 90 + (180 if on_left else 0)
    reach = RADIUS + radius + 6
    text_x, text_y = SIZE / 2 + reach * math.sin(angle), SIZE / 2 - reach * math.cos(angle)
    return _NODE.format(
        href=f"{link}/paras/{para}",
        tab=0 if first else -1,
        para=para,
        x=round(x, 1),
        y=round(y, 1),
        radius=round(radius, 1),
        text_x=round(text_x, 1),
        text_y=round(text_y, 1),
        turned=round(turned, 1),
        anchor="end" if on_left else "start",
        degree=degree,
    )


_MAP: Final = Markup('<svg id="map" class="map" viewBox="0 0 {} {}" role="group" aria-label="{}">{}{}</svg>')
_EDGE: Final = Markup(
    '<path class="edge {css}" data-s="{sender}" data-r="{recipient}" d="{path}" stroke-width="{width}"><title>{words}</title></path>'
)
_NODE: Final = Markup(
    '<a href="{href}" tabindex="{tab}" data-p="{para}" aria-label="Para {para}, {degree} channels"><circle cx="{x}" cy="{y}" r="{radius}"/>'
    '<text x="{text_x}" y="{text_y}" dy="4" text-anchor="{anchor}" transform="rotate({turned} {text_x} {text_y})">{para}</text></a>'
)
