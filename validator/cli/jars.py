# SPDX-License-Identifier: Apache-2.0
"""`validator jars`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from validator.cli.common import say, terminated_as_interrupted
from validator.cli.progress import jar_progress, working
from validator.errors import UserError
from validator.kafka.class_archive import PROGRAMS, class_archive
from validator.kafka.jars import JAR_SETS, ensure_jars

if TYPE_CHECKING:
    from pathlib import Path


def jars(
    classpath: Annotated[
        bool, typer.Option("--classpath", help="Print only a class path with Kafka's Java client, for `java -cp`.")
    ] = False,
) -> None:
    """Fetch and verify the jars of the broker and of Spark's Kafka connector, and make the archives with which both start faster.

    What is already there is not made again. A short run of a job makes the archives, which takes about half a minute.
    """
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
    _make_archives()


def _make_archives() -> None:
    """Make the archives of classes that are missing or damaged; without them Spark and the broker only start more slowly."""
    archives = {program: class_archive(program) for program in PROGRAMS}
    missing = {program: each for program, each in archives.items() if each is not None and not each.is_usable()}
    if archives["spark"] is None or not missing:
        return
    from validator.job.training import train

    try:
        with terminated_as_interrupted(), working("a short run of a job, with which Spark and the broker start faster"):
            train(missing)
    except (UserError, OSError) as error:
        say(f"Spark and the broker will start more slowly: {error}")
    else:
        for program, archive in missing.items():
            print(f"the archive of classes of {program} is {archive.path}")  # noqa: T201
