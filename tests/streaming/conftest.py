# SPDX-License-Identifier: Apache-2.0
"""One Spark session for all streaming tests; each test uses separate topics and a separate checkpoint."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from streaming.session import SessionSettings, spark_session
from tests.streaming import spied
from tests.streaming.harness import Stream
from validator.lanes.definition import LaneDefinition

DRIVER_MEMORY = "1g"


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the session's logs."""
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="session")
def spark(spark_directory: Path) -> Iterator[SparkSession]:
    """The job's session, on two cores."""
    cloudpickle.register_pickle_by_value(spied)  # type: ignore[no-untyped-call]
    handler = signal.getsignal(signal.SIGINT)
    with spark_session(SessionSettings("local[2]", spark_directory, DRIVER_MEMORY, 1)) as session:
        signal.signal(signal.SIGINT, handler)  # Spark replaces it, and other tests share this process
        # snapshots of the state are uploaded at once instead of within a minute
        session.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "500ms")
        yield session


_NUMBERS = count(1)


@pytest.fixture
def stream(spark: SparkSession, kafka: dict[str, Any], spark_directory: Path) -> Iterator[Callable[..., Stream]]:
    """Make streams, whose queries stop when the test ends."""
    made: list[Stream] = []

    def make(definitions: dict[str, LaneDefinition], **options: Any) -> Stream:
        prefix = f"stream-{next(_NUMBERS)}."
        made.append(Stream(spark, kafka, prefix, spark_directory / "streams", definitions, **options))
        return made[-1]

    yield make
    for each in made:
        if each.query is not None:
            each.query.stop()
