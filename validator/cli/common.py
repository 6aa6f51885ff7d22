# SPDX-License-Identifier: Apache-2.0
"""Shared by several commands: common options, loading the configuration, choosing the Kafka cluster, JSON lines, stopping on a signal."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from validator.core.limits import RECORD_BYTES_MAX
from validator.document import printable
from validator.errors import UserError
from validator.kafka.broker import EmbeddedBroker
from validator.resources import state_directory
from validator.strict_json import JsonRefused, read_json
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from validator.config import Config


ConfigPath = Annotated[
    Path | None, typer.Option("--config", help="Configuration file. Default: ./validator.toml, if it exists.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]


OneLane = Annotated[
    str | None, typer.Option("--lane", help="The lane; may be left out if the configuration has a single chain.")
]


def lane_of(config: Config, lane: str | None) -> str:
    """Return a lane that was named, or the single configured chain. Raises `UserError`."""
    if lane is None and len(config.chains) != 1:
        known = ", ".join(sorted(config.chains)) or "none"
        raise UserError(f"--lane: expected one of the configured chains ({known}), found none")
    return next(iter(config.chains)) if lane is None else lane


def load_job_config(path: Path | None, *, rebuild: bool = False, accepted: Sequence[str] = ()) -> Config:
    """Return a job's configuration; ``rebuild`` overrides its key, ``accepted`` are values of `--accept-change`.

    Raises `UserError`, also if it has no chain, or one with limits, rules or plugins that the job would refuse, then as `check_job` does,
    then for an accepted change of an unknown lane, and as `refuse_without_kafka` does: nothing is started for it.
    """
    from validator.config import load_config
    from validator.job.deployment import check_job
    from validator.job.start_check import check_accepted, refuse_without_kafka
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
    refuse_without_kafka(config, changes)
    return config.model_copy(update={"job": config.job.model_copy(update={"rebuild": True})}) if rebuild else config


def embedded_broker(port: int | None = None) -> EmbeddedBroker:
    """Return the embedded broker below the state directory."""
    return EmbeddedBroker(state_directory() / "broker", port)


def kafka_table(config: Config) -> dict[str, Any]:
    """Return the `[kafka]` table with the configured address, or those of the embedded broker and its login; it must be running."""
    if config.kafka.get("bootstrap.servers"):
        return config.kafka
    return {**config.kafka, **embedded_broker().kafka}


def connected(config_path: Path | None) -> Config:
    """Return the configuration with the address of its Kafka, or of the embedded broker, which must be running. Raises `UserError`."""
    from validator.config import load_config

    config = load_config(config_path)
    return config.model_copy(update={"kafka": kafka_table(config)})


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


def print_json(*documents: object) -> None:
    """Print documents as JSON on standard output, one a line."""
    sys.stdout.write("".join(f"{json.dumps(each)}\n" for each in documents))


def drop_output() -> None:
    """Let the interpreter's flush at exit succeed after `| head` has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what an error adds for a name that is none of those known: the likeliest one as a question, or nothing."""
    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


LINE_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Bytes of a line: hex doubles the payloads, and the field names are short in comparison."""

STANDARD_INPUT: Final = "-"


@contextmanager
def opened(file: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or standard input for ``-``, and yield it with its name for errors. Raises `UserError` if it cannot be read."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below, where other errors may come from whoever uses it
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    with stream:
        yield stream, file


def lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers. Raises `UserError` for one that is too long or cannot be read."""
    for number, line in enumerate(_bounded(stream, name), start=1):
        if len(line) > LINE_BYTES_MAX:
            raise UserError(f"{name}, line {number}: expected at most {LINE_BYTES_MAX} bytes, found more")
        if line.strip():
            yield number, line


def parse(line: bytes, where: str) -> Any:
    """Return a line's JSON value. Raises `UserError` that begins with ``where``."""
    try:
        return read_json(line.rstrip(b"\r\n"))
    except JsonRefused as error:
        place = printable(error.place.removeprefix("."))
        at = (
            f"{where}, column {place.rpartition(':')[2]}"
            if place.startswith(":")
            else f"{where}: {place}"
            if place
            else where
        )
        raise UserError(f"{at}: {error} in {_start(line)}") from None


def _bounded(stream: IO[bytes], name: str) -> Iterable[bytes]:
    try:
        while line := stream.readline(LINE_BYTES_MAX + 1):
            yield line
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error


def _start(line: bytes) -> str:
    text: Any = line.strip().decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
