# SPDX-License-Identifier: Apache-2.0
"""`validator jars`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.cli.progress import jar_progress
from validator.kafka.jars import JAR_SETS, ensure_jars

if TYPE_CHECKING:
    from pathlib import Path


def jars() -> None:
    """Fetch and verify the jars of the broker and of Spark's Kafka connector. Jars that are already there are not fetched again."""
    fetched: list[Path] = []
    with jar_progress() as progress:
        for jar_set in JAR_SETS:
            fetched += ensure_jars(jar_set, progress=progress)
    folders = ", ".join(str(folder) for folder in sorted({jar.parent for jar in fetched}))
    print(f"{len(fetched)} jars in {folders}")  # noqa: T201
