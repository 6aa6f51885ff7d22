# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.transport_backends import InMemory, Measured, OnKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.transport_backends import Backend


@pytest.fixture(params=["kafka", "memory", "measured"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param != "kafka":
        made: Backend = InMemory() if request.param == "memory" else Measured()
    else:
        name = request.getfixturevalue("tmp_path").name
        made = OnKafka(request.getfixturevalue("kafka"), f"transport-{name}.")
    yield made
    made.close()


@pytest.fixture
def on_kafka(kafka: dict[str, object], tmp_path: Path) -> Iterator[OnKafka]:
    made = OnKafka(kafka, f"transport-{tmp_path.name}.")
    yield made
    made.close()
