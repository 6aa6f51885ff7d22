# SPDX-License-Identifier: Apache-2.0
"""Plots of `validator simulate network`. Imported only when they are asked for: matplotlib comes with the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from validator.cli.plots import Figure, in_style, save

if TYPE_CHECKING:
    from validator_simulators.network.command import Played

NAME: Final = "message-network"
CASES_MAX: Final = 5
"""Runs that one plot over time shows, the first ones."""


def drawing(directory: Path, formats: Sequence[str]) -> Callable[[Sequence[Played]], Iterator[Path]]:
    """Return a function that draws the plots of runs and yields the paths of the files; a plot without data is left out."""

    def draw(played: Sequence[Played]) -> Iterator[Path]:
        with in_style(NAME):
            for name, plot in PLOTS.items():
                figure = plot(played)
                if figure is not None:
                    yield from save(figure, directory, f"{NAME}-{name}", formats)

    return draw


def _figure(title: str, width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title)
    return figure, figure.subplots(rows, columns)


def lag(played: Sequence[Played]) -> Figure | None:
    """Draw the lag of overloaded runs against its bound."""
    shown = [each.report for each in played if each.report.total.load > 1]
    if not shown:
        return None
    figure, axes = _figure("Acknowledgement lag under overload, and its bound", 6, 4.5)
    bounds = [report.law.lag_blocks_max for report in shown]
    ends = [min(bounds) * 0.8, max(bounds) * 1.25]
    axes.plot(ends, ends, "k--", linewidth=1, label="bound: K Σ mean size / I")
    axes.scatter(bounds, [report.total.lag_blocks.p99 for report in shown], marker="_", s=60, label="99th percentile")
    axes.scatter(bounds, [report.total.lag_blocks.mean for report in shown], s=18, label="mean")
    axes.set(xscale="log", yscale="log", xlabel="bound [blocks]", ylabel="lag [blocks]")
    axes.legend()
    return figure


def refused(played: Sequence[Played]) -> Figure | None:
    """Draw the share that is refused against the load."""
    shown = [each.report.total for each in played]
    most = max(2.0, *(group.load for group in shown)) * 1.2
    figure, axes = _figure("Refused messages", 6, 4)
    loads = [10 ** (step / 100) for step in range(-50, 300) if 10 ** (step / 100) <= most]
    axes.plot(loads, [max(0.0, 1 - 1 / load) for load in loads], "k--", linewidth=1, label="1 - 1 / load")
    axes.scatter([group.load for group in shown], [group.refused_share for group in shown], s=18, label="measured")
    axes.set(
        xscale="log", xlabel="load: bytes offered / bytes that can be taken in", ylabel="refused share", ylim=(-0.03, 1)
    )
    axes.legend()
    return figure


def queue(played: Sequence[Played]) -> Figure | None:
    """Draw unread messages and the age of the oldest one over time."""
    grown = [each for each in played if each.report.total.load > 1] or list(played)
    shown = grown[:CASES_MAX]
    figure, (above, below) = _figure("Unread messages over time", 7, 6, rows=2)
    for each, style in zip(shown, ("-", "--", "-.", ":", "-", "--"), strict=False):
        samples = each.report.samples
        blocks = [sample.block for sample in samples]
        above.plot(blocks, [sample.unread_messages for sample in samples], style, linewidth=1.2, label=each.case.name)
        below.plot(
            blocks, [sample.oldest_unread_blocks for sample in samples], style, linewidth=1.2, label=each.case.name
        )
    above.set(ylabel="unread messages", ylim=(0, None))
    below.set(xlabel="relay block", ylabel="age of the oldest [blocks]", yscale="symlog", ylim=(0, None))
    above.legend(loc="lower right")
    return figure


def late(played: Sequence[Played]) -> Figure | None:
    """Draw what late and lost bodies do to lag and to blocks."""
    shown = [each for each in played if each.case.settings.late_share or each.case.settings.lost_share]
    if not shown:
        return None
    names = [each.case.name for each in shown]
    figure, (left, right) = _figure("Late and lost bodies", 8, 1.2 + 0.4 * len(shown), columns=2)
    left.barh(names, [each.report.total.lag_blocks.mean for each in shown], color="C0")
    left.set(xlabel="mean lag [blocks]", xlim=(1, None))
    right.barh(names, [each.report.total.stalled_blocks for each in shown], color="C1")
    right.set(xlabel="stalled blocks", yticklabels=[])
    for axes in (left, right):
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    return figure


def transports(played: Sequence[Played]) -> Figure | None:
    """Draw the bytes that each transport moves, as a multiple of the optimum."""
    costs = {cost.transport: cost.amplification for cost in played[0].report.costs}
    figure, axes = _figure("Bytes moved for one body and one recipient", 6, 2.6)
    bars = axes.barh(list(costs), list(costs.values()))
    axes.bar_label(bars, fmt="%.3g", padding=3)
    axes.set(xscale="log", xlabel="times the optimum", xlim=(0.8, max(costs.values()) * 4))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return figure


PLOTS: Final[dict[str, Callable[[Sequence[Played]], Figure | None]]] = {
    "lag": lag,
    "refused": refused,
    "queue": queue,
    "late": late,
    "transports": transports,
}
"""Every plot, by the end of its file's name; None if the runs have nothing to show."""
