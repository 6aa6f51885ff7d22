# SPDX-License-Identifier: Apache-2.0
"""Makes the Spark processes of tests start quickly.

A job of a test runs for a minute. Its JVM maps its classes from the archive that `validator jars` has made. These options keep the
optimising compiler also out of executors, and out of the JVM that prints Spark's command line.
"""

from __future__ import annotations

import os
from typing import Final

COMPILER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The optimising compiler would use a third of the CPU time of so short a job."""


def options() -> dict[str, str]:
    """Return the environment variables from which Spark's scripts take options of JVMs."""
    return {
        "SPARK_SUBMIT_OPTS": f'{COMPILER} "-Dspark.executor.defaultJavaOptions={COMPILER}"',
        "SPARK_LAUNCHER_OPTS": COMPILER,
    }


def use() -> None:
    """Set these options for every process that this one starts, unless the user has set them."""
    for name, value in options().items():
        os.environ.setdefault(name, value)
