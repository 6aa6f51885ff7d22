# SPDX-License-Identifier: Apache-2.0
"""The records that a sink writes for a batch, and their transactions."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.lanes import sink as sink_module
from validator.lanes.marker import Marker
from validator.lanes.sink import TransactionalSink

LANE = "polkadot"
STATUS = BlockOutput(None, [OutputRecord("lanes", b"polkadot", b"status")])


class Log:
    """A log that keeps its committed transactions."""

    def __init__(self) -> None:
        self.transactions: list[tuple[list[bytes], Marker]] = []
        self.last = Marker()
        self.dead_letters: set[bytes] = set()
        self.noted = 0
        self._open: list[bytes] = []

    def confirm(self, *, corrects: bool) -> None:
        """Believe the marker."""

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        return self.last

    def note_dead_letters(self) -> None:
        assert not self._open, "the end is noted before the first of them is written"
        self.noted += 1

    def written_dead_letters(self) -> set[bytes]:
        return self.dead_letters

    @property
    def handed_on(self) -> int:
        return len(self._open)

    def write(self, records: Iterable[OutputRecord]) -> None:
        self._open += [record.value for record in records]

    def commit(self, marker: Marker) -> None:
        self.transactions.append((self._open, marker))
        self._open, self.last = [], marker


def block(number: int) -> BlockOutput:
    return BlockOutput(number, [OutputRecord("verdicts", b"polkadot", b"%d" % (number * 10 + at)) for at in range(2)])


def test_batch_is_one_transaction() -> None:
    log = Log()
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [block(1), block(2)])
    sink.write(LANE, [block(3), STATUS])
    assert sink.commit(LANE, {("blocks", 0): 3}) == {"verdicts": 6, "lanes": 1}
    values = [b"10", b"11", b"20", b"21", b"30", b"31", b"status"]
    assert log.transactions == [(values, Marker(3, {("blocks", 0): 3}))]


def test_large_batch_is_split_into_transactions_with_marker_of_last_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_module, "TRANSACTION_BYTES_MAX", 7)
    log = Log()
    log.last = Marker(None, {("blocks", 0): 1})
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [block(1), block(2), block(3)])
    sink.write(LANE, [block(4), STATUS])
    assert sink.commit(LANE, {("blocks", 0): 5}) == {"verdicts": 8, "lanes": 1}
    assert log.transactions == [
        ([b"10", b"11", b"20", b"21"], Marker(2, {("blocks", 0): 1})),
        ([b"30", b"31", b"40", b"41"], Marker(4, {("blocks", 0): 1})),
        ([b"status"], Marker(4, {("blocks", 0): 5})),
    ]

    # retried after a crash between the first two: records already written are left out
    log.transactions, log.last = [], Marker(2, {("blocks", 0): 1})
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [block(1), block(2), block(3), STATUS])
    sink.commit(LANE, {("blocks", 0): 4})
    assert log.transactions == [([b"30", b"31", b"status"], Marker(3, {("blocks", 0): 4}))]


def test_batch_without_new_records_writes_nothing() -> None:
    log = Log()
    log.last = Marker(3, {("blocks", 0): 3})
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [block(2), block(3), STATUS])
    assert sink.commit(LANE, {("blocks", 0): 3}) == {}
    assert log.transactions == []


def test_missing_dead_letters_are_written_by_batch_without_news() -> None:
    """A record that waited when the marker was written may be dead when the lane executes again with other batch borders."""
    log = Log()
    log.last, log.dead_letters = Marker(3, {("blocks", 0): 9}), {b"blocks/0/7"}
    sink = TransactionalSink(lambda _: log)
    letters = [
        encode_dead_letter(DeadLetter(LANE, reason, "dead", Source("blocks", 0, offset), b"raw"))
        for reason, offset in ((DeadReason.LATE, 6), (DeadReason.LATE, 7), (DeadReason.UNDECODABLE, 8))
    ]
    sink.write(LANE, [BlockOutput(None, letters), block(3), STATUS])
    assert sink.commit(LANE, {("blocks", 0): 9}) == {"dead-letters": 1, "lanes": 1}
    assert log.transactions == [([letters[0].value, b"status"], Marker(3, {("blocks", 0): 9}))]


def letter(offset: int, reason: DeadReason = DeadReason.UNDECODABLE) -> OutputRecord:
    return encode_dead_letter(DeadLetter(LANE, reason, "dead", Source("blocks", 0, offset), b"raw"))


def test_many_dead_letters_are_handed_on_as_they_come_and_committed_with_what_the_batch_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_module, "TRANSACTION_BYTES_MAX", 3)
    monkeypatch.setattr(sink_module, "HELD_BYTES_MAX", 3 * len(letter(0).value))
    log = Log()
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [STATUS])
    assert log.handed_on == 0
    for offset in range(50):
        sink.write(LANE, [BlockOutput(None, [letter(offset)]), BlockOutput(None, [letter(100 + offset)])])
        assert log.handed_on >= 2 * (offset + 1) - 3, "the sink keeps three of them"
    # a marker of a block would say nothing of the letters before it, so a second attempt would emit them again
    sink.write(LANE, [block(1), block(2)])
    assert log.transactions == []
    assert sink.commit(LANE, {("blocks", 0): 150}) == {"dead-letters": 100, "verdicts": 4, "lanes": 1}
    ((values, marker),) = log.transactions
    assert (len(values), values.count(b"status"), marker) == (105, 1, Marker(2, {("blocks", 0): 150}))
    assert log.noted == 1
    sink.write(LANE, [BlockOutput(None, [letter(150)])])
    sink.commit(LANE, {("blocks", 0): 151})
    assert log.noted == 1, "what is written just before the commit stands in nobody's way"
    sink.write(LANE, [BlockOutput(None, [letter(at) for at in range(200, 204)])])
    assert log.noted == 2


def test_dead_letters_that_are_all_written_already_are_no_news() -> None:
    log = Log()
    log.last = Marker(3, {("blocks", 0): 9})
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [BlockOutput(None, [letter(4), letter(5)]), STATUS])
    assert sink.commit(LANE, {("blocks", 0): 9}) == {}
    assert log.transactions == []


def test_transaction_ends_with_the_block_that_fills_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for bytes_max, last_blocks in ((4, [1, 2, 3, 4, 5, 5]), (5, [2, 4, 5]), (8, [2, 4, 5]), (9, [3, 5])):
        monkeypatch.setattr(sink_module, "TRANSACTION_BYTES_MAX", bytes_max)
        log = Log()
        sink = TransactionalSink(lambda _, log=log: log)
        sink.write(LANE, [block(number) for number in range(1, 6)])
        sink.commit(LANE, {("blocks", 0): 5})
        assert [marker.block for _, marker in log.transactions] == last_blocks, bytes_max


def test_dead_letters_are_held_up_to_the_limit_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "HELD_BYTES_MAX", 2 * len(letter(0).value))
    log = Log()
    sink = TransactionalSink(lambda _: log)
    handed_on = []
    for offset in range(8):
        sink.write(LANE, [BlockOutput(None, [letter(offset)])])
        handed_on.append(log.handed_on)
    assert handed_on == [0, 0, 3, 3, 3, 6, 6, 6]


def test_batches_of_a_lane_are_apart() -> None:
    log = Log()
    sink = TransactionalSink(lambda _: log)
    sink.write(LANE, [block(1), BlockOutput(None, [letter(0)])])
    assert sink.commit(LANE, {("blocks", 0): 1}) == {"verdicts": 2, "dead-letters": 1}
    sink.write(LANE, [block(2)])
    assert sink.commit(LANE, {("blocks", 0): 2}) == {"verdicts": 2}
    assert [values for values, _ in log.transactions] == [[b"10", b"11", letter(0).value], [b"20", b"21"]]


def test_writer_is_kept_while_the_lane_is_where_the_last_batch_left_it() -> None:
    """Another worker that has processed the lane has fenced the writer off."""
    log = Log()
    opened: list[str] = []
    sink = TransactionalSink(lambda lane: opened.append(lane) or log)  # type: ignore[func-returns-value]
    for number, found, left, count in (
        (1, "a", "b", 1),
        (2, "b", "c", 1),
        (3, "d", "e", 2),
        (4, "e", "e", 2),
        (5, "b", "c", 3),
    ):
        sink.begin(LANE, found)
        sink.write(LANE, [block(number)])
        sink.commit(LANE, {("blocks", 0): number})
        sink.leave(LANE, left)
        assert len(opened) == count


def test_writer_of_a_batch_that_was_not_left_is_not_used_again() -> None:
    opened: list[str] = []
    sink = TransactionalSink(lambda lane: opened.append(lane) or Log())  # type: ignore[func-returns-value]
    for _ in range(2):
        sink.begin(LANE, "a")
        sink.write(LANE, [block(1)])
    assert len(opened) == 2


def test_batch_that_begins_again_has_nothing_of_the_attempt_before() -> None:
    """The process of a lane may fail after its first blocks were handed on: then the same batch begins again, in the same task."""
    logs: list[Log] = []

    def opened(_: str) -> Log:
        logs.append(Log())
        return logs[-1]

    sink = TransactionalSink(opened)
    sink.begin(LANE, "here")
    sink.write(LANE, [block(1), block(2), BlockOutput(None, [letter(7)])])
    sink.begin(LANE, "here")
    sink.write(LANE, [block(1), STATUS])
    sink.commit(LANE, {("blocks", 0): 1})
    first, second = logs
    assert first.transactions == []
    assert second.transactions == [([b"10", b"11", b"status"], Marker(1, {("blocks", 0): 1}))]
