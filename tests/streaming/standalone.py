# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of Spark on this machine: a master and workers of one core each, as processes of pyspark's own classes."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.listening import with_children
from tests.streaming.harness import wait_until
from validator.kafka.java import find_java

HOST: Final = "127.0.0.1"
ENVIRONMENT: Final = "environment"
"""The folder that executors unpack the Python environment into."""

_OPENED: Final = ("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")


@dataclass
class Daemon:
    """A master or a worker."""

    process: subprocess.Popen[str]
    log: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match in the log, once there is one."""
        found: list[re.Match[str]] = []

        def said() -> bool:
            assert self.process.poll() is None, "".join(self.lines[-20:])
            found.extend(match for line in list(self.lines) if (match := re.search(pattern, line)))
            return bool(found)

        wait_until(said, pattern, self.log)
        return found[0]

    def count(self, pattern: str) -> int:
        """Return how many lines of the log match."""
        return sum(re.search(pattern, line) is not None for line in list(self.lines))

    def kill(self) -> None:
        """Kill the process with its executors, as a machine that loses its power."""
        pids = with_children({self.process.pid})
        for pid in sorted(pids):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.log.open("a", encoding="utf-8") as log:
            for line in self.process.stderr:
                log.write(line)
                log.flush()
                self.lines.append(line)


@dataclass
class Cluster:
    """A standalone cluster; ``folder`` has its logs, and the configuration of those who use it.

    If it ``recovers``, a master that is started again knows applications and workers of the one before.
    """

    folder: Path
    recovers: bool = False
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    workers: list[Daemon] = field(default_factory=list)
    _added: int = 0

    def start(self, workers: int) -> None:
        """Start the master, then the workers."""
        self._properties = self.folder / "cluster.conf"
        self._properties.touch(0o600)
        self._properties.write_text(
            f"spark.authenticate true\nspark.authenticate.secret {self.secret}\nspark.network.crypto.enabled true\n"
            "spark.master.rest.enabled false\n"
            + (
                f"spark.deploy.recoveryMode FILESYSTEM\nspark.deploy.recoveryDirectory {self.folder}/recovery\n"
                * self.recovers
            ),
            encoding="utf-8",
        )
        self.master = self._daemon("master", "deploy.master.Master")
        self.address = self.master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        self._port = int(self.address.rpartition(":")[2])
        for _ in range(workers):
            self.add_worker()
        for worker in self.workers:
            worker.wait_for("Successfully registered with master")

    def restart_master(self) -> None:
        """Start a master in place of one that has ended, at its address."""
        self.master = self._daemon("master", "deploy.master.Master", port=self._port)

    def add_worker(self) -> Daemon:
        """Start one more worker."""
        name = f"worker-{self._added}"
        self._added += 1
        place = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name))
        self.workers.append(self._daemon(name, "deploy.worker.Worker", *place, self.address))
        return self.workers[-1]

    def stop(self) -> None:
        """Kill everything that still runs."""
        for daemon in [*self.workers, self.master]:
            if daemon.process.poll() is None:
                daemon.kill()

    def client(self, **more: str) -> dict[str, str]:
        """Return the environment of a job on this cluster: where its `spark-defaults.conf` is, and the interpreter of its workers."""
        options = {
            "spark.authenticate.secret": self.secret,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.archives": f"{environment_archive(self.folder)}#{ENVIRONMENT}",
        }
        folder = self.folder / "client"
        folder.mkdir()
        defaults = folder / "spark-defaults.conf"
        defaults.touch(0o600)
        defaults.write_text("".join(f"{name} {value}\n" for name, value in (options | more).items()), encoding="utf-8")
        python = f"./{ENVIRONMENT}/bin/python"
        return {"SPARK_CONF_DIR": str(folder), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": HOST}

    def _daemon(self, name: str, main: str, *arguments: str, port: int = 0) -> Daemon:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.submodule_search_locations
        spark, java = Path(spec.submodule_search_locations[0]), find_java().resolve()
        opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
        place = ("--host", HOST, "--port", str(port), "--webui-port", "0", "--properties-file", str(self._properties))
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(java.parent.parent),
            "SPARK_LOCAL_IP": HOST,
        }
        process = subprocess.Popen(
            [str(java), *quick, *opened, "-cp", f"{spark}/jars/*", f"org.apache.spark.{main}", *place, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
        )
        return Daemon(process, self.folder / f"{name}.log")


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Cluster]:
    """Run a cluster."""
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()


def environment_archive(folder: Path) -> Path:
    """Return an archive of a Python environment: one with this interpreter, which finds its packages where this one has them."""
    made = folder / ENVIRONMENT
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    here = [each for each in sys.path if each.endswith("site-packages")]
    # an entry that begins with `import` is executed: `addsitedir` also reads the .pth files of editable installations
    (packages / "here.pth").write_text("".join(f"import site; site.addsitedir({each!r})\n" for each in here))
    archive = folder / f"{ENVIRONMENT}.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(made.iterdir()):
            packed.add(path, path.name)
    return archive
