# SPDX-License-Identifier: Apache-2.0
"""Finds where the last records of a topic begin. Ends of transactions take offsets, too, so that has to be read."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from validator.kafka.reader import TopicReader

FURTHER_OFFSETS: Final = 16
"""Offsets that are looked at first besides as many as records are wanted; each further look is eight times as long."""
FURTHER_OFFSETS_MAX: Final = 100_000
"""Offsets that are looked at in the end. Beyond them a partition begins with the records that were found."""


def begin_with_last(reader: TopicReader, topic: str, records: int) -> None:
    """Let a reader of one topic continue with the last ``records`` committed records of each partition. Raises as `TopicReader` does."""
    spans = {partition: span for (name, partition), span in reader.spans().items() if name == topic}
    starts = {partition: end for partition, (_, end) in spans.items()}
    further = FURTHER_OFFSETS
    looked_at = set(spans) if records else set()
    while looked_at:
        first = {each: max(spans[each][0], spans[each][1] - records - further) for each in looked_at}
        reader.start_at({(topic, each): offset for each, offset in first.items()})
        found = {each: deque[int](maxlen=records) for each in looked_at}
        for record in reader.read_to_end():
            if record.offset < spans[record.partition][1]:
                found[record.partition].append(record.offset)
        for each, offsets in found.items():
            starts[each] = offsets[0] if offsets else spans[each][1]
            if len(offsets) == records or first[each] == spans[each][0] or further == FURTHER_OFFSETS_MAX:
                looked_at.remove(each)
        further = min(8 * further, FURTHER_OFFSETS_MAX)
    reader.start_at({(topic, each): offset for each, offset in starts.items()})
