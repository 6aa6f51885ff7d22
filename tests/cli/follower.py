# SPDX-License-Identifier: Apache-2.0
"""A simulated chain on a real broker, executed in this process instead of the job: for tests of commands that use topics."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner
from validator_simulators import settings_of_profile
from validator_simulators.demo.command import configuration
from validator_simulators.router.traffic import RouterSimulation

from tests.codecs import decoded, encoded
from tests.sending import send
from validator.cli.main import app
from validator.config import Config, load_config
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.topics import create_topics
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from typer.testing import Result

LANE = "polkadot"


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@dataclass
class Follower:
    """A chain's configuration file, records and expected verdicts; `judge` does the work of the job."""

    config_path: Path
    config: Config
    records: list[tuple[str, dict[str, Any]]]
    expected: list[dict[str, Any]]
    worker: LaneProcessor = field(init=False)

    def __post_init__(self) -> None:
        definition = lane_definition(self.config, LANE)
        self.worker = LaneProcessor.create(definition)

    def judge(self, records: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Execute records and send the output to the output topics."""
        items: list[Input | DeadLetter] = []
        for offset, (kind, record) in enumerate(records):
            item = decoded(kind, encoded(kind, record), Source(kind, 0, offset))
            items.append(item if isinstance(item, DeadLetter) else item[1])
        runs = [*self.worker.process(items), self.worker.status()]
        records = [(topic, key, value) for _, outputs in runs for topic, key, value, _ in outputs]
        send(self.config.kafka, self.config.topics.prefix, records)

    def option(self) -> str:
        return f"--config={self.config_path}"


def follower(directory: Path, kafka: dict[str, object], prefix: str, *, blocks: int = 12, seed: int = 5) -> Follower:
    simulation = RouterSimulation(settings_of_profile("demo", seed=seed, blocks=blocks, lane=LANE))
    tables = configuration(simulation.chain(), directory)
    path = directory / "validator.toml"
    path.write_text(to_toml({**tables, "kafka": kafka, "topics": {"prefix": prefix}}), encoding="utf-8")
    config = load_config(path)
    create_topics(config.kafka, prefix=prefix)
    played = list(simulation.blocks())
    return Follower(
        path,
        config,
        [each for block in played for each in block.records],
        [each for block in played for each in block.expected],
    )
