# SPDX-License-Identifier: Apache-2.0
"""Plots of `validator what-if`: queues and headroom over the blocks, under each configuration. Imported only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from validator.cli.plots import Figure, in_style, save

if TYPE_CHECKING:
    from validator.history.what_if import Levels, Replayed

NAME: Final = "what-if"
LINES: Final = ("-", "--", "-.", ":")

PLOTS: Final = {
    "queues": (
        "Messages waiting",
        (
            ("downward_pending", "downward, all paras"),
            ("upward_pending", "upward, all paras"),
            ("channel_pending", "in all channels"),
        ),
    ),
    "upward": (
        "Least that a para can still send upward",
        (("upward_count_left_min", "messages"), ("upward_bytes_left_min", "bytes")),
    ),
    "channels": (
        "Least that a channel can still take",
        (("places_left_min", "places"), ("bytes_left_min", "bytes")),
    ),
}
"""By the end of the file's name: the title, and fields of `Sample` with what they count."""


def drawing(directory: Path, formats: Sequence[str]) -> Callable[[Replayed], Iterator[Path]]:
    """Return a function that draws the plots of a replay and yields the paths of the files; a plot without data is left out."""

    def draw(replayed: Replayed) -> Iterator[Path]:
        series = [("own", replayed.levels), *((each.name, each.levels) for each in replayed.comparisons)]
        with in_style(NAME):
            for name, (title, fields) in PLOTS.items():
                figure = _figure(title, fields, series)
                if figure is not None:
                    yield from save(figure, directory, f"{NAME}-{name}", formats)

    return draw


def _figure(title: str, fields: Sequence[tuple[str, str]], series: Sequence[tuple[str, Levels]]) -> Figure | None:
    shown = [
        (field, words)
        for field, words in fields
        if any(getattr(sample, field) is not None for _, levels in series for sample in levels.samples)
    ]
    if not shown:
        return None
    figure = Figure(figsize=(7, 1 + 2.6 * len(shown)), layout="constrained")
    figure.suptitle(title)
    rows: Any = figure.subplots(len(shown), 1, squeeze=False)
    for (axes,), (field, words) in zip(rows, shown, strict=True):
        for at, (name, levels) in enumerate(series):
            points = [(each.block, getattr(each, field)) for each in levels.samples if getattr(each, field) is not None]
            axes.plot(
                [block for block, _ in points],
                [value for _, value in points],
                LINES[at % len(LINES)],
                linewidth=1.2,
                label=name,
            )
        axes.set(ylabel=words, ylim=(0, None))
    rows[-1][0].set(xlabel="relay block")
    rows[0][0].legend(loc="best")
    return figure
