# SPDX-License-Identifier: Apache-2.0
"""The pages of channels: the map, and one channel.

The map has paras on a circle and a line for each channel, its width by traffic and its colour by headroom.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup

from validator.console.context import ConsoleContext, Missing, Page, Query, number_of
from validator.console.limits import LIST_MAX, MAP_CHANNELS_MAX, MAP_PARAS_MAX
from validator.console.model import ChannelId, KeptChannel
from validator.console.rendering import bar
from validator.core.limits import UNREACHED
from validator.errors import UserError
from validator.sentences import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.console.model import LaneModel
    from validator.console.names import LaneLink


SHOWN: Final = ("all", "busy", "nearly", "full")
"""Which channels the map shows: all open ones, those with traffic, nearly full and full ones, full ones."""
FORMS: Final = ("circle", "matrix")
CIRCLE_CHANNELS_MAX: Final = 60
"""Channels up to which a reader can follow the lines between paras on a circle."""
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
    form = query.get("as") if query.get("as") in FORMS else "circle" if len(shown) <= CIRCLE_CHANNELS_MAX else "matrix"
    draw = draw_circle if form == "circle" else draw_matrix
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
            "map": draw(shown, console.link(lane.name)),
            "form": form,
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
        "places_most": None if now is None or channel.places_most > UNREACHED else channel.places_most,
        "as_of": None if now is None else now["block"],
    }


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
MATRIX_LEFT: Final = 34
MATRIX_TOP: Final = 34
"""Room for the paras' numbers."""
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


def _chosen(channels: Mapping[ChannelId, KeptChannel]) -> tuple[list[ChannelId], list[int], int]:
    """Return which open channels are drawn, full ones and those with the most traffic first, their paras, and how many are left out."""
    order = _ordered({ends: channel for ends, channel in channels.items() if channel.state != "gone"})
    chosen: list[ChannelId] = []
    paras: set[int] = set()
    for ends in order:
        if len(chosen) < MAP_CHANNELS_MAX and len(paras | set(ends)) <= MAP_PARAS_MAX:
            chosen.append(ends)
            paras |= set(ends)
    return chosen, sorted(paras), len(order) - len(chosen)


def draw_matrix(channels: Mapping[ChannelId, KeptChannel], link: LaneLink) -> Drawn:
    """Return a row for each sender and a column for each recipient; the fuller a cell's colour, the more messages."""
    chosen, paras, left_out = _chosen(channels)
    at = {para: number for number, para in enumerate(paras)}
    most = max((channels[ends].messages for ends in chosen), default=0)
    cell = round((SIZE - MATRIX_LEFT) / max(1, len(paras)), 2)
    parts = []
    for para, number in at.items():
        y = round(MATRIX_TOP + (number + 0.5) * cell, 1)
        x = round(MATRIX_LEFT + (number + 0.5) * cell, 1)
        name = link.names.get(para, "")
        parts.append(_AXIS.format(para=para, name=name, y=y, x=x, left=MATRIX_LEFT - 5, top=MATRIX_TOP - 5))
        parts.append(
            _LINES.format(
                y=round(y + cell / 2, 1), x=round(x + cell / 2, 1), end=SIZE, top=MATRIX_TOP, left=MATRIX_LEFT
            )
        )
    for first, (sender, recipient) in enumerate(sorted(chosen)):
        channel = channels[sender, recipient]
        share = 0.4 + 0.6 * (math.sqrt(channel.messages / most) if most else 0)
        parts.append(
            _CELL.format(
                href=f"{link}/channels/{sender}/{recipient}",
                tab=-1 if first else 0,
                words=_words((sender, recipient), channel, link),
                css=channel.state,
                x=round(MATRIX_LEFT + at[recipient] * cell + 0.5, 1),
                y=round(MATRIX_TOP + at[sender] * cell + 0.5, 1),
                size=round(cell - 1, 1),
                share=1 if channel.state in _RANK else round(share, 2),
            )
        )
    label = f"{len(chosen)} channels between {len(paras)} paras, senders in rows; the table has the same"
    svg = _MAP.format(SIZE, MATRIX_TOP + len(paras) * cell + 2, label, Markup(""), Markup("").join(parts))
    return Drawn(svg, len(chosen), len(paras), left_out)


def _words(ends: ChannelId, channel: KeptChannel, link: LaneLink) -> str:
    named = " → ".join(f"{end} {link.names[end]}" if end in link.names else str(end) for end in ends)
    return f"{named}: {plural(channel.messages, 'message')}, {WORDS[channel.state]}"


def draw_circle(channels: Mapping[ChannelId, KeptChannel], link: LaneLink) -> Drawn:
    """Return the map of open channels; if there are too many, of full ones and then of those with the most traffic."""
    chosen, paras, left_out = _chosen(channels)
    places = _places(paras)
    most = max((channels[ends].messages for ends in chosen), default=0)
    edges = [_edge(ends, channels[ends], places, most, link) for ends in reversed(chosen)]  # the full ones on top
    nodes = [_node(para, places, chosen, link, first=not at) for at, para in enumerate(paras)]
    label = f"{len(chosen)} channels between {len(paras)} paras; the table has the same"
    svg = _MAP.format(SIZE, SIZE, label, Markup("").join(edges), Markup("").join(nodes))
    return Drawn(svg, len(chosen), len(paras), left_out)


def _places(paras: list[int]) -> dict[int, tuple[float, float, float]]:
    """Return each para's place on the circle, and its angle from the top in radians."""
    places = {}
    for at, para in enumerate(paras):
        angle = 2 * math.pi * at / max(1, len(paras))
        x, y = SIZE / 2 + RADIUS * math.sin(angle), SIZE / 2 - RADIUS * math.cos(angle)
        places[para] = (x, y, angle)
    return places


def _edge(
    ends: ChannelId,
    channel: KeptChannel,
    places: Mapping[int, tuple[float, float, float]],
    most: int,
    link: LaneLink,
) -> Markup:
    (x1, y1, _), (x2, y2, _) = places[ends[0]], places[ends[1]]
    # the way to the middle, and to the right of the way, so that both directions can be seen
    middle_x, middle_y = (x1 + x2) / 2, (y1 + y2) / 2
    bend_x = middle_x + (SIZE / 2 - middle_x) * 0.35 + (y2 - y1) * -0.09
    bend_y = middle_y + (SIZE / 2 - middle_y) * 0.35 + (x2 - x1) * 0.09
    width = 1.2 if not channel.messages else 1.5 + (WIDTH_MAX - 1.5) * math.sqrt(channel.messages / most)
    path = f"M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}"
    css = CSS[channel.state] if channel.messages or channel.state in _RANK else "e-quiet"
    words = _words(ends, channel, link)
    return _EDGE.format(css=css, sender=ends[0], recipient=ends[1], path=path, width=round(width, 1), words=words)


def _node(
    para: int,
    places: Mapping[int, tuple[float, float, float]],
    chosen: list[ChannelId],
    link: LaneLink,
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
        name=link.names.get(para, ""),
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
_AXIS: Final = Markup(
    '<text x="{left}" y="{y}" dy="3.5" text-anchor="end"><title>{para} {name}</title>{para}</text>'
    '<text x="{x}" y="{top}" transform="rotate(-90 {x} {top})" dy="3.5"><title>{para} {name}</title>{para}</text>'
)
_LINES: Final = Markup('<path class="s-line" d="M{left} {y}H{end}M{x} {top}V{end}"/>')
_CELL: Final = Markup(
    '<a class="cell" href="{href}" tabindex="{tab}" aria-label="{words}"><title>{words}</title>'
    '<rect class="f-{css}" x="{x}" y="{y}" width="{size}" height="{size}" fill-opacity="{share}"/></a>'
)
_EDGE: Final = Markup(
    '<path class="edge {css}" data-s="{sender}" data-r="{recipient}" d="{path}" stroke-width="{width}"><title>{words}</title></path>'
)
_NODE: Final = Markup(
    '<a href="{href}" tabindex="{tab}" data-p="{para}" aria-label="Para {para} {name}, {degree} channels">'
    '<title>{para} {name}</title><circle cx="{x}" cy="{y}" r="{radius}"/>'
    '<text x="{text_x}" y="{text_y}" dy="4" text-anchor="{anchor}" transform="rotate({turned} {text_x} {text_y})">{para}</text></a>'
)
