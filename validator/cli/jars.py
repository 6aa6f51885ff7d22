# SPDX-License-Identifier: Apache-2.0
"""`validator jars`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from validator.cli.progress import jar_progress
from validator.kafka.jars import JAR_SETS, ensure_jars

if TYPE_CHECKING:
    from pathlib import Path


def jars(
    classpath: Annotated[
        bool, typer.Option("--classpath", help="Print only a class path with Kafka's Java client, for `java -cp`.")
    ] = False,
) -> None:
    """Fetch and verify the jars of the broker and of Spark's Kafka connector. Jars that are already there are not fetched again."""
    if classpath:
        with jar_progress() as progress:
            (folder,) = {jar.parent for jar in ensure_jars("broker", progress=progress)}
        typer.echo(f"{folder}/*")
        return
    fetched: list[Path] = []
    with jar_progress() as progress:
        for jar_set in JAR_SETS:
            fetched += ensure_jars(jar_set, progress=progress)
    folders = ", ".join(str(folder) for folder in sorted({jar.parent for jar in fetched}))
    print(f"{len(fetched)} jars in {folders}")  # noqa: T201
