# SPDX-License-Identifier: Apache-2.0
"""Measures a lane in the worker that executes it.

What the worker knows travels as a report in the lane's own transaction: readers of committed records see it once the batch is written, a
batch that fails reports nothing, and it needs neither a separate connection nor a folder that all machines share. Nothing is measured for
each candidate: rejections are counted from a block's verdicts, queues are read once per batch, and large ones less often.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.codec.encode import BlockOutput, OutputRecord
from validator.core.lane import Lane
from validator.core.levels import ChannelLevel, LaneLevel, LevelChoice, ParaLevel
from validator.core.outcomes import Executed
from validator.core.types import BlockNumber, ParaId, SessionIndex
from validator.lanes.auditing import Outcome
from validator.lanes.store import LiveLane, Recovery
from validator.metrics.limits import KINDS_PER_PARA_MAX, OTHER, REPORT_BYTES_MAX, SAMPLE_SHARE_MAX
from validator.metrics.report import LANE, Report, Values
from validator.topics import METRICS

OUTCOMES: Final = ("accepted", "rejected", "duplicate", "dead")

_LACKING: Final = re.compile(r"waiting for \d+ of \d+ (\w+) of block ")
"""What `Lane.waits_for` says if records of the next block are missing."""

LANE_ONLY: Final = LevelChoice((), 0, 0)


class MeterSettings(NamedTuple):
    """Which paras and channels of each lane have series; an empty ``paras`` means all of them."""

    paras: tuple[ParaId, ...] = ()
    paras_max: int = 0
    channels_max: int = 0

    def choice(self) -> LevelChoice:
        return LevelChoice(self.paras or None, self.paras_max, self.channels_max)


class Head(NamedTuple):
    """The upward message at the head of a para's queue, and the block after which it was first seen there."""

    message: object
    block: BlockNumber


@dataclass(slots=True)
class LaneMeter:
    """One lane's measurements; it lives as long as the worker."""

    lane: str
    settings: MeterSettings
    clock: Callable[[], float] = time.monotonic
    _kept: Values = field(default_factory=dict)
    """Increments of batches that wrote nothing, for the next report."""
    _grown: Values = field(default_factory=dict)
    """Those and the batch's own, without what its blocks gave."""
    _carried: int = 0
    _rejections: Counter[tuple[ParaId, str]] = field(default_factory=Counter)
    _dispatched: dict[ParaId, tuple[int, int]] = field(default_factory=dict)
    _kinds: dict[ParaId, set[str]] = field(default_factory=dict)
    _status: Values = field(default_factory=dict)
    """Values of the lane itself, after the last batch that it took."""
    _levels: Values = field(default_factory=dict)
    """Values of paras and channels, as they were read last."""
    _shown: frozenset[ParaId] = frozenset()
    """Paras that had series then."""
    _heads: dict[ParaId, Head] = field(default_factory=dict)
    _next_sample_s: float = float("-inf")
    _session: SessionIndex | None = None
    _kept_session: SessionIndex | None = None
    """The session after the last batch, also while another attempt at the next one is made."""
    _began_s: float = 0.0

    def __post_init__(self) -> None:
        """Begin with counters at 0, since Prometheus does not see a counter grow that begins with its first increment."""
        self._grow("validator_lane_pending_candidates_carried_total", 0)
        for how in ("rebuilt", "caught_up"):
            self._grow("validator_lane_recoveries_total", 0, how)
        for outcome in Outcome:
            self._grow("validator_lane_audited_blocks_total", 0, outcome.value)
        self._kept = self._grown

    def executed(self, executed: Executed, lane: Lane) -> None:
        """Note what a block gave (`validator.lanes.processor.Observer`)."""
        for verdict in executed.verdicts:
            if verdict.violation is not None:
                self._rejections[verdict.para_id, verdict.violation.kind] += 1
        for dispatch in executed.dispatches:
            count, size = self._dispatched.get(dispatch.para_id, (0, 0))
            self._dispatched[dispatch.para_id] = (count + 1, size + len(dispatch.payload))
        session = executed.receipt.session
        if self._session is not None and session != self._session:
            self._carried += lane.rules.levels(executed.receipt.block, LANE_ONLY).lane.pending
        self._session = session

    def recovered(self, recovery: Recovery) -> None:
        self._grow("validator_lane_recoveries_total", 1, "rebuilt" if recovery.rebuilt else "caught_up")
        self._grow("validator_lane_recovery_seconds_total", recovery.seconds)

    def audited(self, outcome: Outcome, seconds: float) -> None:
        """Note that a block was checked (`validator.lanes.auditing`)."""
        self._grow("validator_lane_audited_blocks_total", 1, outcome.value)
        self._grow("validator_lane_audit_seconds_total", seconds)

    def measured(self, outputs: Iterator[BlockOutput], live: Callable[[], LiveLane | None]) -> Iterator[BlockOutput]:
        """Yield a batch's output and then its report, timing what makes the output and what takes it.

        ``live`` returns the lane after the batch, None if it is parked. Of an attempt before this one that has failed, nothing is reported.
        """
        self._grown = {name: dict(rows) for name, rows in self._kept.items()}
        self._rejections.clear()
        self._dispatched.clear()
        self._carried = 0
        self._session = self._kept_session
        execute_s = write_s = 0.0
        before = self.clock()
        for output in outputs:
            now = self.clock()
            execute_s += now - before
            yield output
            before = self.clock()
            write_s += before - now
        now = self.clock()
        self._grow("validator_lane_batch_part_seconds_total", execute_s + now - before, "execute")
        self._grow("validator_lane_batch_part_seconds_total", write_s, "write")
        yield BlockOutput(None, [OutputRecord(METRICS, self.lane.encode(), self._report(live()))])
        self._began_s = self.clock()

    def written(self, counts: dict[str, int]) -> None:
        """Note what of the batch was committed, by topic: its increments are reported, unless nothing of it was.

        Then its blocks had been written before, and were reported with that.
        """
        if METRICS in counts:
            self._grown = {}
            self._grow("validator_lane_batch_part_seconds_total", self.clock() - self._began_s, "commit")
        self._kept, self._kept_session = self._grown, self._session

    def _grow(self, name: str, by: float, *labels: str) -> None:
        _grow(self._grown, name, by, *labels)

    def _report(self, live: LiveLane | None) -> bytes:
        if live is not None:
            self._sample(live)
            status = Report(LANE, self.lane)
            _put_status(status, live)
            self._status = status.set
        report = Report(LANE, self.lane, self._status | self._levels)
        report.add = {name: dict(counts) for name, counts in self._grown.items()}
        self._add_blocks(report.add)
        report.add["validator_lane_transactions_total"] = {(): 1}  # whoever reads the report knows of one
        encoded = report.encode()
        if len(encoded) > REPORT_BYTES_MAX:
            left_out = sum(map(len, self._levels.values()))
            report.set = {name: rows for name, rows in report.set.items() if name.startswith("validator_lane_")}
            report.add = {name: rows for name, rows in report.add.items() if name.startswith("validator_lane_")}
            report.put("validator_lane_subjects_left_out", left_out)
            encoded = report.encode()
        return encoded

    def _sample(self, live: LiveLane) -> None:
        """Read the levels of paras and channels, unless that has just taken too much of the time."""
        began_s = self.clock()
        if began_s < self._next_sample_s:
            return
        lane = live.processor.lane
        now = lane.executed_block
        levels = lane.rules.levels(now, self.settings.choice())
        sampled = Report(LANE, self.lane)
        _put_lane(sampled, levels.lane, now, levels.left_out)
        heads: dict[ParaId, Head] = {}
        for para in levels.paras:
            heads[para.para_id] = head = self._head(para, now)
            _put_para(sampled, para, now, now - head.block)
        for channel in levels.channels:
            _put_channel(sampled, channel, now)
        self._heads, self._shown, self._levels = heads, frozenset(heads), sampled.set
        ended_s = self.clock()
        self._next_sample_s = ended_s + (ended_s - began_s) / SAMPLE_SHARE_MAX

    def _head(self, para: ParaLevel, now: BlockNumber) -> Head:
        head = self._heads.get(para.para_id)
        if head is not None and para.upward_head is not None and head.message is para.upward_head:
            return head
        return Head(para.upward_head, now)

    def _add_blocks(self, increments: Values) -> None:
        """Add what blocks gave, by para only for those that have series."""
        _grow(increments, "validator_lane_pending_candidates_carried_total", self._carried)
        for (para, kind), count in self._rejections.items():
            _grow(increments, "validator_lane_rejections_total", count, kind)
            if para in self._shown:
                _grow(increments, "validator_para_rejections_total", count, str(para), self._named(para, kind))
        for para, (messages, size) in self._dispatched.items():
            if para in self._shown:
                _grow(increments, "validator_para_upward_dispatched_total", messages, str(para))
                _grow(increments, "validator_para_upward_dispatched_bytes_total", size, str(para))

    def _named(self, para: ParaId, kind: str) -> str:
        kinds = self._kinds.setdefault(para, set())
        if kind not in kinds and len(kinds) >= KINDS_PER_PARA_MAX:
            return OTHER
        kinds.add(kind)
        return kind


def meter_of(meter: LaneMeter | None, lane: str, settings: MeterSettings | None) -> LaneMeter | None:
    """Return a lane's meter, the same one for as long as its settings are; None without settings."""
    if settings is None:
        return None
    return meter if meter is not None and meter.settings == settings else LaneMeter(lane, settings)


def _grow(increments: Values, name: str, by: float, *labels: str) -> None:
    rows = increments.setdefault(name, {})
    rows[labels] = rows.get(labels, 0) + by


def _put_status(report: Report, live: LiveLane) -> None:
    lane = live.processor.lane
    counters = lane.counters
    report.put("validator_lane_executed_block", lane.executed_block)
    report.put("validator_lane_session", lane.rules.session)
    for outcome in OUTCOMES:
        report.put("validator_lane_records_total", getattr(counters, outcome), outcome)
    report.put("validator_lane_waiting_records", counters.waiting)
    report.put("validator_lane_waiting_blocks", lane.waiting_blocks)
    report.put("validator_lane_waiting_memory_bytes", lane.resident_bytes())
    report.put("validator_lane_window_memory_bytes", lane.window_bytes)
    report.put("validator_lane_waits", 1, waits_for(lane))
    report.put("validator_lane_pages_bytes", live.sizes.pages_bytes)
    report.put("validator_lane_journal_bytes", live.sizes.journal_bytes)
    report.put("validator_lane_journal_entries", live.sizes.journal_entries)


def waits_for(lane: Lane) -> str:
    """Return in one word what the next block lacks: ``nothing`` if no record waits."""
    if not lane.counters.waiting:
        return "nothing"
    found = _LACKING.match(lane.waits_for())
    return "block" if found is None else found[1]


def _put_lane(report: Report, level: LaneLevel, now: BlockNumber, left_out: int) -> None:
    for state, count in (
        ("unconfirmed", level.unconfirmed),
        ("confirmed", level.confirmed),
        ("closing", level.closing),
    ):
        report.put("validator_lane_requests", count, state)
    report.put("validator_lane_requests_expiring", level.expiring)
    report.put("validator_lane_request_age_sessions", level.oldest_age)
    report.put("validator_lane_pending_candidates", level.pending)
    report.put("validator_lane_pending_candidate_age_blocks", _age(level.pending_oldest, now))
    report.put("validator_lane_subjects_left_out", left_out)


def _put_para(report: Report, level: ParaLevel, now: BlockNumber, head_age: int) -> None:
    para = level.para_id
    report.put("validator_para_watermark_lag_blocks", level.watermark_lag, para)
    report.put("validator_para_upward_messages", level.upward_messages, para)
    report.put("validator_para_upward_bytes", level.upward_bytes, para)
    report.put(
        "validator_para_upward_messages_used_ratio", _share(level.upward_messages, level.upward_messages_max), para
    )
    report.put("validator_para_upward_bytes_used_ratio", _share(level.upward_bytes, level.upward_bytes_max), para)
    report.put("validator_para_upward_head_age_blocks", head_age, para)
    report.put("validator_para_downward_messages", level.downward_messages, para)
    report.put("validator_para_downward_bytes", level.downward_bytes, para)
    report.put("validator_para_downward_oldest_age_blocks", _age(level.downward_oldest, now), para)
    report.put("validator_para_downward_sent_total", level.downward_sent, para)


def _put_channel(report: Report, level: ChannelLevel, now: BlockNumber) -> None:
    """Put what is known of a channel; what its protocol does not know has no series."""
    ends = (level.sender, level.recipient)
    values: dict[str, float | None] = {
        "validator_channel_messages_total": level.messages_sent,
        "validator_channel_message_bytes_total": level.bytes_sent,
        "validator_channel_used_messages": level.messages,
        "validator_channel_used_bytes": level.bytes,
        "validator_channel_messages_used_ratio": _known_share(level.messages, level.messages_max),
        "validator_channel_bytes_used_ratio": _known_share(level.bytes, level.bytes_max),
        "validator_channel_oldest_age_blocks": _age(level.oldest, now),
    }
    for name, value in values.items():
        if value is not None:
            report.put(name, value, *ends)


def _known_share(used: int | None, limit: int | None) -> float | None:
    return None if used is None or limit is None else _share(used, limit)


def _share(used: int, limit: int) -> float:
    """Return the used share of a limit; what is used of no room at all counts as full."""
    return round(used / limit, 6) if limit else float(used > 0)


def _age(block: BlockNumber | None, now: BlockNumber) -> int:
    return 0 if block is None else max(0, now - block)
