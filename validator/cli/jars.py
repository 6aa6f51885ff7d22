# SPDX-License-Identifier: Apache-2.0
"""`validator jars`."""

from __future__ import annotations

from typing import Annotated

import typer

from validator.cli.common import say, terminated_as_interrupted
from validator.cli.progress import jar_progress, working
from validator.errors import UserError
from validator.kafka.class_archive import PROGRAMS, class_archive
from validator.kafka.jars import ensure_jars


def jars(
    classpath: Annotated[
        bool, typer.Option("--classpath", help="Print only a class path with Kafka's Java client, for `java -cp`.")
    ] = False,
) -> None:
    """Fetch and verify the jars of the broker, and make the archives with which Spark and the broker start faster.

    What is already there is not made again. A short run of a job makes the archives, which takes about half a minute.
    """
    if classpath:
        with jar_progress() as progress:
            (folder,) = {jar.parent for jar in ensure_jars(progress=progress)}
        typer.echo(f"{folder}/*")
        return
    with jar_progress() as progress:
        fetched = ensure_jars(progress=progress)
    print(f"{len(fetched)} jars in {fetched[0].parent}")  # noqa: T201
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
