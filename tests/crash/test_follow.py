# SPDX-License-Identifier: Apache-2.0
"""The transport that follows a chain is killed with SIGKILL, at steps of a commit and at any moment: no record is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PLUGIN_TESTS: Final = Path(__file__).resolve().parents[2] / "plugins" / "relay-chain" / "tests"
sys.path.insert(0, str(PLUGIN_TESTS))

from relay_world import FIRST, LANE, busy_chain  # noqa: E402
from validator_relay_chain.command import _prepare  # noqa: E402
from validator_relay_chain.oracle.records import FACTS, own_topics  # noqa: E402
from validator_simulators.relay_chain import MockNode  # noqa: E402

from tests.crash.follow_process import STEPS  # noqa: E402
from validator.config import load_config  # noqa: E402
from validator.config.toml import to_toml  # noqa: E402
from validator.kafka.reader import TopicReader  # noqa: E402
from validator.kafka.topics import create_topics  # noqa: E402
from validator.testing.transport import MemoryTransport  # noqa: E402
from validator.topics import INPUT_TOPICS  # noqa: E402

LAST: Final = FIRST + 26
SESSION_MS: Final = 4_000
"""Milliseconds after which the broker gives a killed process's lease to the next one."""
PROCESS_S_MAX: Final = 240.0
TOPICS: Final = (*INPUT_TOPICS, FACTS)

Kill = tuple[str, int]
"""A step and how often it is reached first; ``moment`` counts the node's answers instead, and is struck from outside."""


@pytest.fixture(scope="module")
def node() -> Iterator[MockNode]:
    with MockNode(busy_chain(LAST).recording) as node:
        yield node


def kills(seed: int, count: int) -> list[Kill]:
    """Return moments of which each is a step of a commit or any other, so that some records are committed between two."""
    chosen = random.Random(seed)
    places = [*STEPS, "moment"]
    chosen.shuffle(places)
    return [(places[at % len(places)], chosen.randrange(2, 5)) for at in range(count)]


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 4), *(pytest.param(seed, 8, marks=pytest.mark.long) for seed in range(2, 6))]
)
@pytest.mark.broker
def test_killed_and_started_again_no_record_is_lost_or_doubled(
    seed: int, count: int, node: MockNode, kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prefix = f"follow-killed-{seed}."
    create_topics(kafka, prefix=prefix)
    create_topics(kafka, prefix=prefix, topics=[each.topic for each in own_topics()])
    config = tmp_path / "validator.toml"
    _prepare(config, LANE, [node.url], FIRST + 1, LAST)
    undisturbed = MemoryTransport("relay-chain", load_config(config).transports["relay-chain"], transport="relay-chain")
    undisturbed.run()
    table = {"kafka": {**kafka, "session.timeout.ms": SESSION_MS}, "topics": {"prefix": prefix}}
    config.write_text(f"{config.read_text()}\n{to_toml(table)}")

    ended = []
    for kill in kills(seed, count):
        ended.append(run(config, node, kill))
        check(kafka, prefix, undisturbed, whole=False)
    assert ended.count(-signal.SIGKILL) >= min(count, 4) - 1, ended
    assert run(config, node) == 0
    check(kafka, prefix, undisturbed, whole=True)


def run(config: Path, node: MockNode, kill: Kill | None = None) -> int:
    """Run a process of the transport until it has ended or was killed; return its exit code."""
    step, countdown = ("", 0) if kill is None else kill
    armed = [] if step in ("", "moment") else [step, str(countdown)]
    with (config.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.follow_process", str(config), *armed],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=config.parent,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )  # fmt: skip
    try:
        if step == "moment":
            answered = node.requests["chain_getBlock"] + countdown
            node.wait_for(
                lambda asked: asked["chain_getBlock"] >= answered or process.poll() is not None, PROCESS_S_MAX
            )
            process.kill()
        code = process.wait(PROCESS_S_MAX)
    finally:
        process.kill()
        process.wait()
    assert code in (0, -signal.SIGKILL), (config.parent / "log").read_text()[-2_000:]
    return code


def check(kafka: dict[str, object], prefix: str, undisturbed: MemoryTransport, *, whole: bool) -> None:
    """Kafka has a beginning of the undisturbed run's records, or all of them; blocks are there whole or not at all."""
    found: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    with TopicReader(kafka, prefix, list(TOPICS)) as reader:
        for record in reader.read_to_end():
            found[record.topic].append(record.value)
    expected = {topic: [value for each, _, value in undisturbed.submitted if each == topic] for topic in TOPICS}
    for topic in TOPICS:
        assert found[topic] == expected[topic][: len(found[topic])], topic
    assert len(found["blocks"]) == len(found[FACTS])
    if whole:
        assert found == expected
