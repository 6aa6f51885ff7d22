# SPDX-License-Identifier: Apache-2.0
"""docs/metrics.md has every metric as it is defined."""

from __future__ import annotations

from tests.tidy.metric_page import OF_PLUGINS, PAGE, render, tables
from validator.metrics.definitions import METRICS


def test_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables() in text, "run python -m tests.tidy.metric_page"
    assert render(text) == text


def test_every_metric_is_in_one_table() -> None:
    for metric in (*METRICS, *OF_PLUGINS):
        assert tables().count(f"| `{metric.name}` |") == 1, metric.name
