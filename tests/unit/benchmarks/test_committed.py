# SPDX-License-Identifier: Apache-2.0
"""New figures against the committed ones: only what exceeds the noise of both counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.committed import Runs, read, worse, write

BEFORE = Runs((1.0, 1.2), judged=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.33, 1.4), "worse"),
        ((1.31, 2.0), "same"),  # its best run is within the noise
        ((0.95, 1.3), "same"),
        ((0.8, 0.9), "better"),
        ((0.8, 0.92), "same"),
    ],
)
def test_figure_is_judged_by_its_best_or_worst_run(values: tuple[float, ...], expected: str) -> None:
    assert Runs(values, judged=True).against(BEFORE) == expected


def test_times_of_day_are_not_judged() -> None:
    before = Runs((1.0,), judged=False)
    assert Runs((9.0,), judged=False).against(before) == ""
    assert worse({"p99": Runs((9.0,), judged=False)}, {"p99": before}) == []


def test_written_figures_are_read_again_and_new_ones_are_not_worse(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert read(path) == {}
    figures = {"core": BEFORE, "p50": Runs((0.7,), judged=False)}
    write(figures, path)
    assert read(path) == figures
    assert worse({"core": Runs((2.0,), judged=True), "new": Runs((2.0,), judged=True)}, figures) == ["core"]
