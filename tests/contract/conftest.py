# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the contracts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.transport_backends import InMemory, Measured, OnKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.transport_backends import Backend


@pytest.fixture
def declared() -> dict[str, Any]:
    """Return what the transport declares besides the topics that it receives."""
    return {}


@pytest.fixture(params=["kafka", "memory", "measured"])
def backend(request: pytest.FixtureRequest, declared: dict[str, Any]) -> Iterator[Backend]:
    if request.param == "kafka":
        yield request.getfixturevalue("on_kafka")
    else:
        with closing(InMemory(**declared) if request.param == "memory" else Measured(**declared)) as made:
            yield made


@pytest.fixture
def on_kafka(kafka: dict[str, object], tmp_path: Path, declared: dict[str, Any]) -> Iterator[OnKafka]:
    with closing(OnKafka(kafka, f"transport-{tmp_path.name}.", **declared)) as made:
        yield made
