# SPDX-License-Identifier: Apache-2.0
"""The job on a standalone cluster with two executors of one core, one of which dies and is replaced; then the driver starts again."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from streaming.stages import divided
from tests.crash.processes import Process, processes
from tests.listening import with_children
from tests.streaming.harness import (
    SAME_WHATEVER_ARRIVES,
    consume,
    decoded,
    first_difference,
    last_status,
    of_lane,
    produce,
)
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, reference
from tests.streaming.standalone import ENVIRONMENT, Cluster, standalone
from validator import exit_codes
from validator.job.health import ask
from validator.kafka.topics import create_topics

EARLY = 20
"""The last block that is executed before a worker dies."""

BATCHES = 12
"""Batches that a backlog is divided into."""

LOST = 3
"""Executors that are killed."""

LATER = 40
"""The last block that is executed before the driver is started again."""

PARTITIONS = 3
"""State partitions, of which each lane has one."""

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker]


def below(cluster: Cluster) -> list[Process]:
    """Return the processes below the cluster's workers."""
    pids = with_children({worker.process.pid for worker in cluster.workers})
    return [each for each in processes() if each.pid in pids and each.command]


def python_of(cluster: Cluster) -> set[str]:
    """Return the interpreters that the cluster's executors run."""
    return {each.command.split()[0] for each in below(cluster) if "python" in each.command.split()[0]}


def test_lanes_on_a_standalone_cluster_survive_a_worker(
    kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "standalone."
    create_topics(kafka, prefix=prefix)
    records = [record for chain in chains() for record in chain.records]
    early = [record for record in records if record.block <= EARLY]
    produce(kafka, prefix, early)
    # the driver has the environment at the path that its executors unpack it to
    (tmp_path / ENVIRONMENT).symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    with standalone(tmp_path / "cluster", 2) as cluster:
        for name, value in cluster.client().items():
            monkeypatch.setenv(name, value)
        settings = write_configuration(
            tmp_path, chains(), kafka, prefix, master=cluster.address, state_partitions=2, driver_memory="512m"
        )
        with job(settings) as running:
            running.wait_for_records(kafka, prefix, "receipts", EARLY * len(chains()))
            assert python_of(cluster) == {f"./{ENVIRONMENT}/bin/python"}
            cluster.workers[0].kill()
            cluster.add_worker().wait_for("Successfully registered with master")
            produce(kafka, prefix, [record for record in records if EARLY < record.block <= LATER])
            running.wait_for_records(kafka, prefix, "receipts", LATER * len(chains()))
            assert running.terminate() == exit_codes.OK
        sums = list((tmp_path / "job" / "checkpoint").rglob(".*.crc"))
        assert any(path.parts[-3:-1] == ("_metadata", "v2") for path in sums), "a cluster's driver writes them"
        with job(settings) as running:  # as the next pod does
            produce(kafka, prefix, [record for record in records if record.block > LATER])
            blocks = sum(record.topic == "blocks" for record in records)
            running.wait_for_records(kafka, prefix, "receipts", blocks)
            assert running.terminate() == exit_codes.OK
        assert cluster.master.count("Launching executor .* on worker") >= 3
        assert cluster.master.count("Registered app validator") >= 1

    outputs = consume(kafka, prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))
    assert decoded(outputs, "dead-letters") == []
    for simulated, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(simulated)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"]) == (len(chain.records), 0)


def executors_of(cluster: Cluster) -> list[int]:
    """Return the JVMs of the cluster's executors."""
    return [each.pid for each in below(cluster) if "CoarseGrainedExecutorBackend" in each.command]


def test_executor_that_is_lost_in_a_batch_costs_only_its_own_tasks(
    kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a backlog in small batches there is always one that executes; the cluster starts another executor."""
    prefix = "executors."
    create_topics(kafka, prefix=prefix)
    records = [record for chain in chains() for record in chain.records]
    blocks = sum(record.topic == "blocks" for record in records)
    produce(kafka, prefix, records)
    assert all(len(lanes) == 1 for lanes in divided([chain.lane for chain in chains()], PARTITIONS).values())
    (tmp_path / ENVIRONMENT).symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    with standalone(tmp_path / "cluster", 2) as cluster:
        for name, value in cluster.client().items():
            monkeypatch.setenv(name, value)
        settings = write_configuration(
            tmp_path,
            chains(),
            kafka,
            prefix,
            master=cluster.address,
            state_partitions=PARTITIONS,
            driver_memory="512m",
            max_records_per_trigger=len(records) // BATCHES,
        )
        with job(settings) as running:
            for lost in range(LOST):
                running.wait_for_records(kafka, prefix, "receipts", blocks * (lost + 1) // (LOST + 2))
                os.kill(executors_of(cluster)[lost % 2], signal.SIGKILL)
            running.wait_for_records(kafka, prefix, "receipts", blocks)
            assert running.terminate() == exit_codes.OK
        assert running.named("restarting") == []
        assert len(running.named("executor lost")) >= LOST
        assert cluster.master.count("Launching executor .* on worker") >= 2 + LOST

    outputs = consume(kafka, prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))
    assert decoded(outputs, "dead-letters") == []
    for simulated, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(simulated)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"]) == (len(chain.records), 0)


def test_folder_that_executors_do_not_share_is_said_in_one_line(
    kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "not-shared."
    create_topics(kafka, prefix=prefix)
    produce(kafka, prefix, [record for chain in chains() for record in chain.records if record.block <= EARLY])
    (tmp_path / ENVIRONMENT).symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    # a path that leads somewhere else in each process, as one does on machines that mount nothing there
    own = Path("/proc/self/cwd/job")
    with standalone(tmp_path / "cluster", 1) as cluster:
        for name, value in cluster.client().items():
            monkeypatch.setenv(name, value)
        settings = write_configuration(tmp_path, chains(), kafka, prefix, master=cluster.address, driver_memory="512m")
        table = json.loads(settings.read_text())
        table["job"]["directory"] = str(own)
        settings.write_text(json.dumps(table))
        with job(settings) as running:
            assert running.end() == exit_codes.STOPPED
    (failed,) = running.named("failed")
    assert f"[job] directory {own}: the executor on " in failed["reason"]
    assert (
        "does not find the driver's files there (No such file or directory): mount one shared file system"
        in failed["reason"]
    )
    assert consume(kafka, prefix, ("verdicts",))["verdicts"] == []


def test_job_whose_master_was_started_again_ends_and_its_next_start_waits_for_a_master(
    kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a recovery directory the new master knows no application, and has the workers end the job's executor."""
    prefix = "forgotten."
    create_topics(kafka, prefix=prefix)
    records = [record for chain in chains() for record in chain.records]
    produce(kafka, prefix, [record for record in records if record.block <= EARLY])
    (tmp_path / ENVIRONMENT).symlink_to(sys.prefix)
    monkeypatch.chdir(tmp_path)
    with standalone(tmp_path / "cluster", 1) as cluster:
        for name, value in cluster.client().items():
            monkeypatch.setenv(name, value)
        settings = write_configuration(tmp_path, chains(), kafka, prefix, master=cluster.address, driver_memory="512m")
        table = json.loads(settings.read_text())
        table["metrics"] = {"listen": "127.0.0.1:0"}
        settings.write_text(json.dumps(table))
        without = f"Spark's master at {cluster.address} gives the job no executor since "
        with job(settings) as running:
            running.wait_for_records(kafka, prefix, "receipts", EARLY * len(chains()))
            cluster.master.kill()
            cluster.restart_master()
            produce(kafka, prefix, [record for record in records if record.block > EARLY])
            running.wait_for(lambda: running.named("waiting") != [], "the job says that it has no executor")
            assert running.named("executor lost")[0]["executors"] == 0
            assert running.named("waiting")[0]["reason"].startswith(without)
            found = ask(running.named("metrics")[0]["address"].removeprefix("http://").removesuffix("/metrics"))
            assert not found.healthy
            assert found.line.startswith(f"the job waits: {without}")
            assert running.end() == exit_codes.STOPPED
        (failed,) = running.named("failed")
        assert failed["reason"].startswith(without)
        assert "the next start registers the job" in failed["reason"]

        cluster.master.kill()
        with job(settings) as running:
            running.wait_for(lambda: running.named("waiting") != [], "the job waits for a master")
            reason = running.named("waiting")[0]["reason"]
            assert reason.startswith(f"Spark's master at {cluster.address} cannot be reached: Connection refused")
            cluster.restart_master()
            blocks = sum(record.topic == "blocks" for record in records)
            running.wait_for_records(kafka, prefix, "receipts", blocks)
            assert running.terminate() == exit_codes.OK

    outputs = consume(kafka, prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))
    assert decoded(outputs, "dead-letters") == []
    for simulated, chain in zip((IMMEDIATE, ON_INCLUSION), chains(), strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(simulated)) is None
