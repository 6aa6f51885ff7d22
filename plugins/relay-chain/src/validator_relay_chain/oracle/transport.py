# SPDX-License-Identifier: Apache-2.0
"""The transport `relay-chain.judge`: reads the lanes' outputs and the chain's facts, and writes in what they differ, exactly once.

The facts of a block are on Kafka before its verdicts: the follower commits them with the block's record. So the judge reads the lanes, and
reads facts only as far as the lanes have come. Disagreements, the status and the positions of all readers are one commit.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from validator.plugin.api import OutputReader, OutputRecord, Record, TransportContext
from validator.plugin.job_api import RecordUnreadable
from validator_relay_chain.display import LOG, LogLines
from validator_relay_chain.figures import Figures, JudgeFigures
from validator_relay_chain.limits import ROUND_RECORDS_MAX
from validator_relay_chain.oracle import records
from validator_relay_chain.oracle.facts import BlockFacts
from validator_relay_chain.oracle.judge import Disagreement, Judge

LINES_MAX: Final = 20
"""Disagreements that are shown one by one of a round; the topic has all."""
POLL_S: Final = 0.5
"""Seconds that the judge waits for a record."""
CURSOR_VERSION: Final = 1

Partition = tuple[str, int]


def run(lanes: Iterable[str], context: TransportContext) -> None:
    """Judge lanes until the context asks to stop."""
    with LogLines():
        figures = Figures()
        context.measure(figures.measures)
        bench = [Bench(lane, context, figures) for lane in sorted(lanes)]
        while not context.stopping:
            for each in bench:
                each.step()


class Bench:
    """The judge of one lane with its readers. Its cursor has the lane's name."""

    def __init__(self, lane: str, context: TransportContext, figures: Figures) -> None:
        self._lane, self._context = lane, context
        self._lane_reader = context.reader(records.OF_LANES)
        self._facts_reader = context.reader([records.FACTS])
        self._ahead: BlockFacts | None = None
        """Facts that were read and not compared yet."""
        cursor = context.cursor(lane)
        self.judge = Judge(lane)
        self._figures = JudgeFigures(figures, lane)
        if cursor is not None:
            self._restore(cursor)
        self._facts_position = self._facts_reader.positions()
        """Where the facts that were not compared begin."""
        self._ends = self._lane_reader.ends(committed=False)
        self._committed = self._lane_reader.positions()

    def step(self) -> None:
        """Read a round, at most; compare what can be compared; commit what came out."""
        self._read()
        if self._is_read():
            self.judge.end_round()
            self._ends = self._lane_reader.ends(committed=False)
        found: list[Disagreement] = []
        before = self.judge.last_block
        while not self._context.stopping and self._advance(found):
            pass
        if found or self.judge.last_block != before or self._lane_reader.positions() != self._committed:
            self._commit(found)

    def _read(self) -> None:
        for _ in range(ROUND_RECORDS_MAX):
            record = self._lane_reader.receive(0 if self._is_read() else POLL_S)
            if record is None:
                break
            self._take(record)
        else:
            return
        if self._is_read():
            late = self._lane_reader.receive(POLL_S)  # waits here while nothing happens
            if late is not None:
                self._take(late)

    def _take(self, record: OutputRecord) -> None:
        if record.topic == records.HEADROOM:
            if not record.key.startswith(f"{self._lane}/".encode()):
                return
        elif record.key != self._lane.encode():
            return
        for format_ in records.formats_of_lanes()[record.topic]:
            try:
                self.judge.take(record.topic, format_.decode(record.value))
            except RecordUnreadable:
                continue  # another kind of record of the topic
            return

    def _is_read(self) -> bool:
        positions = self._lane_reader.positions()
        return all(positions.get(place, 0) >= end for place, end in self._ends.items())

    # --- comparing ---

    def _advance(self, found: list[Disagreement]) -> bool:
        """Compare the front, or leave it out; return whether to continue with the next one."""
        front = self.judge.front
        if front is None:
            return False
        facts = self._facts_of(front)
        if facts is None:
            if self._ahead is None and not self.judge.is_crowded:
                return False
            self.judge.skip(front)  # the facts begin later, or nobody writes any
            return True
        compared = self.judge.compare(facts)
        if compared is None:
            return False
        found += compared
        self._ahead = None
        self._facts_position = self._facts_reader.positions()
        return True

    def _facts_of(self, number: int) -> BlockFacts | None:
        """Return the facts of a block; None if they are not there, with those of a later block in ``_ahead`` if there are any."""
        while self._ahead is None or self._ahead.block < number:
            if self._ahead is not None:
                self.judge.skip_facts()
                self._ahead = None
            self._facts_position = self._facts_reader.positions()
            record = self._facts_reader.receive(0)
            if record is None and self._facts_reader.positions() != self._facts_reader.ends():
                record = self._facts_reader.receive(POLL_S)
            if record is None:
                return None
            if record.key == self._lane.encode():
                self._ahead = BlockFacts.from_datum(records.decode(records.FACTS, record.value))
        return self._ahead if self._ahead.block == number else None

    # --- exactly once ---

    def _commit(self, found: Sequence[Disagreement]) -> None:
        written: list[Record] = [self._record(records.DISAGREEMENTS, each.to_json(self._lane)) for each in found]
        agreement = self.judge.agreement()
        if agreement is not None:
            written.append(self._record(records.AGREEMENT, agreement))
        positions = self._lane_reader.positions()
        state = {
            "version": CURSOR_VERSION,
            "lanes": _plain(positions),
            "facts": _plain(self._facts_position),
            "judge": self.judge.to_json(),
        }
        self._context.commit(written, {self._lane: zlib.compress(json.dumps(state, separators=(",", ":")).encode())})
        self._committed = positions
        kinds = [(each.difference.kind, each.difference.reason.value) for each in found]
        self._figures.judged(self.judge.agreement(), kinds)
        self._show(found)

    def _show(self, found: Sequence[Disagreement]) -> None:
        for each in found[:LINES_MAX]:
            LOG.warning("lane %s: the chain disagrees: %s", self._lane, each.describe())
        if len(found) > LINES_MAX:
            LOG.warning(
                "lane %s: %d more disagreements, see topic %s",
                self._lane,
                len(found) - LINES_MAX,
                records.DISAGREEMENTS,
            )

    def _record(self, topic: str, record: Mapping[str, Any]) -> Record:
        return (topic, *self._context.encode(topic, record))

    def _restore(self, cursor: bytes) -> None:
        state = json.loads(zlib.decompress(cursor))
        if state["version"] != CURSOR_VERSION:
            raise ValueError(
                f"cursor of {self._lane}: expected version {CURSOR_VERSION}, found {state['version']}: a later version wrote it"
            )
        self.judge = Judge.from_json(self._lane, state["judge"])
        _seek(self._lane_reader, state["lanes"])
        _seek(self._facts_reader, state["facts"])


def _plain(positions: Mapping[Partition, int]) -> list[list[Any]]:
    return [[*place, offset] for place, offset in sorted(positions.items())]


def _seek(reader: OutputReader, places: Iterable[tuple[str, int, int]]) -> None:
    ends = reader.ends()
    wanted = {(topic, partition): offset for topic, partition, offset in places}
    reader.seek({place: min(offset, ends[place]) for place, offset in wanted.items() if place in ends})
