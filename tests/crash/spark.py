# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of Spark under a world's job, and the disk that driver and executors share; what dies of it is started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.crash.processes import Process, processes, send
from tests.listening import with_children
from tests.streaming.standalone import ENVIRONMENT, Cluster

WORKERS: Final = 2

DISK_BYTES: Final = 1 << 30
"""Size of the shared disk, of which only what is written takes place."""

THAWED_S: Final = 120
"""Seconds after which a frozen disk is thawed even if the suite is gone: what writes there cannot be killed before."""

EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master, and two workers with an executor of one core each."""

    def __init__(self, folder: Path, python_path: str, points: Path) -> None:
        self._folder = folder
        self._cluster = Cluster(folder / "spark", recovers=True)
        self._injected = {"spark.executorEnv.PYTHONPATH": python_path, "spark.executorEnv.CRASH_POINTS": str(points)}

    def start(self) -> None:
        """Start all processes; from now on jobs start in the folder, where driver and executors find the same environment."""
        self._cluster.folder.mkdir()
        self._cluster.start(WORKERS)
        self.environment = self._cluster.client(**self._injected)
        (self._folder / ENVIRONMENT).symlink_to(sys.prefix)
        self._before = Path.cwd()
        os.chdir(self._folder)

    def stop(self) -> None:
        """Kill all processes."""
        os.chdir(self._before)
        self._cluster.stop()

    @property
    def address(self) -> str:
        """Where the master answers."""
        return self._cluster.address

    @property
    def logs(self) -> list[Path]:
        """What the daemons and executors log."""
        return [*self._cluster.folder.glob("*.log"), *self._cluster.folder.glob("worker-*/*/*/stderr")]

    def restart_dead(self) -> None:
        """Start what does not run; the others find it by themselves."""
        if self._cluster.master.process.poll() is not None:
            self._cluster.restart_master()
        for worker in list(self._cluster.workers):
            if worker.process.poll() is not None:
                self._cluster.workers.remove(worker)
                self._cluster.add_worker()

    def processes(self) -> list[Process]:
        """Return the processes below the workers, and these: executors, and their Python workers."""
        pids = with_children({each.process.pid for each in self._cluster.workers})
        return [each for each in processes() if each.pid in pids]

    def pids(self, victim: str) -> list[int | None]:
        """Return the processes of a victim: the master, a worker with its executor, or an executor; none if there is none now."""
        if victim == "spark-master":
            return [self._cluster.master.process.pid]
        worker = self._cluster.workers[0].process.pid
        if victim == "spark-worker":
            return [*sorted(with_children({worker}))]
        workers = {each.process.pid for each in self._cluster.workers}
        return [each.pid for each in processes() if each.parent in workers and EXECUTOR in each.command][:1]


class SharedDisk:
    """A separate file system that can stall: as root and on Linux alone."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder = folder
        self._image = image
        self.mounted = False

    def mount(self) -> None:
        """Make and mount the file system, if that is possible here."""
        self.folder.mkdir()
        if os.geteuid() != 0 or any(shutil.which(each) is None for each in ("mkfs.ext4", "mount", "fsfreeze")):
            return
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        commands = (
            ["mkfs.ext4", "-q", str(self._image)],
            ["mount", "-o", "loop,noatime", str(self._image), str(self.folder)],
        )
        self.mounted = all(subprocess.run(each, check=False, capture_output=True).returncode == 0 for each in commands)

    def unmount(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let every write wait, and no process that waits for one be killed, as on a shared folder whose server does not answer."""
        later = f"sleep {THAWED_S}; fsfreeze --unfreeze {self.folder}"
        thaws = subprocess.Popen(["sh", "-c", later], stderr=subprocess.DEVNULL, start_new_session=True)
        subprocess.run(["fsfreeze", "--freeze", str(self.folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(self.folder)], check=False, capture_output=True)
            send(signal.SIGKILL, *with_children({thaws.pid}))
            thaws.wait()
