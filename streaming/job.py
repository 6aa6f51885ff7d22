# SPDX-License-Identifier: Apache-2.0
"""The streaming query: source, decode stage, lane stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.batch_watch import Beat, beat_next_to
from streaming.chunk_files import chunk_folder
from streaming.decode_stage import DecodeSettings
from streaming.lane_operator import LaneOperator, ParkingSettings, shipped
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
from validator.core.inputs import Source
from validator.job.schema_ids import NO_IDS, SchemaIds
from validator.lanes.auditing import MILLIONTHS, AuditSettings
from validator.lanes.configured import job_directory
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import Consumed
from validator.lanes.meter import MeterSettings
from validator.lanes.parking import Suspect
from validator.lanes.sink import LaneSink, TransactionalSink
from validator.topics import INPUT_TOPICS


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The query's settings."""

    definitions: dict[str, LaneDefinition]
    kafka: dict[str, Any]
    prefix: str
    checkpoint: Path | str
    records_per_trigger: int
    trigger_interval_ms: int
    output: Output[LaneSink] | None = None
    """Where the lanes' records go; None means Kafka, exactly once."""
    worker_memory_bytes: int = 4 * 1024**3
    """Memory limit of a worker that executes lanes."""
    retired: dict[str, Consumed] = field(default_factory=dict)
    """By lane that is no longer configured, what it has consumed."""
    suspects: dict[str, Suspect] = field(default_factory=dict)
    """By lane, the point at which its worker has died too often."""
    skipped: dict[str, frozenset[Source]] = field(default_factory=dict)
    """By lane, the records that it had skipped before it is started over."""
    parked: frozenset[str] = frozenset()
    """Lanes that were parked before they are started over."""

    cores: int = 0
    """Tasks that run at once in a local job, 0 on a cluster."""
    state_partitions: int = 1
    """Partitions of the lanes, which on a cluster say how many tasks read at once."""
    meter: MeterSettings | None = None
    """What workers measure."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By input topic, with the prefix, the id of the one that the checkpoint has read."""
    ids: SchemaIds = NO_IDS
    """What the schema registry has said; ``kafka`` has the part that readers need."""
    audit: AuditSettings | None = None
    """Which blocks they check."""

    @property
    def beat(self) -> Beat:
        """The file by which lanes show their progress."""
        return beat_next_to(self.checkpoint)

    @classmethod
    def of(cls, config: Config, definitions: dict[str, LaneDefinition], output: Output[LaneSink] | None) -> JobSettings:
        job = config.job
        return cls(
            definitions=definitions,
            kafka=config.kafka,
            prefix=config.topics.prefix,
            checkpoint=job_directory(config) / "checkpoint",
            records_per_trigger=job.max_records_per_trigger,
            trigger_interval_ms=job.trigger_interval_ms,
            output=output,
            worker_memory_bytes=bytes_of(job.worker_memory),
            cores=local_cores(job.master),
            state_partitions=job.state_partitions,
            meter=meter_settings(config),
            audit=audit_settings(config),
        )


def audit_settings(config: Config) -> AuditSettings | None:
    """Return which blocks workers check, None for none."""
    share = round(config.audit.share * MILLIONTHS)
    return AuditSettings(share, config.audit.on_fault == "park") if share else None


def start_query(spark: SparkSession, settings: JobSettings) -> StreamingQuery:
    folder = Path(settings.checkpoint).parent / "lanes"
    definitions = {
        lane: shipped(spark.sparkContext, definition, folder) for lane, definition in settings.definitions.items()
    }
    parking = ParkingSettings(
        settings.kafka, settings.prefix, dict(settings.suspects), dict(settings.skipped), settings.parked
    )
    shared = shared_by(spark.sparkContext.master, Path(settings.checkpoint).parent)
    inputs = with_own_workers(spark, DECODE, lambda: _inputs(spark, settings, definitions, shared))
    application, frames = spark.sparkContext.applicationId, settings.ids.frames
    output = settings.output or KafkaOutput.of(TransactionalSink, settings.kafka, settings.prefix, application, frames)
    operator = LaneOperator(
        definitions,
        output,
        settings.worker_memory_bytes,
        settings.retired,
        settings.beat,
        parking,
        meter=settings.meter,
        audit=settings.audit,
        shared=shared,
    )
    return started(spark, inputs, LANES, operator, "validator", settings.checkpoint, settings.trigger_interval_ms)


def _inputs(
    spark: SparkSession, settings: JobSettings, definitions: Mapping[str, LaneDefinition], shared: SharedFolder | None
) -> DataFrame:
    kinds = {settings.prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    lane_bytes_max = batch_bytes_max(settings.worker_memory_bytes)
    decoding = DecodeSettings(kinds, definitions, settings.ids.headers, lane_bytes_max, settings.worker_memory_bytes)
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
