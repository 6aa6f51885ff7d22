# SPDX-License-Identifier: Apache-2.0
"""Every held body is reported once, and a block's reports are the same however often they are made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from validator_xcmp_bodies import cli, records
from validator_xcmp_bodies.outcomes import Held, RecordOffset
from validator_xcmp_bodies.reports import RecordsRemoved, ReportProgress, Wish, make

from validator.errors import UserError
from validator.kafka.reader import TopicRecord

LANE = "polkadot"


class Topic:
    """A topic of held bodies in memory: chain and sender by partition, None for the mark at the end of a transaction."""

    def __init__(self, *partitions: list[tuple[str, int] | None]) -> None:
        self.partitions = list(partitions)
        self.low: dict[int, int] = {}
        self._at = (0, 0)

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        each = enumerate(self.partitions)
        return {(records.HELD, number): (self.low.get(number, 0), len(partition)) for number, partition in each}

    def restart(self, topic: str, partition: int, offset: int) -> None:
        assert topic == records.HELD
        assert offset >= self.low.get(partition, 0)
        self._at = partition, offset

    def read_to_end(self) -> Iterator[TopicRecord]:
        partition, begin = self._at
        for offset, each in enumerate(self.partitions[partition]):
            if each is not None and offset >= begin:
                lane, sender = each
                (record,) = records.encode_outcomes(
                    lane, [Held(2, sender, 5, bytes(32), 7, 1, (RecordOffset(0, offset),))]
                )
                yield TopicRecord(records.HELD, partition, offset, record.key, record.value, 0)

    def end_of(self, topic: str, partition: int) -> int:
        assert topic == records.HELD
        return len(self.partitions[partition])


def made(
    topic: Topic, last: ReportProgress | None, block: int, most: int = 100, first: int = 0
) -> tuple[list[int], ReportProgress]:
    found, position = make(Wish(LANE, block, first, most), last, topic)  # type: ignore[arg-type]
    rows = [json.loads(line) for line in found]
    assert [(row["lane"], row["block"], row["kind"], row["index"]) for row in rows] == [
        (LANE, block, "report_body", first + at) for at in range(len(rows))
    ]
    assert position.requests == first + len(rows)
    return [row["sender"] for row in rows], position


def test_each_block_reports_what_is_held_since_the_one_before() -> None:
    topic = Topic([(LANE, 1), ("kusama", 9), None], [(LANE, 2)])
    first, position = made(topic, None, 10)
    topic.partitions[0] += [(LANE, 3), None]
    second, after = made(topic, position, 12, first=4)
    assert (first, second, made(topic, after, 13)[0]) == ([1, 2], [3], [])
    assert made(topic, after, 12, first=4) == (second, after)


def test_what_is_held_later_does_not_change_the_reports_of_a_block() -> None:
    topic = Topic([(LANE, 1), None])
    _, position = made(topic, None, 10)
    topic.partitions = [[(LANE, 1), None, (LANE, 2)], [(LANE, 3)]]
    assert made(topic, position, 10) == ([1], position)
    assert made(topic, position, 11)[0] == [2, 3]


def test_what_exceeds_the_bound_waits_for_the_next_block() -> None:
    topic = Topic([(LANE, 1), (LANE, 2), ("kusama", 9), (LANE, 3)], [(LANE, 4)])
    blocks, position = [], None
    for block in range(4):
        found, position = made(topic, position, block, 2)
        blocks.append(found)
        assert made(topic, position, block, 1)[0] == found
    assert blocks == [[1, 2], [3, 4], [], []]


def test_an_end_behind_the_last_record_is_not_mistaken_for_a_gap() -> None:
    topic = Topic([(LANE, 1), None])
    _, position = made(topic, None, 10)
    topic.low = {0: 2}
    assert made(topic, position, 11)[0] == []
    topic.partitions[0] += [(LANE, 2), (LANE, 3)]
    topic.low = {0: 3}
    with pytest.raises(UserError, match="retention has removed the records from 2 to 2"):
        made(topic, position, 11)


def test_records_that_kafka_lacks_once_are_asked_for_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers: list[Exception | tuple[list[str], ReportProgress]] = [
        RecordsRemoved("remove the file"),
        (["line\n"], ReportProgress(LANE, 7, 0, 1)),
    ]
    slept: list[float] = []

    def reports(*_: object) -> tuple[list[str], ReportProgress]:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    config = SimpleNamespace(chains={})
    monkeypatch.setattr(cli, "connected", lambda _: config)
    monkeypatch.setattr(cli, "_reports", reports)
    monkeypatch.setattr(cli.time, "sleep", slept.append)
    cli.reports(LANE, 7, tmp_path / "position")
    assert slept == [cli.LOOK_AGAIN_S]
    answers += [RecordsRemoved("remove the file")] * 2
    with pytest.raises(RecordsRemoved):
        cli.reports(LANE, 8, tmp_path / "position")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish("kusama", 11, 0, 1), "--position: it belongs to chain polkadot, not kusama"),
        (Wish(LANE, 9, 0, 1), "--block: the reports up to block 10 are made, found 9"),
        (Wish(LANE, 10, 1, 1), "--first-index: the reports of block 10 begin at 0, found 1"),
    ],
)
def test_what_contradicts_the_position_is_refused(wish: Wish, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(wish, ReportProgress(LANE, 10, 0, 0), Topic([]))  # type: ignore[arg-type]


def test_a_position_is_stored_whole(tmp_path: Path) -> None:
    path = tmp_path / "position"
    assert ReportProgress.read(path) is None
    position = ReportProgress(LANE, 10, 1, 3, {0: 1, 7: 2}, {0: 5, 7: 2})
    position.write(path)
    assert ReportProgress.read(path) == position


@pytest.mark.parametrize("change", [{"begin": [1]}, {"block": "x"}, {"lane": None, "more": 1}])
def test_another_file_is_no_position(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "position"
    ReportProgress(LANE, 10, 1, 3).write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match="expected a position that `validator messages reports` wrote"):
        ReportProgress.read(path)
