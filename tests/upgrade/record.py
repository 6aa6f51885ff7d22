# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.upgrade.record NAME`: record a deployment that has stopped in the middle of its inputs.

Run it in a checkout of the version that is to be released. NAME is that version, such as v0.1.0. It makes `tests/upgrade/NAME.tar.xz`: a
folder as a user has it after `validator up` was stopped, with the broker's data, the checkpoint and what is kept next to it, and the inputs
that come later. Everything is done with commands, so later versions of this program record later versions of the product in the same way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from validator_simulators import SimulationSettings
from validator_simulators.installed import chain_table, simulation_of

from validator.config.toml import to_toml

HERE = Path(__file__).resolve().parent

LANES = {
    "polkadot": ("router", SimulationSettings(seed=11, blocks=14, violation_share=0.15)),
    "kusama": (
        "router",
        SimulationSettings(
            seed=12, blocks=14, lane="kusama", topology="kusama", violation_share=0.15, enactment="on-inclusion", notifications=True,
            unlimited_balances=True,
        ),
    ),
    "westend": ("xcmp-network", SimulationSettings(seed=13, blocks=12, lane="westend", violation_share=0.15)),
}  # fmt: skip
"""By lane, its protocol and how it is simulated."""

EARLY_SHARE = 0.6
"""The share of each lane's records that the recorded job has read. Its end falls inside a block, so records wait in the lane."""

SMALL_JOURNAL = """
from validator.lanes import store
store.JOURNAL_BYTES_MIN = 5_000
"""
"""Lets lanes save pages after some blocks, as they do after some hours, so that the state has pages and a journal."""

READY = "Ctrl-C"
"""`validator up` prints this once the job runs."""

UP_LOG = "up.log"

START_S_MAX = 300.0
"""Seconds to wait for a job, many times what a busy machine needs."""

LEFT_OUT = ("logs", "broker.log", "server.properties", "job.lock", "running.lock", "broker.lock")
"""Names of files that a start writes again."""

LATER_SHARE = 0.2
"""The share that comes after the upgrade."""

PARTS = 4
"""Parts in which the early records are submitted."""

Records: TypeAlias = list[tuple[str, dict[str, Any]]]
"""Records as JSON, each with its topic."""


def simulated() -> tuple[dict[str, Any], list[Records], Records]:
    """Return the configuration, the early records in parts that each become a batch or more, and the later records."""
    chains: dict[str, Any] = {}
    parts: list[Records] = [[] for _ in range(PARTS)]
    later: Records = []
    for lane, (protocol, settings) in LANES.items():
        simulation = simulation_of(protocol, settings)
        chains[lane] = chain_table(simulation.chain())
        records = [record for block in simulation.blocks() for record in block.records]
        cut = int(len(records) * EARLY_SHARE)
        early = [*records[:cut], *records[cut - 3 : cut]]  # three come twice
        for number, part in enumerate(parts):
            part.extend(early[len(early) * number // PARTS : len(early) * (number + 1) // PARTS])
        later += records[cut : cut + int(len(records) * LATER_SHARE)]
    return {"topics": {"prefix": "recorded."}, "chains": chains}, parts, later


def write_records(folder: Path, records: Records) -> None:
    """Write records as `validator submit` reads them: a file for each topic."""
    folder.mkdir()
    for topic in sorted({topic for topic, _ in records}):
        lines = (json.dumps(record) + "\n" for each, record in records if each == topic)
        (folder / f"{topic}.jsonl").write_text("".join(lines), encoding="utf-8")


def submit(folder: Path, records: Path) -> int:
    """Submit the files of a folder, and return how many records they have."""
    count = 0
    for path in sorted(records.glob("*.jsonl")):
        run(folder, "submit", path.stem, str(path))
        count += len(path.read_text(encoding="utf-8").splitlines())
    return count


def run(folder: Path, *arguments: str) -> str:
    """Run a command in a folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "validator", *arguments], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(**more: str) -> dict[str, str]:
    """Return the environment of commands: nothing of a user's configuration."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VALIDATOR_")} | more


@contextmanager
def up(folder: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `validator up` in a folder, and stop it at the end unless it has ended by itself; it prints to the file `UP_LOG`."""
    printed = folder / UP_LOG
    with printed.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "validator", "up"], cwd=folder, env=environment(**more), stdout=output, stderr=subprocess.STDOUT
        )  # fmt: skip
    try:
        wait_until(lambda: READY in printed.read_text() or process.poll() is not None)
        assert process.poll() is None, printed.read_text()
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(START_S_MAX) == 0, printed.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
            run(folder, "broker", "stop")


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    deadline = time.monotonic() + START_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def consumed(folder: Path) -> int:
    """Return how many records all lanes together have taken."""
    listed = (json.loads(line) for line in run(folder, "lanes", "--json").splitlines())
    return sum(each.get("consumed") or 0 for each in listed)


def has_consumed(folder: Path, count: int) -> bool:
    """Return whether all lanes together have taken that many records."""
    return consumed(folder) == count


def main(arguments: Sequence[str]) -> int:
    """Record a deployment."""
    (name,) = arguments
    configuration, parts, later = simulated()
    with tempfile.TemporaryDirectory() as temporary:
        folder, hook = Path(temporary) / "deployment", Path(temporary) / "hook"
        folder.mkdir()
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(SMALL_JOURNAL)
        (folder / "validator.toml").write_text(to_toml(configuration), encoding="utf-8")
        write_records(folder / "later", later)
        with up(folder, PYTHONPATH=os.pathsep.join([str(hook), str(Path.cwd())])):
            submitted = 0
            for number, part in enumerate(parts):
                write_records(Path(temporary) / str(number), part)
                submitted += submit(folder, Path(temporary) / str(number))
                wait_until(partial(has_consumed, folder, submitted))
        (folder / UP_LOG).unlink()
        target = HERE / f"{name}.tar.xz"
        with tarfile.open(target, "w:xz") as packed:
            packed.add(folder, ".", filter=_kept)
    print(f"{target.name}: {target.stat().st_size} bytes")
    return 0


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name in LEFT_OUT else member


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
