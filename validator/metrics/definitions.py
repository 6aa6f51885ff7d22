# SPDX-License-Identifier: Apache-2.0
"""Every metric, in one table. `docs/metrics.md` is made from it, and nothing else is exported.

Names follow Prometheus: a unit last, `_total` for counters, seconds and bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LANE: Final = ("lane",)
PARA: Final = ("lane", "para")
CHANNEL: Final = ("lane", "sender", "recipient")
TRANSPORT: Final = ("transport",)


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Origin(StrEnum):
    """Who knows a value."""

    JOB = "job"
    """The job's driver, from what it logs and from Spark's progress."""
    TOPICS = "topics"
    """The job's driver, from the topics `blocks` and `metrics`."""
    WORKER = "worker"
    """The worker that executes the lane, which reports it with the lane's records."""
    TRANSPORT = "transport"
    """The process of a transport, which reports it from time to time."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``name`` is what a scrape shows."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    origin: Origin
    help: str


def _counter(name: str, labels: tuple[str, ...], origin: Origin, text: str) -> Metric:
    return Metric(f"validator_{name}_total", Kind.COUNTER, labels, origin, text)


def _gauge(name: str, labels: tuple[str, ...], origin: Origin, text: str) -> Metric:
    return Metric(f"validator_{name}", Kind.GAUGE, labels, origin, text)


_JOB: Final = (
    _gauge("build_info", ("version",), Origin.JOB, "Always 1; the version of the program is a label."),
    _gauge("job_ready", (), Origin.JOB, "1 while the query runs, 0 while the job starts, restarts or waits."),
    _gauge("job_outage", (), Origin.JOB, "1 while the job waits for something outside, such as Kafka or space on a disk."),
    _gauge("job_executors", (), Origin.JOB, "Executors of the job on a cluster of Spark; no series in a local job."),
    _gauge("job_without_executor_timestamp_seconds", ("master",), Origin.JOB, "Since when the job has none, in Unix time; else no series."),
    _counter("job_restarts", (), Origin.JOB, "Restarts of the query after a failed batch."),
    _counter("job_batches", (), Origin.JOB, "Completed batches that had input records."),
    _counter("job_records", (), Origin.JOB, "Input records of completed batches, of all lanes."),
    Metric(
        "validator_job_batch_duration_seconds", Kind.HISTOGRAM, (), Origin.JOB, "Duration of batches that had input records."
    ),
    _counter("job_batch_part_seconds", ("part",), Origin.JOB, "Duration of those batches by part, as Spark names the parts."),
    _gauge("job_last_batch_timestamp_seconds", (), Origin.JOB, "When the last batch with input records was completed, in Unix time."),
    _counter("job_dead_letters", ("reason",), Origin.TOPICS, "Records that became dead letters, with or without a lane, by reason."),
    _gauge("job_unread_records", (), Origin.JOB, "Input records, of all lanes, that were left for the next one."),
    _gauge("metrics_kafka_up", (), Origin.JOB, "1 while the job's endpoint can read the topics that its values come from, else 0."),
    _counter("metrics_reports_refused", (), Origin.JOB, "Reports of workers and transports that could not be used."),
)  # fmt: skip

_LANE: Final = (
    _gauge("lane_executed_block", LANE, Origin.WORKER, "The last executed block."),
    _gauge("lane_newest_block", LANE, Origin.TOPICS, "The highest block whose record has arrived on the topic `blocks`."),
    _gauge("lane_newest_block_timestamp_seconds", LANE, Origin.TOPICS, "When its record arrived, in Unix time."),
    _gauge("lane_silent", LANE, Origin.TOPICS, "1 if its transport has sent no new block for longer than it says, else 0."),
    _gauge("lane_blocks_behind", LANE, Origin.TOPICS, "Blocks between the executed and the newest one; a new lane has executed none."),
    _gauge("lane_seconds_behind", LANE, Origin.TOPICS, "How long ago the oldest block arrived that is not executed; 0 if there is none."),
    _counter("lane_records", (*LANE, "outcome"), Origin.WORKER, "Records of the lane since its start, by outcome."),
    _gauge("lane_waiting_records", LANE, Origin.WORKER, "Records that wait for their block."),
    _gauge("lane_waiting_blocks", LANE, Origin.WORKER, "Blocks that have records but are not executed."),
    _gauge("lane_waiting_memory_bytes", LANE, Origin.WORKER, "Memory of the waiting records; [job] waiting_bytes_max is the limit."),
    _gauge("lane_window_memory_bytes", LANE, Origin.WORKER, "Memory of the fingerprints by which duplicates are recognised."),
    _gauge("lane_waits", (*LANE, "what"), Origin.WORKER, "1 for what is missing: nothing, block, candidates, downward or requests."),
    _gauge("lane_session", LANE, Origin.WORKER, "The session of the last executed block."),
    _gauge("lane_state", (*LANE, "state"), Origin.JOB, "1 for what the lane does: running, parked or resuming."),
    _gauge("lane_parked", (*LANE, "fault"), Origin.JOB, "1 while the lane is parked, with the kind of its fault."),
    _gauge("lane_audit_fault_block", LANE, Origin.JOB, "The block in which [audit] has found a fault last; no series if it never has."),
    _gauge("lane_status_timestamp_seconds", LANE, Origin.TOPICS, "When the lane's last batch was committed, in Unix time."),
    _counter("lane_transaction_aborts", LANE, Origin.JOB, "Batches whose transaction Kafka did not commit, as the job logs them."),
    _counter("lane_transactions", LANE, Origin.WORKER, "Committed batches; one above 256 MiB is several transactions."),
    _counter("lane_rejections", (*LANE, "kind"), Origin.WORKER, "Rejected inputs by error kind; what is executed again counts again."),
    _counter("lane_batch_part_seconds", (*LANE, "part"), Origin.WORKER, "Time of batches: execute, write (to Kafka) and commit."),
    _counter("lane_recoveries", (*LANE, "how"), Origin.WORKER, "Recoveries in a worker: rebuilt from pages, or caught up."),
    _counter("lane_recovery_seconds", LANE, Origin.WORKER, "Time that recoveries took."),
    _counter("lane_audited_blocks", (*LANE, "outcome"), Origin.WORKER, "Blocks that [audit] chose: sound, faulty or incomplete."),
    _counter("lane_audit_seconds", LANE, Origin.WORKER, "Time that checking these blocks took."),
    _gauge("lane_pages_bytes", LANE, Origin.WORKER, "Bytes of the pages that the lane's state was last saved in."),
    _gauge("lane_journal_bytes", LANE, Origin.WORKER, "Bytes of the journal since then."),
    _gauge("lane_journal_entries", LANE, Origin.WORKER, "Batches, or parts of large ones, in the journal, which a rebuild executes again."),
    _gauge("lane_requests", (*LANE, "state"), Origin.WORKER, "Channel requests that wait: unconfirmed, confirmed (to open) or closing."),
    _gauge("lane_requests_expiring", LANE, Origin.WORKER, "Unconfirmed requests that expire at the next session change."),
    _gauge("lane_request_age_sessions", LANE, Origin.WORKER, "Session changes that the oldest unconfirmed request has seen."),
    _gauge("lane_pending_candidates", LANE, Origin.WORKER, "Accepted candidates that are not enacted."),
    _gauge("lane_pending_candidate_age_blocks", LANE, Origin.WORKER, "Blocks since the oldest of them was backed."),
    _counter("lane_pending_candidates_carried", LANE, Origin.WORKER, "Accepted candidates that a session change found not enacted."),
    _gauge("lane_subjects_left_out", LANE, Origin.WORKER, "Paras and channels without series, because of a limit of [metrics]."),
)  # fmt: skip

_PARA: Final = (
    _counter("para_rejections", (*PARA, "kind"), Origin.WORKER, "Rejected inputs of the para by error kind; rare kinds may be `other`."),
    _gauge("para_watermark_lag_blocks", PARA, Origin.WORKER, "Blocks from the watermark to the executed one while messages wait; else 0."),
    _gauge("para_upward_messages", PARA, Origin.WORKER, "Upward messages that wait for dispatch."),
    _gauge("para_upward_bytes", PARA, Origin.WORKER, "Bytes of payload of those messages."),
    _gauge("para_upward_messages_used_ratio", PARA, Origin.WORKER, "The same messages as a share of the queue's limit."),
    _gauge("para_upward_bytes_used_ratio", PARA, Origin.WORKER, "The same bytes as a share of the queue's limit."),
    _gauge("para_upward_head_age_blocks", PARA, Origin.WORKER, "Blocks, hence dispatch rounds, since the first was seen to wait."),
    _counter("para_upward_dispatched", PARA, Origin.WORKER, "Upward messages of the para that were dispatched."),
    _counter("para_upward_dispatched_bytes", PARA, Origin.WORKER, "Bytes of payload of those messages."),
    _gauge("para_downward_messages", PARA, Origin.WORKER, "Downward messages that the para has not processed."),
    _gauge("para_downward_bytes", PARA, Origin.WORKER, "Bytes of payload of those messages."),
    _gauge("para_downward_oldest_age_blocks", PARA, Origin.WORKER, "Blocks since the first of those messages was sent."),
    _counter("para_downward_sent", PARA, Origin.WORKER, "Downward messages queued for the para since the lane began to follow it."),
    _counter("channel_messages", CHANNEL, Origin.WORKER, "Messages sent over the channel since the lane began to follow it."),
    _counter("channel_message_bytes", CHANNEL, Origin.WORKER, "Bytes of payload sent over the channel since its worker loaded the lane."),
    _gauge("channel_used_messages", CHANNEL, Origin.WORKER, "Messages that wait in the channel."),
    _gauge("channel_used_bytes", CHANNEL, Origin.WORKER, "Bytes of payload that wait in the channel."),
    _gauge("channel_messages_used_ratio", CHANNEL, Origin.WORKER, "The same messages as a share of the channel's places."),
    _gauge("channel_bytes_used_ratio", CHANNEL, Origin.WORKER, "The same bytes as a share of the channel's bytes."),
    _gauge("channel_oldest_age_blocks", CHANNEL, Origin.WORKER, "Blocks since the first waiting message was sent."),
)  # fmt: skip

_TRANSPORT: Final = (
    _gauge("transport_active", TRANSPORT, Origin.TRANSPORT, "1 for a transport whose process is active."),
    _gauge("transport_start_timestamp_seconds", TRANSPORT, Origin.TRANSPORT, "When the active process became active, in Unix time."),
    _counter("transport_written_records", (*TRANSPORT, "topic"), Origin.TRANSPORT, "Records that the transport wrote and Kafka took."),
    _counter("transport_written_bytes", (*TRANSPORT, "topic"), Origin.TRANSPORT, "Bytes of their values."),
    _counter("transport_received_records", (*TRANSPORT, "topic"), Origin.TRANSPORT, "Records of output topics that it received."),
    _counter("transport_refused_records", TRANSPORT, Origin.TRANSPORT, "Records in a wrong form, or that Kafka did not take."),
    _gauge("transport_unconfirmed_records", TRANSPORT, Origin.TRANSPORT, "Records that wait for Kafka's confirmation."),
    _gauge("transport_unacknowledged_records", TRANSPORT, Origin.TRANSPORT, "Received records that the transport has not acknowledged."),
)  # fmt: skip

METRICS: Final[tuple[Metric, ...]] = (*_JOB, *_LANE, *_PARA, *_TRANSPORT)

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}

BATCH_SECONDS_BUCKETS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Upper bounds of the histogram of batches, in seconds."""
