# SPDX-License-Identifier: Apache-2.0
"""`validator topics create|list`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Column, Table

from validator.cli.common import ConfigPath, Json, kafka_table, print_json
from validator.cli.progress import working
from validator.cli.table import print_table
from validator.config import load_config
from validator.kafka.topics import TopicState, create_topics, list_topics, topic_config, topic_settings
from validator.topics import DAY_MS, FOREVER, METRICS_TOPIC, MINUTE_MS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """List the topics with their numbers of partitions and records, and how long each keeps its records.

    The end of a transaction counts as a record, which no reader gets. The retention is the cluster's; of a topic that is missing, or whose
    settings the user may not see, it is the configured one, in parentheses.
    """
    config = load_config(config_path)
    with working("counting the records of every topic"):
        kafka = _kafka(config, bootstrap_servers)
        states = list_topics(kafka, prefix=config.topics.prefix if prefix is None else prefix)
        settings = topic_settings(kafka, [state.name for state in states if state.partitions is not None])
    wanted = _wanted_settings(config)
    rows = [_row(state, settings.get(state.name), default) for state, default in zip(states, wanted, strict=True)]
    if as_json:
        print_json(*rows)
        return
    numeric = (Column(name, justify="right", no_wrap=True) for name in ("partitions", "records"))
    table = Table(Column("topic", no_wrap=True), "direction", "cleanup", "keeps", *numeric, "purpose", box=None)
    for state, row in zip(states, rows, strict=True):
        absent = "no right" if state.hidden else "missing"
        numbers = [absent, ""] if state.partitions is None else [str(state.partitions), str(state.records)]
        table.add_row(state.name, state.direction, row["cleanup"], _kept(row), *numbers, state.purpose)
    print_table(table)


def _wanted_settings(config: Config) -> list[dict[str, str]]:
    """Return the settings with which the topics would be created, in their order."""
    kept = config.topics.retention_ms
    return [topic_config(topic, kept.get(topic.name, topic.retention_ms)) for topic in TOPICS]


def _row(state: TopicState, found: Mapping[str, str] | None, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return what JSON has of a topic; ``found`` are its settings in the cluster, ``wanted`` stand for them if they are not known."""
    settings = wanted if found is None else found
    has_retention = "delete" in settings["cleanup.policy"]  # a compacted topic has values too, without effect
    return {
        **asdict(state),
        "cleanup": settings["cleanup.policy"],
        "retention_ms": int(settings.get("retention.ms", FOREVER)) if has_retention else None,
        "retention_bytes": int(settings.get("retention.bytes", FOREVER)) if has_retention else None,
        "retention_of": "configuration" if found is None else "cluster",
    }


def _kept(row: Mapping[str, Any]) -> str:
    """Return in words what a topic keeps."""
    if row["retention_ms"] is None:
        words = "newest of each key"
    else:
        words = "forever" if row["retention_ms"] < 0 else duration(row["retention_ms"])
        if row["retention_bytes"] >= 0:
            words += f", at most {row['retention_bytes']} bytes of a partition"
    return f"({words})" if row["retention_of"] == "configuration" else words


_UNITS: Final = (("day", DAY_MS), ("hour", 60 * MINUTE_MS), ("minute", MINUTE_MS), ("second", 1_000))


def duration(ms: int) -> str:
    """Return a duration in the largest unit of which it is a whole number."""
    for name, size in _UNITS:
        if ms and ms % size == 0:
            return f"{ms // size} {name}{'' if ms == size else 's'}"
    return f"{ms} ms"


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
