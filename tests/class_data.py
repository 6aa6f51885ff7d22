# SPDX-License-Identifier: Apache-2.0
"""Makes the Spark processes of tests start quickly: ``python -m tests.class_data`` writes the archive of classes that they load.

A job of a test runs for a minute, and half of the CPU time that its JVM needs until the first batch goes into loading classes. A JVM maps
them from the archive instead. It takes the archive only if Java's version and the class path are the same, so it stands in the virtual
environment. Without one, tests are slower and otherwise the same.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"

COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The optimising compiler would use a third of the CPU time of so short a job."""

QUIET: Final = "-Xlog:cds*=off -Xlog:class+path=off"
"""An archive that does not fit is no reason for a warning."""

END_S_MAX: Final = 300.0
"""Seconds within which a JVM writes the archive."""


def options(archive: str = f"-XX:SharedArchiveFile={ARCHIVE}") -> dict[str, str]:
    """Return the environment variables from which Spark's scripts take options of JVMs."""
    shared = f"{COMPILER} {archive} {QUIET}"
    executors = f'"-Dspark.executor.defaultJavaOptions={COMPILER} -XX:SharedArchiveFile={ARCHIVE} {QUIET}"'
    return {"SPARK_SUBMIT_OPTS": f"{shared} {executors}", "SPARK_LAUNCHER_OPTS": COMPILER}


def use() -> None:
    """Set these options for every process that this one starts, unless the user has set them."""
    for name, value in options().items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run a job, restart it, read its state, and write what its JVM has loaded."""
    from streaming.session import spark_session
    from streaming.state_reader import read_lanes
    from tests.streaming.harness import Stream
    from tests.unit.lanes.chains import chain, definition_of
    from validator.kafka.broker import EmbeddedBroker
    from validator.simulate import SimulationSettings

    new = ARCHIVE.with_suffix(".new")
    os.environ |= options(f"-XX:ArchiveClassesAtExit={new}")
    with tempfile.TemporaryDirectory(prefix="classes-") as name, EmbeddedBroker(Path(name) / "broker") as broker:
        folder = Path(name)
        with spark_session("local[2]", folder, driver_memory="1g", state_partitions=1) as spark:
            simulated = chain(SimulationSettings(seed=1, blocks=10))
            kafka = broker.kafka
            lanes = {simulated.lane: definition_of(simulated)}
            running = Stream(spark, kafka, "classes.", folder / "streams", lanes)
            for part in (simulated.records[::2], simulated.records[1::2]):
                running.produce(part)
                running.start()
                running.settle()
                running.stop()
            read_lanes(spark, running.checkpoint, folder / "lanes", [])
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_S_MAX)
    if new.exists():
        new.replace(ARCHIVE)
    else:
        print("this Java wrote no archive of classes: jobs of tests start more slowly", file=sys.stderr)


if __name__ == "__main__":
    main()
