# SPDX-License-Identifier: Apache-2.0
"""What several commands share: the configuration, the Kafka to use, stopping on a signal."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from validator.cli.broker import embedded_broker
from validator.config import load_config
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.config import Config

ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="Configuration; by default ./validator.toml if there is one.")
]
Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Start without a checkpoint on topics that hold verdicts already: go through the inputs again, tell only what is untold.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def load_job_config(path: Path | None, *, rebuild: bool = False) -> Config:
    """Return the configuration of a job, which needs a chain at least; ``rebuild`` sets that key of it."""
    config = load_config(path)
    if not config.chains:
        found = (
            f"none in {path}"
            if path
            else "none in ./validator.toml"
            if Path("validator.toml").exists()
            else "no ./validator.toml"
        )
        raise UserError(f"no chain to follow: expected a table [chains.<lane>] in the configuration, found {found}")
    return config.model_copy(update={"job": config.job.model_copy(update={"rebuild": True})}) if rebuild else config


def kafka_table(config: Config) -> dict[str, Any]:
    """Return the `[kafka]` table with an address: the configured one, or that of the embedded broker, which must run."""
    if config.kafka.get("bootstrap.servers"):
        return config.kafka
    return {**config.kafka, "bootstrap.servers": embedded_broker().bootstrap_servers}


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM end the program the way Ctrl-C does: by `KeyboardInterrupt`, so that what was started is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(text: str) -> None:
    """Print a line for a person on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
