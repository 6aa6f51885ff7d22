# SPDX-License-Identifier: Apache-2.0
"""Makes the archives of classes with which later starts of Spark and the broker are faster, by one short run of both."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.codec.json_form import encode_input
from validator.config import DEFAULT_PROTOCOL, Config
from validator.errors import UserError
from validator.job.deployment import Service
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.class_archive import OUTPUT_VARIABLES
from validator.kafka.sender import RecordSender
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.resources import first_channel_directory
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from validator.job.process import Event
    from validator.kafka.class_archive import ClassArchive, Program

RUN_S_MAX: Final = 300.0
"""Seconds from the start of the run to its first batch."""


def train(archives: Mapping[Program, ClassArchive]) -> None:
    """Run a job on the example of `validator init`, and keep the classes that these programs loaded. Raises `UserError`, `OSError`."""
    parent = next(iter(archives.values())).path.parent
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix="training-", dir=parent) as folder:
        made = {program: Path(folder) / f"{program}.jsa" for program in archives}
        with _written_to(made):
            _run(Path(folder))
        for program, archive in archives.items():
            if not made[program].is_file():
                raise UserError("this Java writes no archive of its classes")
            archive.keep(made[program])


def _run(folder: Path) -> None:
    tables = tomllib.loads((first_channel_directory() / "validator.toml").read_text(encoding="utf-8"))
    config = Config.model_validate({**tables, "job": {"directory": str(folder / "job")}})
    batch = threading.Event()
    service = Service(config, EmbeddedBroker(folder / "broker"), _on_batch(batch))
    try:
        service.start()
        _send(service.config)
        if not _await(batch, service):
            raise UserError(f"the job did not finish a batch: {service.job.failure or 'no reason was given'}")
    finally:
        service.stop()


def _send(config: Config) -> None:
    sender, codec = RecordSender(config.kafka, config.topics.prefix), codec_of([RuntimePlan(DEFAULT_PROTOCOL)])
    for file in sorted(first_channel_directory().glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            value = encode_input(codec, INPUT_TOPICS[file.stem], record, DEFAULT_PROTOCOL)
            sender.send(file.stem, record["lane"].encode(), value)
    sender.flush()


def _await(batch: threading.Event, service: Service) -> bool:
    waited_s = 0.0
    while not batch.wait(1.0) and not service.job.ended() and waited_s < RUN_S_MAX:
        waited_s += 1.0
    return batch.is_set()


def _on_batch(batch: threading.Event) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if event["event"] == "batch":
            batch.set()

    return on_event


@contextmanager
def _written_to(files: Mapping[Program, Path]) -> Iterator[None]:
    """Let the programs that are started inside write their classes to files when they end."""
    variables = {OUTPUT_VARIABLES[program]: str(file) for program, file in files.items()}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
