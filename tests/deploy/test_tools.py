# SPDX-License-Identifier: Apache-2.0
"""What other programs say of the files for containers, clusters and monitoring; `make lint` runs this module."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.deploy.tools import BASE, MANIFESTS, OBJECTS, documents, tool
from tests.tidy.dashboard import DASHBOARD
from tests.tidy.test_monitoring import alerts
from tests.tidy.tree import ROOT

KUBERNETES = ("1.31", "1.34")
"""The oldest and the newest version of Kubernetes whose schemas are checked."""


def run(*command: str) -> None:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_dockerfile_is_clean_for_hadolint() -> None:
    run(tool("hadolint"), "--failure-threshold", "style", "Dockerfile")


def test_compose_file_has_the_form_of_the_compose_specification() -> None:
    run(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "docker-compose.yml")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", [str(path.relative_to(MANIFESTS)) for path in (*OBJECTS, BASE / "executor.yaml")])
def test_manifest_has_the_form_of_kubernetes(name: str, version: str) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: make lint installs it"
    )
    found = documents(MANIFESTS / name)
    assert found
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


def expressions() -> list[tuple[str, str]]:
    """Return every PromQL expression of the alerts and of the dashboard, with what uses it."""
    found = [(name, expression) for name, expression, _ in alerts()]
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", ())]
    return found


@pytest.mark.parametrize(("name", "expression"), expressions())
def test_expression_is_promql(name: str, expression: str) -> None:
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed: make lint installs it")
    # what Grafana puts in place of its variables
    given = re.sub(r"\$__rate_interval|\$__range", "5m", expression)
    given = re.sub(r"\$(\w+)", "polkadot", given)
    assert parser.parse(given), name


def test_parser_refuses_what_is_no_promql() -> None:
    parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed: make lint installs it")
    for wrong in ("rate(validator_job_records_total)", "sum by lane (up)", "up{"):
        with pytest.raises(ValueError):  # noqa: PT011 - its words are the library's
            parser.parse(wrong)
