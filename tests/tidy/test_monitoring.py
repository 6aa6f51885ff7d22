# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alerts use metrics and labels that exist, and promtool agrees where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tidy.dashboard import COLUMNS, DASHBOARD
from tests.tidy.metric_page import OF_PLUGINS
from tests.tidy.tree import ROOT
from validator.cli.main import COMMANDS
from validator.metrics.definitions import BY_NAME as OF_PRODUCT
from validator.metrics.definitions import METRICS, Kind
from validator.plugin.rule_pages import anchor

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "validator.rules.yml"
TESTS = FOLDER / "validator.test.yml"

BY_NAME = OF_PRODUCT | {metric.name: metric for metric in OF_PLUGINS}
OF_PROMETHEUS = {"instance", "job"}
FUNCTIONS = {"le"}

STALL_SIGNALS = (
    "validator_para_watermark_lag_blocks",
    "validator_para_downward_oldest_age_blocks",
    "validator_para_upward_head_age_blocks",
    "validator_channel_messages_used_ratio",
    "validator_channel_bytes_used_ratio",
    "validator_lane_requests_expiring",
    "validator_lane_request_age_sessions",
    "validator_lane_pending_candidates_carried_total",
    "validator_para_rejections_total",
)
"""Metrics of which each has an alert: what stops a para or a chain without any error."""


def labels_of(expression: str) -> set[str]:
    """Return the labels of all metrics in an expression. Fails if one of them is not defined."""
    found: set[str] = set()
    names = re.findall(r"\bvalidator_\w+", expression)
    assert names or "up{" in expression, expression
    for name in names:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        metric = BY_NAME.get(name) or BY_NAME.get(base)
        assert metric is not None, f"{name} is not defined"
        assert (name != base) <= (metric.kind is Kind.HISTOGRAM), name
        found |= set(metric.labels)
    return found


def used_labels(expression: str) -> set[str]:
    """Return the labels that an expression selects by, groups by or asks for."""
    found: set[str] = set()
    for inside in re.findall(r"\{([^}]*)\}", expression):
        found |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
    for inside in re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", expression):
        found |= set(re.findall(r"\w+", inside))
    return found


def alerts() -> Iterator[tuple[str, str, str]]:
    """Yield name, expression and text of each alert."""
    for text in RULES.read_text(encoding="utf-8").split("- alert: ")[1:]:
        name = text.split("\n", 1)[0]
        expression = re.search(r"\n +expr: (.*)\n", text)
        assert expression is not None, name
        yield name, expression[1], text


@pytest.mark.parametrize(("name", "expression", "text"), list(alerts()), ids=lambda each: each[:40])
def test_alert_uses_what_exists(name: str, expression: str, text: str) -> None:
    labels = labels_of(expression) | OF_PROMETHEUS
    assert used_labels(expression) <= labels
    shown = set(re.findall(r"\$labels\.(\w+)", text))
    assert shown <= labels, name
    assert shown, f"{name} does not say what it is about"
    assert re.search(r"severity: (info|warning|critical)\b", text)


def test_each_alert_has_a_test_and_each_stall_signal_an_alert() -> None:
    tested = re.findall(r"alertname: (\w+)", TESTS.read_text(encoding="utf-8"))
    names = [name for name, _, _ in alerts()]
    assert len(set(names)) == len(names)
    assert {name: tested.count(name) for name in names} == dict.fromkeys(names, 2)
    assert set(tested) == set(names)
    expressions = " ".join(expression for _, expression, _ in alerts())
    assert [each for each in STALL_SIGNALS if each not in expressions] == []


def test_each_alert_leads_to_its_entry_with_a_command_and_a_repair() -> None:
    page = (ROOT / "docs" / "on-call.md").read_text(encoding="utf-8")
    entries = {
        anchor(heading, {}): text
        for heading, text in re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    }
    found = {
        name: re.search(r'runbook_url: "{{ \$externalLabels.validator_docs }}on-call.html#(\w+)"', text)
        for name, _, text in alerts()
    }
    assert [name for name, link in found.items() if link is None] == []
    assert {name: link[1] for name, link in found.items() if link} == {name: anchor(name, {}) for name in found}
    assert {anchor(name, {}) for name in found} == set(entries)
    for name, text in entries.items():
        assert re.search(r"^- \*\*First:\*\* .+\n(.*\n)*- \*\*Repair:\*\* .", text, re.MULTILINE), name
        for command in re.findall(r"`validator ([a-z-]+)", text):
            assert command in COMMANDS or command == "messages", command


def test_series_of_the_rule_tests_are_complete() -> None:
    for name, labels in re.findall(r"- series: '(\w+)\{([^}]*)\}'", TESTS.read_text(encoding="utf-8")):
        expected = OF_PROMETHEUS | (set() if name == "up" else set(BY_NAME[name].labels))
        assert set(re.findall(r'(\w+)="', labels)) == expected, name


def test_dashboard_uses_what_exists() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    panels: list[dict[str, Any]] = [each for each in json.loads(text)["panels"] if each["type"] != "row"]
    assert len(panels) > 20
    shown: set[str] = set()
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= COLUMNS
        for target in panel["targets"]:
            labels = labels_of(target["expr"]) | OF_PROMETHEUS | FUNCTIONS
            assert used_labels(target["expr"]) <= labels, target["expr"]
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target["legendFormat"]
            shown |= set(re.findall(r"\bvalidator_\w+", target["expr"]))
    assert len(shown) > len(METRICS) // 2
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)
    for variable in json.loads(text)["templating"]["list"][1:]:
        assert used_labels(variable["query"]["query"]) <= labels_of(variable["query"]["query"])


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it comes with Prometheus")
    return found


@pytest.mark.parametrize(
    "arguments",
    [("check", "rules", RULES.name), ("check", "config", "prometheus.yml"), ("test", "rules", TESTS.name)],
    ids=" ".join,
)
def test_promtool_agrees(promtool: str, arguments: tuple[str, ...]) -> None:
    ended = subprocess.run([promtool, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_page_is_valid_for_promtool(promtool: str) -> None:
    """Names and types of all metrics follow the conventions that promtool checks."""
    from prometheus_client import CollectorRegistry, generate_latest

    from validator.metrics.report import LANE, TRANSPORT, Report
    from validator.metrics.store import MetricStore

    store = MetricStore(["polkadot"])
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            store.observe(metric.name, 1.0)
        elif metric.labels[:1] in [(LANE,), (TRANSPORT,)]:
            store.set(metric.name, 1, *("polkadot", "2000", "2004")[: len(metric.labels)])
        else:
            store.set(metric.name, 1, *("x" for _ in metric.labels))
    store.take(Report(LANE, "polkadot"))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(store)
    page = generate_latest(registry)
    ended = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert ended.returncode == 0, (ended.stdout + ended.stderr).decode()
