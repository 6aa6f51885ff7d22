# SPDX-License-Identifier: Apache-2.0
"""Records already written are not written again, whatever the borders of a retried batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter, source_of
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.lanes.marker import Marker, consumed_by


def letter(offset: int, topic: str = "candidates", reason: DeadReason = DeadReason.UNDECODABLE) -> OutputRecord:
    return encode_dead_letter(DeadLetter("polkadot", reason, "dead", Source(topic, 0, offset), b"raw"))


def no_lookup() -> set[bytes]:
    raise AssertionError("the marker is enough")


STATUS = OutputRecord("lanes", b"polkadot", b"status")


def test_marker_covers_whole_blocks() -> None:
    assert not Marker().has_written(1)
    assert Marker(7).has_written(7)
    assert not Marker(7, {("candidates", 0): 9}).has_written(8)


def test_dead_letter_of_consumed_record_is_not_written_again() -> None:
    marker = Marker(3, {("candidates", 0): 5, ("blocks", 0): 2})
    others = [letter(4), letter(5), letter(4, "downward"), STATUS]
    assert marker.unwritten(others, no_lookup) == [letter(5), letter(4, "downward"), STATUS]


@pytest.mark.parametrize("reason", [reason for reason in DeadReason if not reason.is_of_record])
def test_dead_letter_that_depends_on_other_records_is_looked_up_in_topic(reason: DeadReason) -> None:
    marker = Marker(3, {("candidates", 0): 5})
    assert marker.unwritten([letter(5, reason=reason)], no_lookup) == [letter(5, reason=reason)]
    others = [letter(3, reason=reason), letter(4, reason=reason)]
    assert marker.unwritten(others, lambda: {b"candidates/0/4"}) == [letter(3, reason=reason)]
    assert source_of(others[0]) == Source("candidates", 0, 3)
    assert dict(others[0].headers) == {"reason": reason.name.encode(), "source": b"candidates/0/3"}


def block(number: int) -> BlockOutput:
    return BlockOutput(number, [OutputRecord("verdicts", b"polkadot", b"%d" % number)])


def test_batch_is_news_if_it_consumed_more_than_marker() -> None:
    marker = Marker(3, {("candidates", 0): 5})
    assert not marker.is_news({("candidates", 0): 5})
    assert not marker.is_news({})
    assert marker.is_news({("candidates", 0): 6})
    assert marker.is_news({("candidates", 1): 1})


def test_markers_of_several_partitions_are_merged() -> None:
    a, b = ("candidates", 0), ("blocks", 0)
    values = [Marker(4, {a: 9}).encode("p").value, b"", Marker(3, {a: 5, b: 7}).encode("p").value]
    assert Marker.merged(values) == Marker.merged(values[::-1]) == Marker(4, {a: 9, b: 7})
    assert Marker.merged([Marker(None, {a: 2}).encode("p").value]) == Marker(None, {a: 2})
    assert Marker.merged([b""]) == Marker.merged([]) == Marker()


def test_marker_round_trips_as_record() -> None:
    for marker in (Marker(), Marker(7), Marker(7, {("candidates", 1): 9, ("blocks", 0): 2**40, ("candidates", 0): 5})):
        record = marker.encode("polkadot")
        assert (record.topic, record.key) == ("markers", b"polkadot")
        assert Marker.decode(record.value) == marker


def test_consumed_offset_is_one_after_last_of_each_partition() -> None:
    dead = [DeadLetter("", DeadReason.LATE, "", Source(topic, partition, offset), b"") for topic, partition, offset in
            (("a", 0, 3), ("a", 0, 1), ("a", 1, 0), ("b", 0, 9))]  # fmt: skip
    assert consumed_by(dead) == {("a", 0): 4, ("a", 1): 1, ("b", 0): 10}


@given(
    st.lists(st.integers(0, 3), max_size=12),
    st.lists(st.integers(1, 30), max_size=12),
)
def test_any_borders_and_retries_write_each_block_and_letter_once(steps_back: list[int], sizes: list[int]) -> None:
    """Batches of any size, each possibly retried from an earlier record and then committed, write what a single batch would."""
    letters, blocks = 40, 20
    marker, written, at = Marker(), [], 0
    backs = iter([*steps_back, *[0] * 40])
    while at < letters:
        size = sizes[at % len(sizes)] if sizes else 7
        start = max(0, at - next(backs))
        end = min(letters, at + size)
        consumed = {("candidates", 0): end}
        # every second record is dead, every second completes a block
        others = [letter(offset) for offset in range(start, end) if offset % 2]
        completed = [block(offset // 2 + 1) for offset in range(start, end) if offset % 2 == 0]
        last = None
        for each in completed:
            if not marker.has_written(each.block or 0):
                written += each.records
                last = each.block
        if last is not None or marker.is_news(consumed):
            written += marker.unwritten(others, no_lookup)
            marker = marker.after(last, consumed)
        at = end
    verdicts = [record.value for record in written if record.topic == "verdicts"]
    assert verdicts == [b"%d" % number for number in range(1, blocks + 1)]
    dead = [source_of(record).offset for record in written if record.topic == "dead-letters"]
    assert dead == [offset for offset in range(letters) if offset % 2]
