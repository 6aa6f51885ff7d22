# SPDX-License-Identifier: Apache-2.0
"""Every made file is up to date, and pages of docs/ that are made from the program leave nothing out."""

from __future__ import annotations

import re

from tests.tidy import change_page, metric_page, record_page
from tests.tidy.made import outdated
from validator.job.start_check import ROWS
from validator.metrics.definitions import METRICS


def test_every_made_file_is_up_to_date() -> None:
    assert [str(path) for path, _ in outdated()] == [], "run make generate"


def test_every_key_of_the_configuration_has_a_row() -> None:
    keys = change_page.configuration_keys()
    lacking = [key for key in keys if change_page.row_of(key) is None]
    assert not lacking, (
        "add the new key to TABLE of job.start_check, and a change of it to tests/unit/lanes/test_kept_start.py"
    )
    assert set(change_page.NOTES) <= set(keys)
    assert all(any(key == row or key.startswith(f"{row}.") for key in keys) for row in ROWS), "a row is of no key"


def test_every_metric_is_in_one_table() -> None:
    tables = metric_page.tables()
    for metric in (*METRICS, *metric_page.OF_PLUGINS):
        assert tables.count(f"| `{metric.name}` |") == 1, metric.name


def test_every_field_of_every_schema_has_its_meaning() -> None:
    assert sorted((*record_page.INPUTS, *record_page.OUTPUTS, *record_page.DRY_RUNS)) == record_page.schema_names()
    rows = re.findall(r"^\| `\w+` \|.*$", record_page.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row for row in rows if row.endswith("|  |")] == []
