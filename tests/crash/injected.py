# SPDX-License-Identifier: Apache-2.0
"""What a world gives its processes: failpoints, armed kills, and a small file system that can be full."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.crash.inject.crash_failpoints import Armed
from validator.kafka.broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]
INJECT = Path(__file__).parent / "inject"

SNAPSHOT_BYTES = 10_000
"""Journal bytes that trigger a save here, so that one happens every few batches."""

CONSTANTS = {
    "validator.lanes.store": {"JOURNAL_BYTES_MIN": SNAPSHOT_BYTES},
    "streaming.range_source": {
        "RECORDS_PER_TASK_MIN": 20,
        "FIRST_RECORDS_MAX": 50,
        "GROWTH": 1,
        "AHEAD_RECORDS_MIN": 10,
    },
    "streaming.range_reader": {"HELD_MAX": 20, "RECORDS_AT_ONCE": 10},
    "streaming.decode_stage": {"CHUNK_BYTES": 2_000},
    "streaming.chunk_files": {"FILED_BYTES_MIN": 1_000},
    "validator.lanes.arrived": {"PART_RECORDS": 20},
}
"""Lowered limits of the product: pages are saved often, and small batches have several tasks and parts, are read ahead, and go by files."""

DISK_BYTES = 512 << 20
"""Of the file system under the job's directory."""


def arm(
    points: Path, broker: EmbeddedBroker, step: str, victims: Sequence[str], identity: str, *,
    countdown: int = 1, delay_s: float = 0.0, number: signal.Signals = signal.SIGKILL,
) -> None:  # fmt: skip
    """Arm a signal at a step of the processes that share the folder ``points``; it fires once."""
    armed = Armed(
        id=identity,
        step=step,
        countdown=countdown,
        signal=number,
        victims=list(victims),
        broker_record=str(broker.directory / "broker.json"),
        delay_s=delay_s,
    )
    new = points / "armed.new"
    new.write_text(json.dumps(armed))
    new.replace(points / "armed")


def python_path() -> str:
    return os.pathsep.join([str(INJECT), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def mount(folder: Path) -> bool:
    """Mount a separate small file system under a folder, so that it can be full; return whether that was possible."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "validator-crash", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def injected(points: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Give the failpoints, and ``more`` of an environment, to every process that starts meanwhile."""
    # Spark's workers get them through the JVM's environment
    changed = {"PYTHONPATH": python_path(), "CRASH_POINTS": str(points), **more}
    before = {name: os.environ.get(name) for name in (*changed, "PYTHONDONTWRITEBYTECODE")}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
