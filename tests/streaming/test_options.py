# SPDX-License-Identifier: Apache-2.0
"""The running session has every option that `streaming.options` sets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.options import (
    checkpoint_options,
    cluster_options,
    jvm_options,
    protection_options,
    session_options,
)
from streaming.stages import partition_of
from tests.streaming.conftest import DRIVER_MEMORY
from validator.kafka import class_archive


@pytest.fixture
def options(spark_directory: Path) -> dict[str, str]:
    archive = class_archive.java_options("spark")
    java_options = jvm_options(
        spark_directory / "logs" / "log4j2.properties", "quick", archive, spark_directory / "tmp"
    )
    return session_options(java_options, DRIVER_MEMORY, 1) | checkpoint_options("local[2]")


def test_session_has_every_option(spark: SparkSession, options: dict[str, str]) -> None:
    assert {name: spark.conf.get(name) for name in options} == options
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_file_of_a_checkpoint_is_replaced_by_what_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that failed after one partition had written its changes is repeated; its second changes count."""
    java: Any = spark.sparkContext._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    folder = java.org.apache.hadoop.fs.Path(tmp_path.as_uri())
    files = java.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(folder, hadoop)
    for attempt in (b"first", b"second"):
        stream = files.createAtomic(java.org.apache.hadoop.fs.Path(folder, "7.changelog"), True)  # noqa: FBT003 - Java's
        stream.write(attempt)
        stream.close()
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"7.changelog": attempt}


def test_lanes_are_divided_as_spark_divides_them(spark: SparkSession) -> None:
    names = ["", "a", "kusama", "polkadot", "a.b-c_9", "x" * 64, "\u00fcber"]
    rows = spark.createDataFrame([(each,) for each in names], "lane string").repartition(7, "lane")
    found = {row.lane: row.at for row in rows.selectExpr("lane", "spark_partition_id() AS at").collect()}
    assert found == {name: partition_of(name, 7) for name in names}


def test_session_admits_only_its_own_processes(spark: SparkSession) -> None:
    sockets = Path(spark.conf.get("spark.python.unix.domain.socket.dir") or "")
    wanted = protection_options("local[2]", sockets)
    assert {name: spark.conf.get(name) for name in wanted} == wanted
    assert sockets.stat().st_mode & 0o777 == 0o700
    machine: Any = spark.sparkContext._jvm
    manager = machine.org.apache.spark.SparkEnv.get().securityManager()
    assert manager.isAuthenticationEnabled()
    assert len(manager.getSecretKey()) >= 32
    command = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_text()  # type: ignore[union-attr]
    assert manager.getSecretKey() not in command


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "spark://there:7077", "yarn", "k8s://there:1"])
def test_several_jvms_write_the_checkpoint_as_spark_does_by_default(master: str) -> None:
    assert checkpoint_options(master) == {}


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://there:1", "local-cluster[2,1,1024]"])
def test_executors_compile_as_the_driver_does_and_may_be_lost(master: str) -> None:
    options = cluster_options(master, "quick")
    assert options["spark.executor.defaultJavaOptions"] == "-XX:TieredStopAtLevel=1"
    assert cluster_options(master, "full")["spark.executor.defaultJavaOptions"] == ""
    assert int(options["spark.task.maxFailures"]) > 1
    assert session_options("", "1g", 1)["spark.task.maxFailures"] == "1"
    assert options.get("spark.executor.cores") == (None if "local" in master else "1")


@pytest.mark.parametrize("master", ["local", "local[2]"])
def test_job_in_one_jvm_has_no_options_of_executors_and_does_not_give_its_own_one_up(master: str) -> None:
    options = cluster_options(master, "quick")
    assert options.pop("spark.storage.blockManagerHeartbeatTimeoutMs") == "365d"
    assert options == {}


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://there:1"])
def test_cluster_is_reached_from_outside_and_authenticates(master: str) -> None:
    found = protection_options(master, None)
    assert found["spark.authenticate"] == found["spark.network.crypto.enabled"] == "true"
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & found.keys()


def test_options_set_at_start_reach_the_jvm(spark: SparkSession, options: dict[str, str]) -> None:
    machine: Any = spark.sparkContext._jvm
    arguments = list(machine.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert {each.strip('"') for each in options["spark.driver.extraJavaOptions"].split()} <= set(arguments)
    assert "-XX:TieredStopAtLevel=1" in arguments
    assert f"-Xmx{DRIVER_MEMORY}" in arguments
    assert spark.sparkContext.uiWebUrl is None


def test_what_a_session_keeps_is_below_the_jobs_folder(spark: SparkSession, spark_directory: Path) -> None:
    machine: Any = spark.sparkContext._jvm
    folders = machine.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString()
    assert [Path(each).parent for each in folders] == [spark_directory / "tmp"]


def test_workers_share_one_hash_seed(spark: SparkSession) -> None:
    seen: Callable[[Any], Any] = lambda _: __import__("os").environ["PYTHONHASHSEED"]  # noqa: E731 - pickled by value
    assert set(spark.sparkContext.parallelize(range(2), 2).map(seen).collect()) == {"0"}


def test_workers_import_installed_packages_and_compile_nothing(spark: SparkSession) -> None:
    """Spark puts archives without bytecode before them, unless it is started from `lean_home`."""
    ((path, cached),) = (
        spark.sparkContext.parallelize([0], 1).map(lambda _: (sys.path, _bytecode("pyspark.worker"))).collect()
    )
    assert not [entry for entry in path if entry.endswith(".zip") and "pyspark" in entry and Path(entry).exists()]
    assert Path(cached).is_file()


def _bytecode(module: str) -> str:
    return sys.modules[module].__cached__ or ""


def test_allocator_of_a_worker_reserves_no_memory_that_counts_as_used(spark: SparkSession) -> None:
    seen: Callable[[Any], Any] = lambda _: __import__("pyarrow").default_memory_pool().backend_name  # noqa: E731
    assert set(spark.sparkContext.parallelize(range(2), 2).map(seen).collect()) == {"system"}


def test_spark_logs_to_its_own_file(spark: SparkSession, spark_directory: Path) -> None:
    machine: Any = spark.sparkContext._jvm
    machine.org.apache.logging.log4j.LogManager.getLogger("a test").warn("nobody needs to see this")
    assert "nobody needs to see this" in (spark_directory / "logs" / "spark.log").read_text(encoding="utf-8")


def test_image_of_executors_may_come_from_the_environment(spark: SparkSession) -> None:
    """`deploy/kubernetes/base/spark-defaults.conf` relies on it."""
    machine: Any = spark.sparkContext._jvm
    conf = machine.org.apache.spark.SparkConf()
    conf.set("spark.kubernetes.container.image", "${env:PATH}")
    entry = machine.org.apache.spark.deploy.k8s.Config.EXECUTOR_CONTAINER_IMAGE()
    assert conf.get(entry).get() == machine.java.lang.System.getenv("PATH")
