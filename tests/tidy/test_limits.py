# SPDX-License-Identifier: Apache-2.0
"""Each number of the table of limits equals the constant that its row names."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest

from tests.tidy.tree import ROOT
from validator.cli.topics import duration
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, METRICS_TOPIC, TOPICS, Topic
from validator.waiting import Pauses

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
IN_NAMES = {"_MS": 1 / 1000, "_KIB": 1 << 10}


def limits() -> list[tuple[str, str, str]]:
    """Return (default, module, constant) of each row whose default begins with a number and is set by one constant."""
    rows = re.findall(
        r"^\|[^|]+\| (?:about )?(\d[^|]*) \| `([\w/]+)\.py (\w+)`",
        (ROOT / "docs" / "limits.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) > 40
    return rows


def constant(path: str, name: str) -> Any:
    package = "" if path.startswith("streaming/") else "validator."
    value = getattr(import_module(package + path.replace("/", ".")), name)
    if isinstance(value, Pauses):
        return value.longest_s
    return value * next((factor for unit, factor in IN_NAMES.items() if unit in name), 1)


@pytest.mark.parametrize(("default", "path", "name"), limits(), ids=lambda each: each)
def test_default_is_what_the_constant_says(default: str, path: str, name: str) -> None:
    number, unit = re.match(r"([\d,]+) ?(\w*)", default).groups()  # type: ignore[union-attr]
    value = int(number.replace(",", "")) * UNITS.get(unit, 1)
    assert value == constant(path, name), "the table of limits in docs/limits.md has another number"


def kept(topic: Topic) -> str:
    if topic.cleanup == "compact":
        return "newest of each key"
    return "forever" if topic.retention_ms < 0 else duration(topic.retention_ms)


def test_retention_of_each_topic_is_in_the_table() -> None:
    text = (
        (ROOT / "docs" / "operations.md")
        .read_text(encoding="utf-8")
        .partition("\n## Retention\n")[2]
        .partition("\n## ")[0]
    )
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    found = {name: row[1] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert found == {topic.name: kept(topic) for topic in (*TOPICS, CURSORS_TOPIC, METRICS_TOPIC, *DRY_RUN_TOPICS)}
