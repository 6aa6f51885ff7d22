# SPDX-License-Identifier: Apache-2.0
"""`validator broker start|stop|status|settings`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from validator import exit_codes
from validator.cli.progress import jar_progress, working
from validator.errors import UserError
from validator.kafka.broker import BrokerStatus, EmbeddedBroker
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.kafka.login import java_properties
from validator.private import write_private
from validator.resources import state_directory

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


def embedded_broker(port: int | None = None) -> EmbeddedBroker:
    """Return the embedded broker below the state directory."""
    return EmbeddedBroker(state_directory() / "broker", port)


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
