# SPDX-License-Identifier: Apache-2.0
"""The map of channels: paras on a circle, a line for each channel, its width by traffic and its colour by headroom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from markupsafe import Markup

from validator.console.limits import MAP_CHANNELS_MAX, MAP_PARAS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.console.kept import ChannelId, KeptChannel

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
_RANK: Final = {"full": 0, "nearly": 1}
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
    order = sorted(open_ones, key=lambda ends: (_RANK.get(open_ones[ends].state, 2), -open_ones[ends].messages, ends))
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
