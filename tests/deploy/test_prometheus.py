# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus reads the endpoint with the shipped configuration, and evaluates the shipped rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from tests.listening import free_port
from validator.metrics.definitions import METRICS
from validator.metrics.endpoint import endpoint
from validator.metrics.report import LANE, Report
from validator.metrics.store import MetricStore

SHIPPED = Path(__file__).parents[2] / "deploy/prometheus"
WAIT_S_MAX = 120
EXPIRING = "validator_lane_requests_expiring"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not installed (Debian: apt install prometheus)"
    ),
]


def ask(port: int, question: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers to an instant query; nothing if it does not answer yet."""
    with (
        suppress(URLError, ConnectionError),
        urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(question)}", timeout=10) as answer,
    ):
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found
    return []


def until(port: int, question: str) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := ask(port, question)):
        assert time.monotonic() < deadline, f"{question}: no answer within {WAIT_S_MAX} s"
        time.sleep(0.5)
    return found


def test_prometheus_scrapes_and_alerts(tmp_path: Path) -> None:
    store = MetricStore(["polkadot"])
    report = Report(LANE, "polkadot")
    report.put(EXPIRING, 3)
    store.take(report)
    port = free_port()
    with endpoint("127.0.0.1:0", "metrics.listen", store) as address:
        text = (SHIPPED / "prometheus.yml").read_text(encoding="utf-8")
        text = text.replace("127.0.0.1:9464", address.removeprefix("http://").removesuffix("/metrics"))
        (tmp_path / "prometheus.yml").write_text(re.sub("interval: 15s", "interval: 1s", text), encoding="utf-8")
        shutil.copy(SHIPPED / "validator.rules.yml", tmp_path)
        command = [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                (lane,) = until(port, EXPIRING)
                assert (lane["metric"]["lane"], lane["value"][1]) == ("polkadot", "3")
                (alert,) = until(port, 'ALERTS{alertname="ValidatorRequestExpires"}')
                assert alert["metric"]["alertstate"] == "firing"
                scraped = {each["metric"]["__name__"] for each in until(port, '{__name__=~"validator_.+"}')}
                assert EXPIRING in scraped
                assert {re.sub("_(total|bucket|sum|count)$", "", name) for name in scraped} <= {
                    metric.name for metric in METRICS
                }
            finally:
                process.terminate()
                process.wait(30)
