# SPDX-License-Identifier: Apache-2.0
"""What tests of several kinds share: one embedded broker for the whole run."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from validator.kafka.broker import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """Undo what a shell does to what it starts in the background: processes that ignore SIGINT cannot be stopped by it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker that runs; tests take a topic prefix of their own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> dict[str, object]:
    """The `[kafka]` table of that broker."""
    return {"bootstrap.servers": broker.bootstrap_servers}
