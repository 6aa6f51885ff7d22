# SPDX-License-Identifier: Apache-2.0
"""`validator topics create|list`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from validator.cli.broker import embedded_broker
from validator.kafka.topics import PREFIX, create_topics, list_topics

app = typer.Typer(no_args_is_help=True, help="Create and list the topics.")

Bootstrap = Annotated[
    str, typer.Option("--bootstrap-servers", help="Kafka to use; by default the embedded broker, which must run.")
]
Prefix = Annotated[str, typer.Option("--prefix", help="What every topic's name begins with.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def create(
    bootstrap_servers: Bootstrap = "",
    prefix: Prefix = PREFIX,
    partitions: Annotated[int, typer.Option(min=1, help="Of each topic: as many as there are busy relay chains.")] = 1,
    replication_factor: Annotated[int, typer.Option(min=-1, help="-1 is the cluster's default.")] = -1,
    as_json: Json = False,
) -> None:
    """Create the topics that are missing."""
    made = create_topics(
        _kafka(bootstrap_servers), prefix=prefix, partitions=partitions, replication_factor=replication_factor
    )
    if as_json:
        sys.stdout.write(
            json.dumps({"created": [name for name, new in made.items() if new], "topics": list(made)}) + "\n"
        )
    else:
        sys.stdout.write("".join(f"{name}  {'created' if new else 'was there'}\n" for name, new in made.items()))


@app.command("list")
def list_(bootstrap_servers: Bootstrap = "", prefix: Prefix = PREFIX, as_json: Json = False) -> None:
    """List the topics with partitions and records."""
    states = list_topics(_kafka(bootstrap_servers), prefix=prefix)
    if as_json:
        sys.stdout.write("".join(json.dumps(asdict(state)) + "\n" for state in states))
        return
    table = Table(Column("topic", no_wrap=True), "", "cleanup", "partitions", "records", "purpose")
    for state in states:
        numbers = ["missing", ""] if state.partitions is None else [str(state.partitions), str(state.records)]
        table.add_row(state.name, state.direction, state.cleanup, *numbers, state.purpose)
    Console().print(table)


def _kafka(bootstrap_servers: str) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap_servers or embedded_broker().bootstrap_servers}
