# SPDX-License-Identifier: Apache-2.0
"""Makes the archives of classes with which later starts of Spark and the broker are faster, by one short run of both."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.config import DEFAULT_PROTOCOL, Config
from validator.demo.comparison import Comparison
from validator.demo.feed import Feed
from validator.demo.simulation import chain_table, simulation_of
from validator.errors import UserError
from validator.job.deployment import Service
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.class_archive import OUTPUT_VARIABLES
from validator.simulate import settings_of_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from validator.job.process import Event
    from validator.kafka.class_archive import ClassArchive, Program

BLOCKS: Final = 3
"""Blocks of the simulated chain that the run executes."""

RUN_S_MAX: Final = 300.0
"""Seconds from the start of the run to its first batch."""


def train(archives: Mapping[Program, ClassArchive]) -> None:
    """Run a job on a simulated chain, and keep the classes that these programs loaded. Raises `UserError`, `OSError`."""
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
    simulation = simulation_of(DEFAULT_PROTOCOL, settings_of_profile("demo", seed=1, blocks=BLOCKS))
    chain = simulation.chain()
    tables = {"job": {"directory": str(folder / "job")}, "chains": {chain["lane"]: chain_table(chain)}}
    batch = threading.Event()
    service = Service(Config.model_validate(tables), EmbeddedBroker(folder / "broker"), _on_batch(batch))
    try:
        service.start()
        feed = Feed(
            simulation,
            service.config.kafka,
            service.config.topics.prefix,
            Comparison(),
            blocks_per_s=BLOCKS,
            on_block=lambda _: None,
        )
        feed.go.set()
        feed.start()
        try:
            if not _await(batch, service):
                raise UserError(f"the job did not finish a batch: {service.job.failure or 'no reason was given'}")
        finally:
            feed.stop()
    finally:
        service.stop()


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
