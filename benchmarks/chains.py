# SPDX-License-Identifier: Apache-2.0
"""Catching up with four chains at once against one chain with as many candidates: lanes run side by side, one lane does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import truediv
from pathlib import Path
from tempfile import TemporaryDirectory

from validator_simulators.router.load import SettingsLoad

from benchmarks.catch_up import job_run
from benchmarks.figures import Figure
from benchmarks.service import chain_config, encoded, produce, reset_output
from validator.config import Config
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics

CANDIDATES = 400_000
CANDIDATES_PER_BLOCK = 100
RECORDS_AT_ONCE = 5_000
"""Records of a chain between those of the others."""

ONE: tuple[str, ...] = ("polkadot",)
FOUR = ("alpha", "kusama", "polkadot", "rococo")
"""Names of which Spark's hash puts two in each of two state partitions; other names may all be in one."""

LOCAL, EXECUTORS = "local[2]", "local-cluster[2,1,1024]"
"""One process with two cores; two executors of one core each, as on a cluster."""

JOBS = {"one chain": (ONE, LOCAL), "four chains": (FOUR, LOCAL), "four chains on two executors": (FOUR, EXECUTORS)}
PARTITIONS = 2
RECORDS_PER_TRIGGER = 100_000


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure all in turns, several times; each has as many candidates."""
    rates: dict[str, list[float]] = {name: [] for name in JOBS}
    processor: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        totals = {}
        for lanes in (ONE, FOUR):
            prefix = prefix_of(lanes)
            create_topics(broker.kafka, prefix=prefix)
            say(f"chains: producing {CANDIDATES:,} candidates of {len(lanes)}")
            totals[lanes] = sum(
                produce(broker.kafka, prefix, lane, part)
                for lane, part in in_turns(lanes, CANDIDATES // len(lanes) // CANDIDATES_PER_BLOCK)
            )
        for turn in range(repeats):
            for name, (lanes, master) in JOBS.items():
                say(f"chains {turn + 1}/{repeats}: {name}")
                directory = Path(folder) / f"{name} {turn}"
                directory.mkdir()
                for lane in lanes:
                    reset_output(broker.kafka, prefix_of(lanes), lane)
                config = configuration_of(lanes, master, directory, broker.kafka)
                job = job_run(config, directory, totals[lanes], CANDIDATES)
                rates[name].append(job.warm)
                for kind, microseconds in job.processor_us.items():
                    processor.setdefault(f"{name}: {kind}", []).append(microseconds)
    return [
        *(Figure("chains", name, "candidates/s", tuple(found)) for name, found in rates.items()),
        *(_against_one(name, rates) for name, (lanes, _) in JOBS.items() if lanes == FOUR),
        _against_local(processor),
        *(
            Figure("chains", f"processor time of a candidate, {kind}", "us", tuple(each))
            for kind, each in processor.items()
        ),
    ]


def _against_one(name: str, rates: dict[str, list[float]]) -> Figure:
    ratio = tuple(four / one for one, four in zip(rates["one chain"], rates[name], strict=True))
    note = "two in each of two state partitions; needs two cores"
    return Figure("chains", f"{name} against one", "times", ratio, at_least=1.5, note=note)


def _against_local(processor: dict[str, list[float]]) -> Figure:
    """Return the processor time of a candidate on executors, in all processes, as a multiple of that in one process."""

    def of_runs(job: str) -> list[float]:
        return [
            sum(run)
            for run in zip(*(each for kind, each in processor.items() if kind.startswith(f"{job}: ")), strict=True)
        ]

    ratio = tuple(map(truediv, of_runs("four chains on two executors"), of_runs("four chains")))
    return Figure("chains", "processor time on two executors against one process", "times", ratio, at_most=1.5)


def prefix_of(lanes: tuple[str, ...]) -> str:
    """Return the prefix of the topics of some chains."""
    return f"bench-{len(lanes)}."


def load_of(lane: str, blocks: int) -> SettingsLoad:
    """Return the traffic of a chain."""
    return SettingsLoad(lane=lane, paras=100, channels=1_000, candidates_per_block=CANDIDATES_PER_BLOCK, blocks=blocks)


def in_turns(lanes: tuple[str, ...], blocks: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Yield the records of all chains, some of each in turns."""
    left = {lane: encoded(load_of(lane, blocks)) for lane in lanes}
    while left:
        for lane in list(left):
            part = list(islice(left[lane], RECORDS_AT_ONCE))
            if part:
                yield lane, part
            else:
                del left[lane]


def configuration_of(lanes: tuple[str, ...], master: str, directory: Path, kafka: dict[str, object]) -> Config:
    """Return the configuration of a job with some chains."""
    chains = {}
    for lane in lanes:
        (directory / lane).mkdir()
        chains[lane] = chain_config(load_of(lane, 1), directory / lane)
    return Config.model_validate({
        "topics": {"prefix": prefix_of(lanes)},
        "kafka": kafka,
        "job": {
            "directory": str(directory / "job"),
            "master": master,
            "max_records_per_trigger": RECORDS_PER_TRIGGER,
            "root_interval_blocks": 0,
            "state_partitions": PARTITIONS,
        },
        "chains": chains,
    })  # fmt: skip
