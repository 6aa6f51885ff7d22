# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several kinds of tests share: one embedded broker for the run."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from validator.kafka.broker import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """Restore SIGINT: a shell's background processes ignore it, and so would the processes that tests start and stop."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Start an embedded broker; each test uses its own topic prefix."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka(broker: EmbeddedBroker) -> dict[str, object]:
    """Return the `[kafka]` table of that broker."""
    return {"bootstrap.servers": broker.bootstrap_servers}
