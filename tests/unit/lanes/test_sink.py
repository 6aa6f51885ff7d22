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
        self._open: list[bytes] = []

    def is_current(self) -> bool:
        return True

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        return self.last

    def written_dead_letters(self) -> set[bytes]:
        return self.dead_letters

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
