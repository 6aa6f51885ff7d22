# SPDX-License-Identifier: Apache-2.0
"""The streaming query: source, decode stage, lane stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.chunk_files import chunk_folder
from streaming.decode_stage import DecodeSettings
from streaming.lane_operator import JobSettings, LaneOperator, shipped
from streaming.metered import meter_settings
from streaming.options import batch_bytes_max, bytes_of
from streaming.range_source import SourceSettings, load_inputs, observed
from streaming.reading_process import passed_over_folder
from streaming.session import SCRATCH
from streaming.shared_folder import SharedFolder, shared_by
from streaming.stages import DECODE, KEPT_WORKERS_MAX, LANES, local_cores, with_own_workers
from streaming.stateful import started
from streaming.transactions import KafkaOutput, Output
from validator.config import Config
from validator.job.start_check import checkpoint_of
from validator.lanes.auditing import MILLIONTHS, AuditSettings
from validator.lanes.definition import LaneDefinition
from validator.lanes.sink import LaneSink, TransactionalSink
from validator.topics import INPUT_TOPICS


def job_settings(
    config: Config, definitions: dict[str, LaneDefinition], output: Output[LaneSink] | None
) -> JobSettings:
    """Return the settings of a configuration's job."""
    job = config.job
    share = round(config.audit.share * MILLIONTHS)
    return JobSettings(
        definitions=definitions,
        kafka=config.kafka,
        prefix=config.topics.prefix,
        checkpoint=checkpoint_of(config),
        records_per_trigger=job.max_records_per_trigger,
        trigger_interval_ms=job.trigger_interval_ms,
        output=output,
        worker_memory_bytes=bytes_of(job.worker_memory),
        cores=local_cores(job.master),
        state_partitions=job.state_partitions,
        meter=meter_settings(config),
        audit=AuditSettings(share, config.audit.on_fault == "park") if share else None,
    )


def start_query(spark: SparkSession, settings: JobSettings) -> StreamingQuery:
    folder = Path(settings.checkpoint).parent
    context, shared = spark.sparkContext, shared_by(spark.sparkContext.master, folder)
    definitions = {
        lane: shipped(context, definition, folder / "lanes") for lane, definition in settings.definitions.items()
    }
    settings = replace(settings, definitions=definitions)
    inputs = with_own_workers(spark, DECODE, lambda: _inputs(spark, settings, shared))
    output = settings.output or KafkaOutput.of(
        TransactionalSink, settings.kafka, settings.prefix, context.applicationId, settings.ids.frames
    )
    operator = LaneOperator(settings, output, shared)
    return started(spark, inputs, LANES, operator, "validator", settings.checkpoint, settings.trigger_interval_ms)


def _inputs(spark: SparkSession, settings: JobSettings, shared: SharedFolder | None) -> DataFrame:
    kinds = {settings.prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    lane_bytes_max = batch_bytes_max(settings.worker_memory_bytes)
    decoding = DecodeSettings(
        kinds, settings.definitions, settings.ids.headers, lane_bytes_max, settings.worker_memory_bytes
    )
    run = token_hex(8)
    source = SourceSettings(
        settings.kafka,
        tuple(kinds),
        settings.records_per_trigger,
        min(settings.cores, KEPT_WORKERS_MAX) or settings.state_partitions,
        cloudpickle.dumps(decoding),  # type: ignore[no-untyped-call]
        run,
        shared=shared,
        ahead=bool(settings.cores),
        folder=chunk_folder(Path(settings.checkpoint).parent / SCRATCH, run) if settings.cores else "",
        ids={topic: each for topic, each in settings.topic_ids.items() if topic in kinds},
        passed_over=passed_over_folder(settings.checkpoint),
    )
    return observed(load_inputs(spark, source))
