# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.golden record | check`: whether every byte of the output still equals the recording."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from tests import class_data
from tests.golden import layers
from tests.golden.documents import SAMPLES

SHOWN_MAX = 60

app = typer.Typer(add_completion=False, no_args_is_help=True)


class Layer(StrEnum):
    """The part of the recording to use."""

    DOCUMENTS = "documents"
    PROCESS = "process"
    JOB = "job"
    ALL = "all"


OfLayer = Annotated[
    Layer, typer.Option(help="In this process, through the real job (about a minute), or both; or its documents alone.")
]
Kafka = Annotated[
    dict[str, Any] | None,
    typer.Option(
        parser=json.loads,
        help="A broker for the job, as a [kafka] table in JSON; by default an embedded one is started.",
    ),
]


@app.command()
def record(layer: OfLayer = Layer.ALL, kafka: Kafka = None) -> None:
    """Make a new recording from the current code. With --layer documents, the recorded inputs and what lanes emit stay as they are."""
    if layer is not Layer.JOB and not SAMPLES.is_dir():
        raise typer.BadParameter(
            f"{SAMPLES} does not exist, and a recording made without it has no replays of its traces: put it there"
        )
    if layer is Layer.DOCUMENTS:
        typer.echo(layers.record_documents())
        return
    if layer is not Layer.JOB:
        for line in layers.record_process():
            typer.echo(line)
    if layer is not Layer.PROCESS:
        from tests.golden import job  # it imports pyspark

        typer.echo(job.record_job(kafka))


@app.command()
def check(layer: OfLayer = Layer.ALL, kafka: Kafka = None) -> None:
    """Compare the recording with the current output; exit with code 1 if anything differs."""
    found: list[str] = []
    if layer is Layer.DOCUMENTS:
        found += layers.check_documents()
    if layer in (Layer.PROCESS, Layer.ALL):
        found += layers.check_process()
    if layer in (Layer.JOB, Layer.ALL):
        from tests.golden import job

        found += job.check_job(kafka)
    for line in found[:SHOWN_MAX]:
        typer.echo(line)
    if len(found) > SHOWN_MAX:
        typer.echo(f"... and {len(found) - SHOWN_MAX} more groups")
    if found:
        typer.echo(f"{len(found)} groups differ from the recording")
        raise typer.Exit(1)
    typer.echo("every byte equals the recording")


if __name__ == "__main__":
    class_data.use()
    app()
