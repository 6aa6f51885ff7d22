# SPDX-License-Identifier: Apache-2.0
"""Runs a plugin's job until a signal stops it, with the checks, restarts and log of the lanes' job (`streaming.run`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.cluster import watches
from streaming.keyed_job import KeyedJobSettings, start_keyed_query
from streaming.logs import locked
from streaming.metered import create_metrics_topic
from streaming.options import bytes_of
from streaming.parked_log import KafkaWatch
from streaming.run import TOPICS_S_MAX, Outages, StopSignal, begun, ended_in_order, run_queries
from streaming.session import SessionSettings, spark_session
from streaming.stages import CONDENSE, KEYED, local_cores
from streaming.taking_over import Rivals, end_open_transactions
from validator.checkpoint.files import check_files, has_checkpoint, keep_sums
from validator.checkpoint.kafka import SecondLook, checked_ids, keep_ids, refuse_lost_inputs
from validator.checkpoint.markers import LaneOnKafka, read_markers
from validator.core.limits import RECORD_BYTES_MAX
from validator.errors import UserError
from validator.job.installed import configured_job
from validator.job.schema_ids import records_of_job
from validator.job.start_check import checkpoint_of
from validator.kafka.calls import ABANDONED_S_MAX
from validator.kafka.reader import TopicReader
from validator.kafka.topics import wait_for_topics
from validator.lanes.configured import configured_codec, job_directory
from validator.lanes.keyed import Recovery
from validator.plugin.job_api import JobRecord
from validator.topics import TOPICS
from validator.waiting import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery

    from validator.config import Config
    from validator.plugin.job_api import Job

RECOVERY = "recovery.json"
"""In the job's folder, what a rebuild begins with."""

EFFECTS_PER_TRIGGER_MAX = 10_000
"""Records of effects in a batch, at most; `[job] max_records_per_trigger` may lower it. A batch has fixed costs of about a second, so a
backlog needs large ones."""

EFFECTS_BYTES_MAX = 768 * 1024 * 1024
"""Bytes of effects in a batch if each is as large as its topic's form allows. The state stage holds what `Job.condense` leaves of all of
them, which may be nearly everything; the other stages hold a chunk."""


def effects_per_trigger(job: Job, configured: int) -> int:
    """Return how many records of effects a batch of a job may have; ``configured`` is `[job] max_records_per_trigger`."""
    largest = max((job.forms[topic].bytes_max for topic in job.effects if topic in job.forms), default=RECORD_BYTES_MAX)
    return max(1, min(EFFECTS_PER_TRIGGER_MAX, configured, EFFECTS_BYTES_MAX // largest))


def run_keyed_job(config: Config, name: str) -> int:
    """Run the job of a plugin and return its exit code. Raises `UserError`."""
    directory = job_directory(config)
    job = configured_job(config, name)
    settings = KeyedJobSettings(
        job=job,
        kafka=config.kafka,
        prefix=config.topics.prefix,
        checkpoint=checkpoint_of(config),
        effects_per_trigger=effects_per_trigger(job, config.job.max_records_per_trigger),
        trigger_interval_ms=config.job.trigger_interval_ms,
        tasks_max=local_cores(config.job.master) or config.job.state_partitions,
        measured=config.metrics.listen is not None,
        worker_memory_bytes=bytes_of(config.job.worker_memory),
    )
    stop = StopSignal()
    with locked(directory):
        check_files(checkpoint_of(config))
        with begun(config, [name], stop) as outages:
            rivals = Rivals()

            def run() -> int:
                outages.wait_out(lambda: check_written(settings))
                if settings.measured:
                    outages.wait_out(lambda: create_metrics_topic(config))
                return _run_in_session(config, settings, outages, rivals)

            return ended_in_order(run, outages)


def check_written(settings: KeyedJobSettings) -> None:
    """Check a job against the keys of which Kafka holds output. Raises `UserError`, of which `Unavailable` may pass.

    Markers are read past open transactions, and a job that is killed leaves its own open for minutes. So a job with a checkpoint ends its
    own first. One without may be a mistake, and must not fence off the job that is running: it waits.
    """
    wait_for_topics(
        settings.kafka, prefix=settings.prefix, patience_s=TOPICS_S_MAX, topics=(*TOPICS, *settings.job.topics)
    )
    if has_checkpoint(Path(settings.checkpoint)):
        end_open_transactions(settings.kafka, settings.prefix, settings.job.keys)
    written = read_markers(settings.kafka, settings.prefix, progress_s=ABANDONED_S_MAX)
    settings.job.check_written(sorted(written))


def input_ids(settings: KeyedJobSettings, second: SecondLook) -> dict[str, str]:
    """Return the ids to keep of a job's input topics. Raises as `checked_ids` if its checkpoint has read others."""
    topics = [*settings.job.causes, *settings.job.effects]
    return checked_ids(settings.kafka, settings.prefix, topics, Path(settings.checkpoint), second)


def _run_in_session(config: Config, settings: KeyedJobSettings, outages: Outages, rivals: Rivals) -> int:
    with spark_session(SessionSettings.of(config, (CONDENSE, KEYED))) as spark:
        checkpoint, second = Path(settings.checkpoint), SecondLook.of_job(config)
        ids = outages.registry_ids(config, records_of_job(configured_codec(config), settings.job))
        found = outages.wait_out(lambda: recoveries(settings, job_directory(config), rebuild=config.job.rebuild))
        keep_ids(checkpoint, outages.wait_out(lambda: input_ids(settings, second)))

        def start() -> StreamingQuery:
            input_ids(settings, second)
            refuse_lost_inputs(second, checkpoint)
            rivals.take_over(settings.kafka, settings.prefix, settings.job.keys, spark.sparkContext.applicationId)
            settings.beat.create()
            return start_keyed_query(spark, replace(settings, recoveries=found, ids=ids))

        inputs = [settings.prefix + topic for topic in (*settings.job.causes, *settings.job.effects)]
        patience = Patience(config.job.give_up_after)
        with KafkaWatch(settings.kafka, settings.prefix, outages.log, patience, inputs):
            watch = watches(spark, config, outages.log)
            return run_queries(start, outages, watch, lambda _: keep_sums(checkpoint))


def recoveries(settings: KeyedJobSettings, directory: Path, *, rebuild: bool) -> dict[str, Recovery]:
    """Return what keys without a stored state begin with; it stays in the job's folder, for a job that is killed in its first batch.

    Raises `UserError` if Kafka holds output of the job, there is no checkpoint, and ``rebuild`` is false: much would be emitted again.
    """
    path = directory / RECOVERY
    if has_checkpoint(Path(settings.checkpoint)):
        return _read(path) if path.exists() else {}
    job, prefix = settings.job, settings.prefix
    found: dict[str, Recovery] = {}
    for key in job.keys:
        marker = LaneOnKafka(settings.kafka, prefix, key).written(ABANDONED_S_MAX).marker
        if marker.block is None:
            continue
        if not rebuild:
            raise UserError(
                f"Kafka holds output of job {job.name} up to step {marker.block} of {key}, but {settings.checkpoint} has no checkpoint: "
                "start with --rebuild to take the inputs again and emit what is missing, or use another [topics] prefix"
            )
        consumed = {(topic.removeprefix(prefix), partition): end for (topic, partition), end in marker.consumed.items()}
        pages = job.recover(key, _committed(settings), consumed)
        found[key] = Recovery(marker.block + 1, marker.consumed, pages)
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: _plain(recovery) for key, recovery in found.items()}) + "\n", encoding="utf-8")
    return found


def _committed(settings: KeyedJobSettings) -> Iterator[JobRecord]:
    with TopicReader(settings.kafka, settings.prefix, settings.job.remembered) as reader:
        for record in reader.read_past_transactions(ABANDONED_S_MAX):
            yield JobRecord(record.topic, record.partition, record.offset, record.key, record.value)


def _plain(recovery: Recovery) -> dict[str, Any]:
    return {
        "step": recovery.step,
        "consumed": [[*place, offset] for place, offset in sorted(recovery.consumed.items())],
        "pages": {name.hex(): page.hex() for name, page in recovery.pages.items()},
    }


def _read(path: Path) -> dict[str, Recovery]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return {
            key: Recovery(
                each["step"],
                {(topic, partition): offset for topic, partition, offset in each["consumed"]},
                {bytes.fromhex(name): bytes.fromhex(page) for name, page in each["pages"].items()},
            )
            for key, each in plain.items()
        }
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): remove the checkpoint next to it and start with --rebuild"
        ) from error
