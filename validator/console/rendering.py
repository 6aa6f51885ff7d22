# SPDX-License-Identifier: Apache-2.0
"""Turns pages into HTML, whole or in the parts that change: numbers and times, plots and bars as inline SVG, templates.

Sizes are attributes, colours are classes of the style sheet. Every value is made visible and escaped in one place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from validator.core.limits import UNREACHED
from validator.effects import ranges
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.console.context import Page
    from validator.console.model import KeptBlock, Rates


KIB: Final = 1024
NOTHING: Final = "\u2013"
"""A number that is not known."""


def count(value: int | None) -> str:
    """Return an integer with separators, all digits shown."""
    return NOTHING if value is None else f"{value:,}"


def left(value: int) -> str:
    """Return what is left of a limit."""
    return "any number" if value > UNREACHED else count(value)


def size(value: int | None) -> str:
    """Return a number of bytes: exact below 10 KiB, then in KiB or MiB."""
    if value is None:
        return NOTHING
    if value > UNREACHED:
        return "any number of bytes"
    if value < 10 * KIB:
        return f"{value:,} B"
    if value < 10 * KIB * KIB:
        return f"{value / KIB:,.1f} KiB"
    return f"{value / KIB / KIB:,.1f} MiB"


def sizes(values: Iterable[int]) -> dict[int, str]:
    """Return numbers of bytes as texts that can be compared: all in one unit, and exact if two of them would look the same."""
    rounded = {value: size(value) for value in values}
    reached = [text for value, text in rounded.items() if value <= UNREACHED]
    if len({text.rpartition(" ")[2] for text in reached}) <= 1 and len(set(reached)) == len(reached):
        return rounded
    return {value: text if value > UNREACHED else f"{value:,} B" for value, text in rounded.items()}


def grouped(text: str) -> str:
    """Return a text of the job with separators in its long numbers, which are blocks."""
    return re.sub(r"\b\d{4,}\b", lambda found: count(int(found[0])), text)


def plural(value: int, what: str) -> str:
    """Return a count of things, such as ``1 block`` and ``2 blocks``."""
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def short_hex(text: str) -> str:
    """Return the beginning and the end of a hash in hex."""
    return text if len(text) <= 16 else f"{text[:8]}…{text[-4:]}"


def at(time_ms: int) -> str:
    """Return a Kafka timestamp as a time of the day in UTC, with the date."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time_ms > 0 else NOTHING


def clock(time_ms: int) -> str:
    """Return a Kafka timestamp as a time of the day in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S") if time_ms > 0 else NOTHING


def duration(milliseconds: float) -> str:
    """Return a duration with a unit that suits it."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.1f} s"
    return f"{milliseconds / 60_000:,.0f} min"


def plain(value: Any) -> str:
    """Return the value of a field as a person writes it: a channel as ``sender → recipient``."""
    if isinstance(value, dict):
        return " → ".join(map(plain, value.values()))
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def hex_dump(data: bytes, bytes_max: int) -> str:
    """Return lines with an offset, 16 bytes in hex and their ASCII characters."""
    lines = []
    for start in range(0, min(len(data), bytes_max), 16):
        row = data[start : min(start + 16, bytes_max)]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:06x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)


WIDTH: Final = 600
PLOT_HEIGHT: Final = 120
STRIP_HEIGHT: Final = 132
LABEL_ROOM: Final = 100
"""Room for a label of the strip."""
LEFT: Final = 58
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
    slots = max(len(blocks), 30)
    step = (WIDTH * 2) / slots
    middle, room = 74, 58
    parts = []
    for at, block in enumerate(blocks):
        x = round((slots - len(blocks) + at) * step, 1)  # the newest is at the right end, where a phone looks first
        up, down = room * block.accepted / most, min(28, room * block.rejected / most)
        when = f"block {count(block.block)}, {clock(block.time_ms)} UTC"
        words = f"{when}: {count(block.accepted)} accepted, {count(block.rejected)} rejected"
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
        if at % max(1, len(blocks) // 6) == 0 and x < WIDTH * 2 - LABEL_ROOM:
            parts.append(_LABEL.format(x=x, y=STRIP_HEIGHT - 17, text=count(block.block)))
            parts.append(_LABEL.format(x=x, y=STRIP_HEIGHT - 2, text=f"{clock(block.time_ms)} UTC"))
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
    ends = f"{ends[0]} UTC", f"{ends[1]} UTC"
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
    '<path class="s-strong dotted" d="M{x} 0V104"/><text x="{text_x}" y="12" text-anchor="{anchor}">session {session}</text>'
)
_LABEL: Final = Markup('<text x="{x}" y="{y}">{text}</text>')
_AXIS: Final = Markup('<text x="{x}" y="{y}" text-anchor="end">{text}</text>')
_LINE: Final = Markup('<path class="s-line" d="M{left} {y}H{right}"/>')
_STRIP: Final = Markup(
    '<svg class="strip" viewBox="0 0 {} {}" role="group" aria-label="Blocks, the newest last">{}</svg>'
)
_PLOT: Final = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')


LIVE: Final = "live_"
"""Blocks whose names begin so are the parts that live updates replace; each stands in an element with its name as ``data-part``."""
BASE: Final = "base.html"


def _visible(value: Any) -> Any:
    """Return a template's value; text that did not come from a template shows what is invisible in it."""
    return printable(value) if type(value) is str else value


def lines(text: str) -> Markup:
    """Return text of several lines, each made visible."""
    return escape(printable_lines(text.replace("\r\n", "\n")))


def breakable(name: str) -> Markup:
    """Return the name of a rule, which may be broken behind its parts and before its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[/a-z0-9])(?=[A-Z])", printable(name)))


@cache
def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("validator.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": count,
        "size": size,
        "left": left,
        "grouped": grouped,
        "plural": plural,
        "short": short_hex,
        "at": at,
        "clock": clock,
        "duration": duration,
        "plain": plain,
        "lines": lines,
        "breakable": breakable,
        "ranges": ranges,
        "pretty": lambda value: lines(json.dumps(value, indent=2)),
    }
    made.globals["bar"] = bar
    made.globals["ui"] = made.get_template("ui.html").module
    return made


def render(page: Page, more: dict[str, Any]) -> str:
    """Return a whole page."""
    return environment().get_template(page.template).render(page.context | more)


def parts(page: Page, more: dict[str, Any]) -> dict[str, str]:
    """Return the live parts of a page by name."""
    made = environment()
    found: dict[str, str] = {}
    for name in (BASE, page.template):
        template = made.get_template(name)
        context = template.new_context(page.context | more)
        for block, rendered in template.blocks.items():
            if block.startswith(LIVE):
                found[block] = "".join(rendered(context))
    return found
