# SPDX-License-Identifier: Apache-2.0
"""`validator broker` and `validator jars`: the embedded Kafka broker, and what it and Spark start from."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from validator import exit_codes
from validator.cli.common import embedded_broker, say, terminated_as_interrupted
from validator.cli.progress import jar_progress, working
from validator.errors import UserError
from validator.kafka.broker import BrokerStatus, java_properties
from validator.kafka.class_archive import PROGRAMS, class_archive
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.private import write_private

WHERE: Final = (
    "The broker is found by its folder: `broker` below `.validator` in the working directory, or below VALIDATOR_HOME if that is set. "
    "It takes no configuration file: the other commands use it where the configuration has no `bootstrap.servers`."
)
"""What its help says in place of an option ``--config``."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Start, stop and inspect the embedded Kafka broker.",
    epilog=WHERE,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=1,
        max=65_535,
        help="Port of the broker, kept for later starts; if it is taken, nothing starts. Default: the one before, or a free one.",
    ),
]


@app.command(epilog=WHERE)
def start(port: Port = None, as_json: Json = False) -> None:
    """Start the broker unless it is running. The first start fetches its jars. Data is kept across restarts."""
    broker = embedded_broker(port)
    if not broker.status().running:
        find_java()  # without it there is no need for jars
        with jar_progress() as progress:
            ensure_jars(progress=progress)
    with working("starting the broker"):
        broker.start()
    if broker.stopped_in is not None:
        sys.stderr.write(f"stopped the broker that was started in {broker.stopped_in}, before the folder was moved\n")
    if broker.moved_from is not None:
        sys.stderr.write(
            f"port {broker.moved_from} of the start before is taken; choose one with --port to stay there\n"
        )
    _print(broker.status(), as_json, "started" if broker.started_here else "was already running")


@app.command(epilog=WHERE)
def stop(as_json: Json = False) -> None:
    """Stop the broker. Its data is kept."""
    broker = embedded_broker()
    with working("stopping the broker"):
        ran = broker.stop()
    _print(broker.status(), as_json, "stopped" if ran else "was not running")


@app.command(epilog=WHERE)
def status(as_json: Json = False) -> None:
    """Show whether the broker is running, and its address. Exit code 1 if it is not running."""
    found = embedded_broker().status()
    _print(found, as_json, "is running" if found.running else "is not running")
    if not found.running:
        raise typer.Exit(exit_codes.DISAGREEMENT)


@app.command(epilog=WHERE)
def settings(
    java: Annotated[bool, typer.Option("--java", help="Print properties of Kafka's Java client and tools.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write them to this file, which only you can read, instead of standard output."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what other programs need to use the running broker: address and login, one `key=value` a line, as `kcat -F` reads them."""
    table = embedded_broker().kafka
    found = java_properties(table) if java else {key: str(value) for key, value in table.items()}
    text = json.dumps(found) + "\n" if as_json else "".join(f"{key}={value}\n" for key, value in found.items())
    if output is None:
        sys.stdout.write(text)
        return
    try:
        write_private(output, text)
    except OSError as error:
        raise UserError(f"--output {output}: it cannot be written: {error.strerror}") from error


def _print(found: BrokerStatus, as_json: bool, what: str) -> None:
    if as_json:
        text = json.dumps(asdict(found))
    elif found.running:
        text = f"broker {what}: bootstrap.servers {found.bootstrap_servers}, process {found.pid}, log {found.log}"
    else:
        text = f"broker {what}: data in {found.directory}"
    sys.stdout.write(text + "\n")


def jars(
    classpath: Annotated[
        bool,
        typer.Option("--classpath", help="Print only a class path with Kafka's Java client and tools, for `java -cp`."),
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
