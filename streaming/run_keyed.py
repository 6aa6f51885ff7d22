# SPDX-License-Identifier: Apache-2.0
"""Runs a plugin's job until a signal stops it, with the checks, restarts and log of the lanes' job (`streaming.run`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.keyed_job import KeyedJobSettings, start_keyed_query
from streaming.logs import logger, own_output
from streaming.markers import read_marker
from streaming.run import TOPICS_S_MAX, StopSignal, end_open_transactions, has_checkpoint, locked, run_queries
from streaming.session import SPARK_LOG, JvmGone, jvm_is_gone, spark_session
from validator import exit_codes
from validator.errors import UserError
from validator.kafka.topics import wait_for_topics
from validator.lanes.configured import job_directory
from validator.service.plugin_job import configured_job
from validator.topics import TOPICS

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from validator.config import Config

EFFECTS_PER_TRIGGER_MAX = 2_000
"""Records of effects in a batch, at most; `[job] max_records_per_trigger` may lower it. They may have hundreds of KiB each."""


def run_keyed_job(config: Config, name: str) -> int:
    """Run the job of a plugin and return its exit code. Raises `UserError`."""
    directory = job_directory(config)
    settings = KeyedJobSettings(
        job=configured_job(config, name),
        kafka=config.kafka,
        prefix=config.topics.prefix,
        checkpoint=directory / "checkpoint",
        effects_per_trigger=min(EFFECTS_PER_TRIGGER_MAX, config.job.max_records_per_trigger),
        trigger_interval_ms=config.job.trigger_interval_ms,
    )
    stop = StopSignal()
    with locked(directory), own_output(directory) as own:
        log = logger(own)
        log.info("started", lanes=[name], directory=str(directory), spark_log=str(directory / "logs" / SPARK_LOG))
        try:
            return _run_in_session(config, settings, stop, log)
        except JvmGone:
            log.error("failed", reason="Spark's JVM was killed or crashed")
            return exit_codes.STOPPED


def _run_in_session(config: Config, settings: KeyedJobSettings, stop: StopSignal, log: Any) -> int:
    with spark_session(
        config.job.master,
        job_directory(config),
        driver_memory=config.job.driver_memory,
        state_partitions=config.job.state_partitions,
    ) as spark:
        for artefact in config.plugins.artefacts:
            spark.sparkContext.addPyFile(artefact)
        wait_for_topics(
            config.kafka, prefix=settings.prefix, patience_s=TOPICS_S_MAX, topics=(*TOPICS, *settings.job.topics)
        )
        if not has_checkpoint(settings.checkpoint):
            refuse_written(settings)

        def start() -> StreamingQuery:
            end_open_transactions(settings.kafka, settings.prefix, settings.job.keys)
            return start_keyed_query(spark, settings)

        try:
            return run_queries(start, stop, log)
        except Exception as error:
            if jvm_is_gone(spark):
                raise JvmGone from error
            raise


def refuse_written(settings: KeyedJobSettings) -> None:
    """Raise `UserError` if Kafka already holds output of a job without a checkpoint: it would emit much of it again."""
    for key in settings.job.keys:
        marker = read_marker(settings.kafka, settings.prefix, key)
        if marker.block is not None:
            raise UserError(
                f"Kafka holds output of job {settings.job.name} up to step {marker.block} of {key}, but {settings.checkpoint} has no "
                "checkpoint: restore the checkpoint, or use another [topics] prefix"
            )
