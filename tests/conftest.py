# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several kinds of tests share: one embedded broker for the run."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests import class_data, hypothesis_profile, registries, scheduling
from validator.kafka.broker import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

hypothesis_profile.load()


def pytest_configure() -> None:
    """Make Spark's JVMs start quickly, and restore SIGINT.

    A shell's background processes ignore SIGINT, and so would the processes that tests start and stop.
    """
    class_data.use()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, and let the workers of `pytest -n` start with the slowest tests.

    Without workers, files keep their order.
    """
    for item in items:
        for fixture in {"broker", "spark"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(fixture)
    if hasattr(config, "workerinput"):
        scheduling.sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.Scheduling:
    """Run tests that share an expensive fixture on the same worker."""
    config.option.loadscopereorder = False
    return scheduling.Scheduling(config, log)


@pytest.fixture(autouse=True)
def _handlers_of_signals_restored() -> Iterator[None]:
    """Let no test change what a signal does in the tests after it: a job that runs in this process takes SIGINT and SIGTERM."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        if signal.getsignal(each) is not handler:
            signal.signal(each, handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Start an embedded broker; each test uses its own topic prefix."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> dict[str, object]:
    """Return the `[kafka]` table of that broker's clients."""
    return broker.kafka


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registries.RegistryServer]:
    """Start Apicurio's registry."""
    with registries.apicurio(tmp_path_factory.mktemp("apicurio")) as server:
        yield server


@pytest.fixture(scope="module", params=["stand-in", pytest.param("apicurio", marks=pytest.mark.long)])
def registry_server(request: pytest.FixtureRequest) -> Iterator[registries.RegistryServer]:
    """Return a schema registry without subjects, once the stand-in and once a real one."""
    if request.param == "apicurio":
        server: registries.RegistryServer = request.getfixturevalue("apicurio")
        server.clear()
        yield server
        return
    with registries.standing_in() as server:
        yield server
