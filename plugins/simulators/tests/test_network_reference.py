# SPDX-License-Identifier: Apache-2.0
"""The reference table is reproduced, and the page on networking shows what the program measures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from validator_simulators.network import CASES, COLUMNS, Case, Report, differing, figures, simulate
from validator_simulators.network.command import Played

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGE = DOCS / "xcmp-networking.md"
PLACES = {"mean": 2, "p99": 0, "oldest": 0, "jain": 3, "refused": 3, "stalled": 0}

KNOWN_TO_DIFFER = {"99 senders of 1 MB, K = 4": ["mean"]}
"""The page says why."""


@pytest.fixture(scope="module")
def played() -> list[Played]:
    return [Played(case, report := simulate(case.settings), differing(case, report)) for case in CASES]


def test_every_row_agrees_except_where_the_page_says_so(played: list[Played]) -> None:
    assert sum(bool(each.case.published) for each in played) == 18
    assert {each.case.name: each.differs for each in played if each.differs} == KNOWN_TO_DIFFER


def test_difference_is_found(played: list[Played]) -> None:
    report: Report = next(each.report for each in played if each.case.name == "load 1.5, free")
    right = {column: str(value) for column, value in figures(report).items()}
    assert differing(Case("", report.settings, right), report) == []
    assert differing(Case("", report.settings), report) == []
    for column in COLUMNS:
        wrong = {**right, column: str(float(right[column]) * 1.1 + 5)}
        assert differing(Case("", report.settings, wrong), report) == [column]
    assert differing(Case("", report.settings, {**right, "refused": "0.33-0.35"}), report) == []
    assert differing(Case("", report.settings, {**right, "refused": "0.36-0.40"}), report) == ["refused"]


def row(each: Played) -> str:
    """Return the page's row of a run: measured, and published in brackets."""
    cells = []
    for column, value in figures(each.report).items():
        published = each.case.published.get(column)
        cells.append(f"{value:,.{PLACES[column]}f}" + (f" ({published})" if published else ""))
    return f"| {each.case.name} | " + " | ".join(cells) + " |"


def test_page_has_the_table_that_the_program_measures(played: list[Played]) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(
        "| case | lag, mean | lag, p99 | oldest unread | Jain, bytes | refused | stalled |\n"
    )
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    assert rows == [row(each) for each in played]


def split(svg: Path) -> tuple[str, list[float]]:
    """Return a plot without its ids, which are hashes of numbers, and its numbers, whose last digits depend on the processor."""
    text = re.sub(r'id="[^"]*"|url\(#[^)]*\)|href="#[^"]*"', "", svg.read_text(encoding="utf-8"))
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
    return number.sub("", text), [float(each) for each in number.findall(text)]


def test_page_shows_the_plots_that_the_program_draws(played: list[Played], tmp_path: Path) -> None:
    mpl = pytest.importorskip("matplotlib", reason="matplotlib comes with the extra plots")
    pinned = re.search(r"^matplotlib==(\S+)", (ROOT / "requirements.txt").read_text(encoding="ascii"), re.MULTILINE)
    if pinned is None or mpl.__version__ != pinned[1]:
        pytest.skip(f"other versions of matplotlib than the pinned one draw other bytes: {mpl.__version__}")
    from validator_simulators.network.plots import drawing

    drawn = list(drawing(tmp_path, ["svg"])(played))
    assert len(drawn) == 5
    text = PAGE.read_text(encoding="utf-8")
    for path in drawn:
        assert f"]({path.name})" in text
        (shape, numbers), (committed, expected) = split(path), split(DOCS / path.name)
        assert shape == committed, f"docs/{path.name} is not what the page's command draws"
        assert numbers == pytest.approx(expected, abs=0.01)


def test_changed_plot_is_found(tmp_path: Path) -> None:
    original = DOCS / "message-network-refused.svg"
    other = tmp_path / "other.svg"
    other.write_text(original.read_text(encoding="utf-8").replace("1 - 1 / load", "1 - load"), encoding="utf-8")
    assert split(other)[0] != split(original)[0]
    assert len(split(original)[1]) > 100
