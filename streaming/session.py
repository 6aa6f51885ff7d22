# SPDX-License-Identifier: Apache-2.0
"""The job's Spark session."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from streaming.options import LOOPBACK, is_local, protection_options, session_options
from validator.errors import UserError
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java

SPARK_LOG = "spark.log"

JVM_END_S_MAX = 5.0
"""Seconds within which the process of a JVM that no longer answers has to exit."""

_LOG_CONFIGURATION = """\
# Spark's log goes to a separate file, so that the job's log stays readable.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 64MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
# hides a message per batch about new consumers: each batch splits its offsets into tasks again
logger.consumer.name = org.apache.spark.sql.kafka010
logger.consumer.level = error
"""


class JvmGone(Exception):
    """Spark's JVM is gone."""


@contextmanager
def spark_session(
    master: str, state_directory: Path, *, driver_memory: str, state_partitions: int
) -> Iterator[SparkSession]:
    """Start a session that can read Kafka, and stop it on exit.

    ``master`` is a Spark master URL. Raises `UserError` if Java, the connector's jars or a cluster's secret are not available, `JvmGone` if
    the JVM ends while the session starts.
    """
    os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    # workers run this interpreter with these packages, not whichever `python3` is on the path
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logs = state_directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log_configuration = logs / "log4j2.properties"
    log_configuration.write_text(_LOG_CONFIGURATION.format(log=logs / SPARK_LOG), encoding="utf-8")

    options = session_options(log_configuration, driver_memory, state_partitions)
    options |= {
        "spark.master": master,
        "spark.app.name": "validator",
        "spark.jars": ",".join(map(str, ensure_jars("spark"))),
    }
    with TemporaryDirectory(prefix="validator-") as sockets:  # short, as paths of sockets have to be, and private
        spark = _started(options | protection_options(master, Path(sockets) if is_local(master) else None))
        try:
            yield spark
        finally:
            if not _has_ended(spark.sparkContext._gateway, 0.0):
                spark.stop()


def _started(options: dict[str, str]) -> SparkSession:
    """Start a session. Raises `UserError` if the cluster's secret is not known, `JvmGone`."""
    master = options["spark.master"]
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # for executors of local-cluster
    try:
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(options.items())))
        if master.startswith("local-cluster["):
            # not before the JVM has started, whose command line others can read
            options = options | {"spark.authenticate.secret": secrets.token_hex(32)}
        builder = SparkSession.builder
        for name, value in options.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as error:
        gateway = SparkContext._gateway
        if gateway is None or _has_ended(gateway, JVM_END_S_MAX):
            raise JvmGone from error
        if "spark.authenticate.secret" in str(error):
            raise UserError(
                f"[job] master {master}: expected the cluster's spark.authenticate.secret in spark-defaults.conf, found none: the job does "
                "not use a cluster that admits everybody"
            ) from error
        raise


def jvm_is_gone(spark: SparkSession) -> bool:
    """Return whether a session's JVM has ended or ends within `JVM_END_S_MAX`. A JVM that was started elsewhere counts as running."""
    return _has_ended(spark.sparkContext._gateway, JVM_END_S_MAX)


def _has_ended(gateway: Any, patience_s: float) -> bool:
    if gateway is None or gateway.proc is None:
        return False
    try:
        gateway.proc.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True
