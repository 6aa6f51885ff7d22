# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.quick`: the figures that a change is most likely to make worse, compared with the committed ones.

Processor times are divided by that of a fixed piece of work, measured next to them, so that they mean the same on another machine.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from validator_simulators.router.load import SettingsLoad

from benchmarks import catch_up, latency
from benchmarks.committed import COMMITTED, Runs, read, show, worse, write
from benchmarks.core import CODEC, INTERVALS, initial_state, prepare
from benchmarks.processes import JVM
from benchmarks.service import configuration, encoded, produce
from validator.codec.decode import decode_record
from validator.codec.inflight import pack, unpack
from validator.core.execute import execute
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics
from validator.lanes.configured import lane_definitions
from validator.lanes.processor import LaneProcessor
from validator.protocols.router.rules import Router
from validator.topics import INPUT_TOPICS

CORE_CANDIDATES: Final = 20_000
JOB_CANDIDATES: Final = 120_000
RECORDS_PER_TRIGGER: Final = 30_000
LATENCY_BLOCKS: Final = (25, 40)
"""To warm up, and measured."""

RUNS: Final = 5

PART_NAMES: Final = ("core", "lane", "job", "latency")


def work() -> float:
    """Return the processor time in seconds of a fixed piece of work, of the kind that the program does."""
    began = time.process_time()
    held: dict[int, tuple[int, bytes]] = {}
    for number in range(200_000):
        held[number & 0xFFF] = (number, blake2b(number.to_bytes(8), digest_size=8).digest())
    return time.process_time() - began


def core() -> Iterator[tuple[str, float]]:
    """Yield the processor time of a candidate in the rules alone, on a small and on a large chain."""
    for paras, channels in ((10, 90), (1_000, 50_000)):
        per_block = min(100, paras)
        load = SettingsLoad(
            paras=paras, channels=channels, candidates_per_block=per_block, blocks=CORE_CANDIDATES // per_block
        )
        blocks, rules = prepare(load), Router(initial_state(load))
        yield (
            f"core, {channels:,} channels",
            _cost(lambda blocks=blocks, rules=rules: [execute(rules, block, INTERVALS) for block in blocks]),
        )


def lane() -> Iterator[tuple[str, float]]:
    """Yield the processor time of a candidate in the steps of the decode stage and of the lane's worker."""
    load = SettingsLoad(paras=100, channels=1_000, candidates_per_block=100, blocks=CORE_CANDIDATES // 100)
    values = [(INPUT_TOPICS[topic], value, Source(topic, 0, at)) for at, (topic, value) in enumerate(encoded(load))]
    items: list[Input | DeadLetter] = []

    def decode() -> None:
        for kind, value, source in values:
            decoded = decode_record(CODEC, kind, value, source)
            items.append(decoded if isinstance(decoded, DeadLetter) else decoded[1])

    yield "decode", _cost(decode)
    yield "pack and unpack", _cost(lambda: unpack(pack(items)))
    with TemporaryDirectory() as folder:
        (definition,) = lane_definitions(configuration(load, Path(folder), {"bootstrap.servers": "x:1"}, "x.")).values()
    processor = LaneProcessor.create(definition)
    yield "execute and encode", _cost(lambda: list(processor.process(items)))


def _cost(call: Callable[[], object]) -> float:
    """Return the processor time of a candidate, in units of the work before and after it: other load slows both."""
    unit = work()
    gc.collect()
    gc.disable()
    began = time.process_time()
    call()
    used = time.process_time() - began
    gc.enable()
    return used / CORE_CANDIDATES / ((unit + work()) / 2)


def job() -> tuple[dict[str, float], dict[str, float]]:
    """Return the processor time of a candidate in the job by kind of process, and times of day, both in seconds."""
    load = SettingsLoad(paras=100, channels=1_000, candidates_per_block=100, blocks=JOB_CANDIDATES // 100)
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        create_topics(broker.kafka, prefix="quick.")
        total = produce(broker.kafka, "quick.", load.lane, encoded(load))
        options = {"max_records_per_trigger": RECORDS_PER_TRIGGER, "root_interval_blocks": 0}
        config = configuration(load, Path(folder), broker.kafka, "quick.", **options)
        ran = catch_up.job_run(config, Path(folder), total, JOB_CANDIDATES)
    processor = {f"job, {kind}": ran.processor_us[kind] / 1e6 for kind in (JVM, "decode workers", "lanes workers")}
    return {**processor, "job, all processes": sum(ran.processor_us.values()) / 1e6}, {"job, a candidate": 1 / ran.warm}


def batches() -> tuple[dict[str, float], dict[str, float]]:
    """Return the processor time of a small batch in the job, and its latency, in seconds."""
    found = latency.measured(20, *LATENCY_BLOCKS)
    return (
        {"small batch, all processes": sum(found.processor_ms.values()) / 1e3},
        {"block record to verdict, p50": found.p50, "block record to verdict, p99": found.p99},
    )


def measure(parts: Sequence[str], say: Callable[[str], None]) -> dict[str, Runs]:
    """Measure parts of `PART_NAMES`."""
    processor: dict[str, list[float]] = {}
    of_day: dict[str, list[float]] = {}
    for number in range(RUNS):
        say(f"{number + 1}/{RUNS}: in this process")
        for name, cost in (*(core() if "core" in parts else ()), *(lane() if "lane" in parts else ())):
            processor.setdefault(name, []).append(cost)
    for part, run in (("job", job), ("latency", batches)):
        if part in parts:
            say(part)
            unit = work()
            used, passed = run()
            unit = (unit + work()) / 2
            processor |= {name: [seconds / unit] for name, seconds in used.items()}
            of_day |= {name: [seconds] for name, seconds in passed.items()}
    judged = {name: Runs(tuple(values), judged=True) for name, values in processor.items()}
    return judged | {name: Runs(tuple(values), judged=False) for name, values in of_day.items()}


def quick(
    parts: Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(PART_NAMES)}; all by default.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Replace the committed figures by these.")] = False,
) -> None:
    """Measure in five minutes; exit with code 1 if a figure is worse than the committed one by more than noise."""
    unknown = [part for part in parts or () if part not in PART_NAMES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r}: expected one of {', '.join(PART_NAMES)}")
    figures = measure(parts or PART_NAMES, lambda text: print(text, file=sys.stderr, flush=True))
    committed = read(COMMITTED)
    show(figures, committed)
    if keep:
        write({**committed, **figures}, COMMITTED)
        return
    found = worse(figures, committed)
    typer.echo(f"worse: {', '.join(found)}" if found else "nothing is worse by more than noise")
    sys.exit(bool(found))


if __name__ == "__main__":
    typer.run(quick)
