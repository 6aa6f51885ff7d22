# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.soak`: the job under steady load for an hour, with its memory sampled and plotted.

Every process of the job is sampled: the driver, the JVM, and the Python workers by stage. The result is the growth from the second
quarter of the run to the last: in the first quarter Spark still compiles, and every process still fills its pools.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import matplotlib as mpl
import psutil
import typer
from confluent_kafka import Producer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from validator_simulators.router.load import SettingsLoad

from benchmarks.processes import family, kind_of
from benchmarks.service import configuration, encoded, end_offset, records_since, running
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics

mpl.use("Agg")
from matplotlib import pyplot as plt

PREFIX = "soak."
CANDIDATES_PER_BLOCK = 100
SAMPLE_S = 5.0
GROWTH_MB_MAX = 64.0
"""Megabytes that a process may grow between the second and the last quarter: less than the JVM's heap varies between collections."""
_MB = 1_000_000


@dataclass(slots=True)
class Samples:
    """Resident memory in MB by process, over time in s."""

    at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(self, now: float, pid: int) -> None:
        """Sample the job's processes; those of one kind are summed."""
        sums: dict[str, float] = defaultdict(float)
        for process in family(pid):
            try:
                sums[kind_of(process, pid)] += process.memory_info().rss / _MB
            except psutil.Error:
                continue
        for kind, memory in sums.items():
            self.at[kind].append(now)
            self.memory[kind].append(memory)

    def growth(self, kind: str) -> float:
        """Return by how many MB the median of the last quarter exceeds that of the second."""
        memory = self.memory[kind]
        quarter = max(1, len(memory) // 4)
        return statistics.median(memory[-quarter:]) - statistics.median(memory[quarter : 2 * quarter] or memory)


def soak(
    minutes: Annotated[float, typer.Option(min=1, help="How long.")] = 60,
    rate: Annotated[int, typer.Option(min=1, help="Candidates a second.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder of the plot and the samples.")] = Path("build/soak"),
) -> None:
    """Run the job under steady load and sample its memory; exit with code 1 if it grows or a verdict is missing."""
    blocks = int(minutes * 60 * rate / CANDIDATES_PER_BLOCK)
    load = SettingsLoad(paras=100, channels=1_000, candidates_per_block=CANDIDATES_PER_BLOCK, blocks=blocks)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        kafka = broker.kafka
        create_topics(kafka, prefix=PREFIX)
        with running(configuration(load, Path(folder), kafka, PREFIX)) as job:
            job.wait_for("ready")
            samples, batches = _watch(job.pid, kafka, load, rate, job.batches)
        written = records_since(kafka, f"{PREFIX}verdicts", 0)
    sent = blocks * CANDIDATES_PER_BLOCK
    _plot(samples, batches, out / "memory.png", f"{rate} candidates/s for {minutes:.0f} minutes")
    growth = {kind: samples.growth(kind) for kind in sorted(samples.memory)}
    summary = {
        "minutes": minutes,
        "candidates_per_s": rate,
        "candidates": sent,
        "verdicts": written,
        "growth_mb": growth,
        "at_s": samples.at,
        "memory_mb": samples.memory,
    }
    (out / "memory.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    _show(samples, growth, sent, written, out)
    sys.exit(written != sent or max(growth.values()) > GROWTH_MB_MAX)


def _watch(
    pid: int, kafka: dict[str, Any], load: SettingsLoad, rate: int, batches: Any
) -> tuple[Samples, list[dict[str, Any]]]:
    """Send the load, and sample until all verdicts have been written."""
    samples, began = Samples(), time.monotonic()
    sender = threading.Thread(target=_send, args=(kafka, load, rate), daemon=True)
    sender.start()
    total = load.blocks * (CANDIDATES_PER_BLOCK + 1)
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("steady load", total=total)
        taken = 0
        idle_since = None
        while taken < total:
            time.sleep(SAMPLE_S)
            now = time.monotonic()
            samples.take(now - began, pid)
            before, taken = taken, sum(batch["records"] for batch in batches())
            progress.update(task, completed=taken)
            idle_since = (idle_since or now) if taken == before else None
            if idle_since is not None and now - idle_since > 120:
                raise RuntimeError(f"the job has taken {taken} of {total} records, and none for two minutes")
    end_offset(kafka, f"{PREFIX}verdicts")
    return samples, batches()


def _send(kafka: dict[str, Any], load: SettingsLoad, rate: int) -> None:
    producer = Producer(producer_config(kafka))
    key = load.lane.encode()
    following = time.monotonic()
    for block in _blocks(load):
        for topic, value in block:
            producer.produce(PREFIX + topic, value, key)
        producer.poll(0)
        following += CANDIDATES_PER_BLOCK / rate
        time.sleep(max(0.0, following - time.monotonic()))
    producer.flush()


def _blocks(load: SettingsLoad) -> Iterator[tuple[tuple[str, bytes], ...]]:
    records = encoded(load)
    while block := tuple(islice(records, CANDIDATES_PER_BLOCK + 1)):
        yield block


def _plot(samples: Samples, batches: list[dict[str, Any]], path: Path, title: str) -> None:
    figure, (memory, duration) = plt.subplots(2, 1, figsize=(10, 7), height_ratios=(3, 1), layout="constrained")
    for kind in sorted(samples.memory):
        memory.plot([at / 60 for at in samples.at[kind]], samples.memory[kind], label=kind, linewidth=1.2)
    memory.set(title=f"Memory of the job: {title}", ylabel="resident memory, MB", ylim=(0, None))
    memory.legend(loc="upper left", ncols=3, frameon=False)
    memory.grid(alpha=0.3)
    seconds = [batch["milliseconds"].get("triggerExecution", 0) / 1000 for batch in batches]
    duration.plot(range(len(seconds)), seconds, linewidth=0.8, color="grey")
    duration.set(xlabel="batch", ylabel="s", title="Duration of a batch", ylim=(0, None))
    duration.grid(alpha=0.3)
    memory.set_xlabel("minutes")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _show(samples: Samples, growth: dict[str, float], sent: int, written: int, out: Path) -> None:
    table = Table(title="Memory under steady load", title_justify="left")
    for column in ("processes", "median MB", "greatest MB", "growth MB", ""):
        table.add_column(column, justify="left" if column in ("processes", "") else "right")
    for kind, grown in growth.items():
        memory = samples.memory[kind]
        mark = "[green]flat[/]" if grown <= GROWTH_MB_MAX else "[red]grows[/]"
        table.add_row(kind, f"{statistics.median(memory):,.0f}", f"{max(memory):,.0f}", f"{grown:+,.1f}", mark)
    console = Console()
    console.print(table)
    console.print(f"{written:,} verdicts on {sent:,} candidates; plot and samples in {out}")


if __name__ == "__main__":
    typer.run(soak)
