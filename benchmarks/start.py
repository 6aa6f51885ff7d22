# SPDX-License-Identifier: Apache-2.0
"""How long things take to start on a machine that is set up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from benchmarks.figures import Figure
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure the command line, the broker and the demo."""
    say("start: validator --help against importing typer and rich")
    helps = [_help_ratio() for _ in range(max(3, repeats))]
    say("start: broker")
    brokers = [_broker_s() for _ in range(repeats)]
    say("start: demo")
    demos = [_demo() for _ in range(repeats)]
    return [
        Figure("start", "validator --help", "times typer and rich", tuple(helps), at_most=2.0),
        Figure("start", "broker: start to first transaction", "s", tuple(brokers), at_most=15.0),
        Figure(
            "start", "demo: start to first verdict", "s", tuple(demo["first_verdict"] for demo in demos), at_most=15.0
        ),
        Figure("start", "demo: start to end", "s", tuple(demo["total"] for demo in demos)),
    ]


def _help_ratio() -> float:
    program = shutil.which("validator", path=str(Path(sys.executable).parent))
    assert program is not None
    return _seconds([program, "--help"]) / _seconds([sys.executable, "-c", "import typer, rich.console, rich.table"])


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def _broker_s() -> float:
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        with EmbeddedBroker(Path(folder)) as broker:
            kafka: dict[str, Any] = broker.kafka
            create_topics(kafka)
            producer = Producer(producer_config(kafka, transactional_id="first"))
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("validator.blocks", b"first")
            producer.commit_transaction(60)
            return time.perf_counter() - began


def _demo() -> dict[str, float]:
    command = [sys.executable, "-m", "validator", "demo", "--json", "--blocks", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds: dict[str, float] = json.loads(done.stdout)["seconds"]
    return seconds
