# SPDX-License-Identifier: Apache-2.0
"""`validator broker start|stop|status`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from validator import exit_codes
from validator.cli.progress import jar_progress
from validator.kafka.broker import BrokerStatus, EmbeddedBroker
from validator.resources import state_directory

app = typer.Typer(no_args_is_help=True, help="Start, stop and look at the embedded Kafka broker.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def embedded_broker() -> EmbeddedBroker:
    """Return the embedded broker of this project."""
    return EmbeddedBroker(state_directory() / "broker")


@app.command()
def start(as_json: Json = False) -> None:
    """Start the broker unless it runs; fetches its jars the first time. Its data is kept across restarts."""
    broker = embedded_broker()
    with jar_progress() as progress:
        broker.start(progress=progress)
    _print(broker.status(), as_json, "started" if broker.started_here else "was running already")


@app.command()
def stop(as_json: Json = False) -> None:
    """Stop the broker that was started here; the data stays."""
    broker = embedded_broker()
    ran = broker.stop()
    _print(broker.status(), as_json, "stopped" if ran else "was not running")


@app.command()
def status(as_json: Json = False) -> None:
    """Tell whether the broker runs, and where; exit code 1 if it does not."""
    found = embedded_broker().status()
    _print(found, as_json, "runs" if found.running else "does not run")
    if not found.running:
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _print(found: BrokerStatus, as_json: bool, what: str) -> None:
    if as_json:
        text = json.dumps(asdict(found))
    elif found.running:
        text = f"broker {what}: bootstrap.servers {found.bootstrap_servers}, process {found.pid}, log {found.log}"
    else:
        text = f"broker {what}: data in {found.directory}"
    sys.stdout.write(text + "\n")
