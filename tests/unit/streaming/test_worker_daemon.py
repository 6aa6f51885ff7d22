# SPDX-License-Identifier: Apache-2.0
"""Each partition keeps its worker, whichever connection Spark sends its task over, and Spark sees each death as always.

The test is Spark: it opens connections, each of which it knows by a process id, and sends tasks over them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming import options, worker_daemon
from streaming.stages import CONDENSE, DECODE, KEPT_WORKERS_MAX, LANES, STAGE_VARIABLE
from tests.unit.streaming.daemon_process import NUMBER_BYTES

WAIT_S_MAX = 60.0


class Spark:
    """A daemon, and connections to it."""

    def __init__(self, folder: Path) -> None:
        self.words = folder
        self._path = folder / "s"
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.streaming.daemon_process", str(self._path), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.daemon.stdin is not None
        assert self.daemon.stdout is not None
        self.stdin, self.stdout = self.daemon.stdin, self.daemon.stdout
        assert self.stdout.readline() == b"listening\n"

    def connect(self) -> tuple[socket.socket, int]:
        """Return a connection and the process by which Spark knows it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(WAIT_S_MAX)
        connection.connect(str(self._path))
        return connection, number(connection)


def number(connection: socket.socket) -> int:
    """Return the process id that a worker sends."""
    found = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    assert len(found) == NUMBER_BYTES, "the connection is closed"
    return int.from_bytes(found)


def begin(connection: socket.socket, partition: int) -> int:
    """Begin a task, and return the worker that executes it."""
    connection.send(partition.to_bytes(NUMBER_BYTES))
    return number(connection)


def end(connection: socket.socket, how: bytes = b".") -> None:
    connection.send(how)
    number(connection)


def execute(connection: socket.socket, partition: int) -> int:
    worker = begin(connection, partition)
    end(connection)
    return worker


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def spark() -> Iterator[Spark]:
    folder = Path(tempfile.mkdtemp())  # the path of a local socket is short
    made = Spark(folder)
    yield made
    made.stdin.close()
    made.daemon.wait(WAIT_S_MAX)
    made.stdout.close()
    shutil.rmtree(folder)


def test_partition_keeps_its_worker_whichever_connection_brings_its_task(spark: Spark) -> None:
    (one, known), (other, other_known) = spark.connect(), spark.connect()
    workers = execute(one, 0), execute(other, 1)
    assert set(workers) == {known, other_known}
    for first, second in ((one, other), (other, one)) * 3:
        assert (execute(first, 0), execute(second, 1)) == workers


def test_tasks_of_two_partitions_run_at_once_whichever_connections_bring_them(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    workers = execute(one, 0), execute(other, 1)
    assert (begin(one, 1), begin(other, 0)) == workers[::-1]
    end(other)
    end(one)


def test_more_partitions_than_connections_have_a_worker_each_up_to_the_limit(spark: Spark) -> None:
    connection, _ = spark.connect()
    count = KEPT_WORKERS_MAX
    workers = [execute(connection, partition) for partition in range(count)]
    assert len(set(workers)) == count
    assert [execute(connection, partition) for partition in range(2 * count)] == workers * 2


def test_second_task_of_a_partition_waits_for_the_first(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    worker = begin(one, 0)
    other.send((0).to_bytes(NUMBER_BYTES))
    other.settimeout(0.2)
    with pytest.raises(TimeoutError):
        other.recv(1)
    other.settimeout(WAIT_S_MAX)
    end(one)
    assert number(other) == worker
    end(other)


def test_death_of_a_worker_ends_its_tasks_connection_with_its_last_words(spark: Spark) -> None:
    (one, known), (other, other_known) = spark.connect(), spark.connect()
    execute(one, 0)
    execute(other, 1)
    worker = begin(other, 0)
    assert worker == known, "not the one that Spark knows the connection by"
    other.send(b"k")
    assert other.recv(1) == b""
    assert (spark.words / str(other_known)).read_text() == f"words of {worker}"
    (spark.words / str(other_known)).unlink()  # as Spark does
    assert execute(one, 1) == other_known
    assert execute(one, 0) not in {known, other_known}, "the partition has a new worker"


def test_words_of_another_worker_do_not_take_the_place_of_a_workers_own(spark: Spark) -> None:
    (one, known), (other, other_known), (third, third_known) = spark.connect(), spark.connect(), spark.connect()
    execute(one, 0)
    execute(other, 1)
    begin(other, 0)
    other.send(b"k")
    assert other.recv(1) == b""
    (spark.words / str(other_known)).unlink()
    assert begin(third, 1) == other_known, "it lives on, and Spark has read words under its id"
    third.send(b"k")
    assert third.recv(1) == b""
    assert (spark.words / str(third_known)).read_text() == f"words of {other_known}"
    assert known != other_known


def test_task_that_waits_for_a_worker_that_dies_gets_another(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    worker = begin(one, 0)
    other.send((0).to_bytes(NUMBER_BYTES))
    one.send(b"k")
    assert number(other) != worker
    end(other)


def test_connection_that_spark_closes_during_a_task_ends_the_worker(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    worker = begin(one, 0)
    one.close()
    wait_until(lambda: not is_alive(worker))
    assert execute(other, 0) != worker


def test_task_that_spark_gives_up_before_it_begins_harms_nobody(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    worker = begin(one, 0)
    other.send((0).to_bytes(NUMBER_BYTES))
    other.close()
    end(one)
    assert execute(one, 0) == worker


def test_worker_of_a_failed_task_ends_once_spark_has_read_what_it_says(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    worker = begin(one, 0)
    end(one, b"f")
    assert is_alive(worker)
    one.close()
    wait_until(lambda: not is_alive(worker))
    assert execute(other, 0) != worker


def test_workers_end_once_spark_has_closed_all_connections(spark: Spark) -> None:
    (one, _), (other, _) = spark.connect(), spark.connect()
    workers = {execute(one, partition) for partition in range(3)}
    one.close()
    assert {execute(other, partition) for partition in range(3)} == workers
    other.close()
    wait_until(lambda: not any(map(is_alive, workers)))
    last, _ = spark.connect()
    assert execute(last, 0) not in workers


def test_worker_that_has_no_partition_ends_with_its_connection(spark: Spark) -> None:
    (one, _), (other, known) = spark.connect(), spark.connect()
    execute(one, 0)
    other.close()
    wait_until(lambda: not is_alive(known))


@pytest.mark.parametrize("how", ["stdin", "kill"])
def test_workers_end_with_their_daemon(spark: Spark, how: str) -> None:
    connection, _ = spark.connect()
    workers = [execute(connection, partition) for partition in range(2)]
    if how == "stdin":
        spark.stdin.close()
    else:
        spark.daemon.send_signal(signal.SIGKILL)
    spark.daemon.wait(WAIT_S_MAX)
    wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.parametrize(
    ("master", "own"), [("local[2]", True), ("local[1]", False), ("local", False), ("local-cluster[2,1,512]", False)]
)
def test_local_job_whose_workers_run_side_by_side_has_its_own_daemon(master: str, own: bool) -> None:
    assert bool(options.worker_options(master)) is own


@pytest.mark.parametrize(
    ("stage", "local_sockets"), [(CONDENSE, "true"), (DECODE, "false"), (LANES, "false"), (None, "true")]
)
def test_other_stages_have_sparks_daemon(
    monkeypatch: pytest.MonkeyPatch, stage: str | None, local_sockets: str
) -> None:
    called: list[str] = []
    monkeypatch.setattr(worker_daemon.daemon, "manager", lambda: called.append("spark's"))
    monkeypatch.setenv(STAGE_VARIABLE, stage or "")
    monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", local_sockets)
    worker_daemon.main()
    assert called == ["spark's"]
