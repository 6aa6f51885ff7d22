# SPDX-License-Identifier: Apache-2.0
"""What tests of several kinds share: one embedded broker for the whole run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import scheduling
from validator.kafka.broker import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """Have every JVM of Spark start quickly, and undo what a shell does to what it starts in the background.

    Processes that ignore SIGINT cannot be stopped by it.
    """
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark-conf"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and have the workers of `pytest -n` begin with what takes longest.

    Without workers files keep their order.
    """
    for item in items:
        for fixture in {"broker", "spark"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(fixture)
    if hasattr(config, "workerinput"):
        scheduling.sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.Scheduling:
    """Keep together what shares something dear."""
    config.option.loadscopereorder = False
    return scheduling.Scheduling(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker that runs; tests take a topic prefix of their own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> dict[str, object]:
    """The `[kafka]` table of that broker."""
    return {"bootstrap.servers": broker.bootstrap_servers}
