# SPDX-License-Identifier: Apache-2.0
"""Plots and bars as inline SVG: sizes are attributes, colours are classes of the style sheet, and every text is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from markupsafe import Markup

from validator.console.shown import NOTHING, clock, count, duration
from validator.visible import printable

if TYPE_CHECKING:
    from validator.console.kept import KeptBlock
    from validator.console.lane import Rates

WIDTH: Final = 600
PLOT_HEIGHT: Final = 120
STRIP_HEIGHT: Final = 118
LEFT: Final = 44
"""Room for the labels of the axis."""
BUCKETS: Final = 60


class Curve(NamedTuple):
    """A line of a plot: its class, and by position from 0 to 1 its value; None leaves a gap."""

    css: str
    points: Sequence[tuple[float, float | None]]


def bar(share: float | None, state: str = "room") -> Markup:
    """Return a bar that is filled by a share from 0 to 1."""
    if share is None:
        return Markup('<span class="soft small">{}</span>').format(NOTHING)
    width = round(100 * min(1.0, max(0.0, share)), 1)
    drawn = Markup('<rect class="f-{}" width="{}" height="8"/>').format(state, width)
    return _BAR.format(drawn)


def strip(blocks: Sequence[KeptBlock], link: str) -> Markup:
    """Return one bar a block: accepted upwards, rejected downwards, sessions marked; each is a link to its verdicts."""
    if not blocks:
        return Markup("")
    most = max(1, *(max(block.accepted, 3 * block.rejected) for block in blocks))
    step = (WIDTH * 2) / max(len(blocks), 30)
    middle, room = 74, 58
    parts = []
    for at, block in enumerate(blocks):
        x = round(at * step, 1)
        up, down = room * block.accepted / most, min(28, room * block.rejected / most)
        words = f"block {count(block.block)}: {count(block.accepted)} accepted, {count(block.rejected)} rejected"
        fields = {
            "href": f"{link}/verdicts?block={block.block}",
            "words": words,
            "tab": 0 if at == len(blocks) - 1 else -1,
            "x": x,
            "wide": round(step, 1),
            "bar": round(step * 0.8, 1),
            "y": round(middle - up, 1),
            "up": round(up, 1),
            "down": round(down, 1),
            "middle": middle + 1,
        }
        parts.append(_BLOCK.format_map(fields))
        if at and block.session != blocks[at - 1].session:
            side = ("end", x - step * 0.1 - 5) if x > WIDTH * 2 - 70 else ("start", x + 3)
            parts.append(_SESSION.format(x=x - step * 0.1, anchor=side[0], text_x=side[1], session=block.session))
        elif at % max(1, len(blocks) // 6) == 0:
            parts.append(_LABEL.format(x=x, y=STRIP_HEIGHT - 2, text=count(block.block)))
    return _STRIP.format(WIDTH * 2, STRIP_HEIGHT, Markup("").join(parts))


def rate_plot(rates: Rates, now_ms: int) -> tuple[Markup, float]:
    """Return verdicts a second up to now, and how many a second there were in the last ten seconds."""
    now = now_ms // 1_000
    first = min((*rates.accepted, *rates.rejected), default=now)
    span = min(900, max(60, now - first + 1))
    step = math.ceil(span / BUCKETS)
    begin = now - step * BUCKETS

    def curve(css: str, seconds: dict[int, int]) -> Curve:
        sums = [0] * BUCKETS
        for second, number in seconds.items():
            at = (second - begin - 1) // step
            if 0 <= at < BUCKETS:
                sums[at] += number
        return Curve(css, [(at / (BUCKETS - 1), value / step) for at, value in enumerate(sums)])

    curves = [curve("s-ok", rates.accepted), curve("s-bad", rates.rejected)]
    recent = sum(rates.accepted[second] + rates.rejected[second] for second in range(now - 10, now)) / 10
    ends = clock((begin + 1) * 1_000), clock(now_ms)
    label = (
        f"Accepted and rejected verdicts a second from {ends[0]} to {ends[1]} UTC; {recent:.1f} in the last ten seconds"
    )
    return plot(
        curves, ends, label, lambda value: f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
    ), recent


def latency_plot(blocks: Sequence[KeptBlock]) -> tuple[Markup, str, str]:
    """Return the time from each block's record to its receipt, and the 50th and 99th percentile in words."""
    known = [block for block in blocks if block.latency_ms is not None]
    if len(known) < 2:
        return Markup(""), NOTHING, NOTHING
    values = sorted(block.latency_ms or 0 for block in known)
    half, most = values[len(values) // 2], values[min(len(values) - 1, len(values) * 99 // 100)]
    points: list[tuple[float, float | None]] = [
        (at / (len(known) - 1), float(block.latency_ms or 0)) for at, block in enumerate(known)
    ]
    ends = count(known[0].block), count(known[-1].block)
    label = (
        f"Latency of blocks {ends[0]} to {ends[1]}: half within {duration(half)}, 99 percent within {duration(most)}"
    )
    return plot([Curve("s-ok", points)], ends, label, duration), duration(half), duration(most)


def plot(curves: Sequence[Curve], ends: tuple[str, str], label: str, words: object) -> Markup:
    """Return curves over one axis, which begins at 0; ``words`` writes a value of the axis."""
    assert callable(words)
    top = _round_up(max((value for curve in curves for _, value in curve.points if value is not None), default=0))
    bottom, height = PLOT_HEIGHT - 20, PLOT_HEIGHT - 30
    parts = []
    for share in (0, 0.5, 1):
        y = round(bottom - share * height, 1)
        parts.append(_LINE.format(left=LEFT, y=y, right=WIDTH))
        parts.append(_AXIS.format(x=LEFT - 6, y=y + 4, text=words(top * share)))
    for curve in curves:
        path, down = [], False
        for at, value in curve.points:
            if value is None:
                down = False
                continue
            x, y = LEFT + at * (WIDTH - LEFT - 2), bottom - value / top * height
            path.append(f"{'L' if down else 'M'}{x:.1f} {y:.1f}")
            down = True
        parts.append(Markup('<path class="{} line" d="{}"/>').format(curve.css, "".join(path)))
    parts.append(_LABEL.format(x=LEFT, y=PLOT_HEIGHT - 3, text=ends[0]))
    parts.append(_AXIS.format(x=WIDTH - 2, y=PLOT_HEIGHT - 3, text=ends[1]))
    return _PLOT.format(WIDTH, PLOT_HEIGHT, printable(label), Markup("").join(parts))


def _round_up(value: float) -> float:
    """Return the next number that an axis can end with."""
    if value <= 0:
        return 1.0
    unit = 10 ** math.floor(math.log10(value))
    return next(float(step * unit) for step in (1, 2, 4, 5, 10) if step * unit >= value)


_BAR: Final = Markup(
    '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="f-sunk" width="100" height="8"/>{}</svg>'
)
_BLOCK: Final = Markup(
    '<a href="{href}" tabindex="{tab}" aria-label="{words}"><title>{words}</title>'
    '<rect class="hit" x="{x}" y="0" width="{wide}" height="104"/><rect class="f-ok" x="{x}" y="{y}" width="{bar}" height="{up}"/>'
    '<rect class="f-bad" x="{x}" y="{middle}" width="{bar}" height="{down}"/></a>'
)
_SESSION: Final = Markup(
    '<path class="s-strong dotted" d="M{x} 0V104"/><text x="{text_x}" y="9" text-anchor="{anchor}">session {session}</text>'
)
_LABEL: Final = Markup('<text x="{x}" y="{y}">{text}</text>')
_AXIS: Final = Markup('<text x="{x}" y="{y}" text-anchor="end">{text}</text>')
_LINE: Final = Markup('<path class="s-line" d="M{left} {y}H{right}"/>')
_STRIP: Final = Markup(
    '<svg class="strip" viewBox="0 0 {} {}" role="group" aria-label="Blocks, the newest last">{}</svg>'
)
_PLOT: Final = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
