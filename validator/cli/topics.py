# SPDX-License-Identifier: Apache-2.0
"""`validator topics create|list`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from validator.cli.common import ConfigPath, Json, kafka_table
from validator.cli.progress import working
from validator.cli.table import print_table
from validator.config import load_config
from validator.kafka.topics import create_topics, list_topics

if TYPE_CHECKING:
    from validator.config import Config

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="markdown", help="Create and list the topics."
)

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers", help="Kafka to use instead of the configured one (default: the embedded broker)."
    ),
]
Prefix = Annotated[
    str | None, typer.Option("--prefix", help="Prefix of every topic's name, instead of the configured one.")
]


@app.command()
def create(
    config_path: ConfigPath = None,
    bootstrap_servers: Bootstrap = "",
    prefix: Prefix = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, help="Partitions of each topic, instead of the configured numbers: one per busy relay chain."
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=-1, help="Replication factor, instead of the configured one; -1: the cluster's default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create the missing topics, as configured in [topics]."""
    config = load_config(config_path)
    topics = config.topics
    with working("creating the topics"):
        made = create_topics(
            _kafka(config, bootstrap_servers),
            prefix=topics.prefix if prefix is None else prefix,
            partitions=partitions or topics.input_partitions,
            output_partitions=partitions or topics.output_partitions,
            replication_factor=topics.replication_factor if replication_factor is None else replication_factor,
            retention_ms=topics.retention_ms,
        )
    if as_json:
        sys.stdout.write(
            json.dumps({"created": [name for name, new in made.items() if new], "topics": list(made)}) + "\n"
        )
    else:
        sys.stdout.write("".join(f"{name}  {'created' if new else 'exists'}\n" for name, new in made.items()))


@app.command("list")
def list_(
    config_path: ConfigPath = None, bootstrap_servers: Bootstrap = "", prefix: Prefix = None, as_json: Json = False
) -> None:
    """List the topics with their numbers of partitions and records."""
    config = load_config(config_path)
    with working("counting the records of every topic"):
        kafka = _kafka(config, bootstrap_servers)
        states = list_topics(kafka, prefix=config.topics.prefix if prefix is None else prefix)
    if as_json:
        sys.stdout.write("".join(json.dumps(asdict(state)) + "\n" for state in states))
        return
    numeric = (Column(name, justify="right", no_wrap=True) for name in ("partitions", "records"))
    table = Table(Column("topic", no_wrap=True), "direction", "cleanup", *numeric, "purpose", box=None)
    for state in states:
        numbers = ["missing", ""] if state.partitions is None else [str(state.partitions), str(state.records)]
        table.add_row(state.name, state.direction, state.cleanup, *numbers, state.purpose)
    print_table(table)


def _kafka(config: Config, bootstrap_servers: str) -> dict[str, Any]:
    return {**config.kafka, "bootstrap.servers": bootstrap_servers} if bootstrap_servers else kafka_table(config)
