# SPDX-License-Identifier: Apache-2.0
"""`validator topics create|list`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from validator.cli.common import ConfigPath, Json, kafka_table, print_json
from validator.cli.progress import working
from validator.cli.table import print_table
from validator.config import load_config
from validator.kafka.topics import create_topics, list_topics
from validator.topics import METRICS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    transport: Annotated[
        list[str] | None,
        typer.Option("--transport", help="Also create the topics of this transport and of its jobs. May be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create the missing topics, as configured in [topics] and [metrics].

    Transports create their own topics when they first start. `--transport` creates them now, for a Kafka where only some users may.
    """
    config = load_config(config_path)
    changed = {
        "prefix": prefix,
        "input_partitions": partitions,
        "output_partitions": partitions,
        "replication_factor": replication_factor,
    }
    topics = config.topics.model_copy(update={name: value for name, value in changed.items() if value is not None})
    config = config.model_copy(update={"kafka": _kafka(config, bootstrap_servers), "topics": topics})
    with working("creating the topics"):
        made = _create(config, transport or ())
    if as_json:
        print_json({"created": [name for name, new in made.items() if new], "topics": list(made)})
    else:
        sys.stdout.write("".join(f"{name}  {'created' if new else 'exists'}\n" for name, new in made.items()))


@app.command("list")
def list_(
    config_path: ConfigPath = None, bootstrap_servers: Bootstrap = "", prefix: Prefix = None, as_json: Json = False
) -> None:
    """List the topics with their numbers of partitions and records.

    The end of a transaction counts as a record, which no reader gets.
    """
    config = load_config(config_path)
    with working("counting the records of every topic"):
        kafka = _kafka(config, bootstrap_servers)
        states = list_topics(kafka, prefix=config.topics.prefix if prefix is None else prefix)
    if as_json:
        print_json(*map(asdict, states))
        return
    numeric = (Column(name, justify="right", no_wrap=True) for name in ("partitions", "records"))
    table = Table(Column("topic", no_wrap=True), "direction", "cleanup", *numeric, "purpose", box=None)
    for state in states:
        absent = "no right" if state.hidden else "missing"
        numbers = [absent, ""] if state.partitions is None else [str(state.partitions), str(state.records)]
        table.add_row(state.name, state.direction, state.cleanup, *numbers, state.purpose)
    print_table(table)


def _create(config: Config, transports: Sequence[str]) -> dict[str, bool]:
    """Create the topics of the job, of metrics and of some transports."""
    from validator.transports.runner import choose_transport, create_topics_of_jobs  # slow to import

    chosen = [choose_transport(config, name) for name in transports]
    topics = config.topics
    made = create_topics(
        config.kafka,
        prefix=topics.prefix,
        partitions=topics.input_partitions,
        output_partitions=topics.output_partitions,
        replication_factor=topics.replication_factor,
        retention_ms=topics.retention_ms,
    )
    metrics = config.metrics
    if metrics.listen is not None or metrics.transports:
        made |= create_topics(
            config.kafka, prefix=topics.prefix, replication_factor=topics.replication_factor, topics=[METRICS_TOPIC]
        )
    for each in chosen:
        made |= create_topics_of_jobs(config, each)
    return made


def _kafka(config: Config, bootstrap_servers: str) -> dict[str, Any]:
    return {**config.kafka, "bootstrap.servers": bootstrap_servers} if bootstrap_servers else kafka_table(config)
