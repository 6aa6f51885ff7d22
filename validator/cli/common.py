# SPDX-License-Identifier: Apache-2.0
"""Shared by several commands: common options, loading the configuration, choosing the Kafka cluster, stopping on a signal."""

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
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from validator.config import Config

ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="Configuration file. Default: ./validator.toml, if it exists.")
]
Rebuild = Annotated[
    bool,
    typer.Option(
        "--rebuild",
        help="Start without a checkpoint on topics that already hold verdicts: execute the inputs again, emit only what is missing.",
    ),
]
AcceptChange = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-change",
        metavar="LANE:WHAT",
        help="Accept one change since the last start: LANE:genesis, LANE:removed or LANE:BLOCK (docs/changing.md). May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


def load_job_config(path: Path | None, *, rebuild: bool = False, accepted: Sequence[str] = ()) -> Config:
    """Return a job's configuration; ``rebuild`` overrides its key, ``accepted`` are values of `--accept-change`.

    Raises `UserError`, also if it has no chain, or one with limits, rules or plugins that the job would refuse, then as `check_job` does,
    then for an accepted change of an unknown lane: nothing is started for it.
    """
    from validator.job.deployment import check_job
    from validator.job.start_check import check_accepted
    from validator.lanes.configured import check_chains
    from validator.lanes.kept_start import read_accepted  # these imports are what few commands need

    changes = read_accepted(accepted)
    config = load_config(path)
    if not config.chains:
        found = (
            f"none in {path}"
            if path
            else "none in ./validator.toml"
            if Path("validator.toml").exists()
            else "no ./validator.toml"
        )
        raise UserError(f"no chain is configured: expected a table [chains.<lane>], found {found}")
    check_chains(config)
    check_job(config)
    check_accepted(config, changes)
    return config.model_copy(update={"job": config.job.model_copy(update={"rebuild": True})}) if rebuild else config


def kafka_table(config: Config) -> dict[str, Any]:
    """Return the `[kafka]` table with the configured address, or those of the embedded broker and its login; it must be running."""
    if config.kafka.get("bootstrap.servers"):
        return config.kafka
    return {**config.kafka, **embedded_broker().kafka}


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM raise `KeyboardInterrupt` as Ctrl-C does, so that everything that was started is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(text: str) -> None:
    """Print a line for the user on standard error; what strangers may have written is made visible."""
    sys.stderr.write(printable_lines(text) + "\n")
    sys.stderr.flush()
