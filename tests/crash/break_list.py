# SPDX-License-Identifier: Apache-2.0
"""The deliberate breaks of sink and store: each a text of a source file, and what replaces it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Check: TypeAlias = Literal["schedules", "stages", "writers"]
"""``schedules``: `tests.simulation`; ``stages``: the same with the job's stages; ``writers``: real processes (`tests.crash.writers`)."""


@dataclass(frozen=True, slots=True)
class Break:
    """``old`` is in ``file`` exactly once, and ``check`` must find what ``new`` does."""

    name: str
    file: str
    check: Check
    old: str
    new: str


SINK = "validator/lanes/sink.py"
MARKER = "validator/lanes/marker.py"
COLLECTED = "validator/lanes/parking.py"
STORE = "validator/lanes/store.py"
SLOTS = "validator/lanes/slots.py"
PARKING = "validator/lanes/parking.py"
STAGE = "streaming/transactions.py"
WRITER = "validator/kafka/transaction.py"
LANE_WRITER = "streaming/transactions.py"

OF_SINK = (
    Break("marker ignored", SINK, "schedules", "elif not marker.has_written(block):", "else:"),
    Break("marker's offsets go back", MARKER, "schedules", "max(offset, self.consumed.get(place, 0))", "offset"),
    Break(
        "marker left behind where a transaction is split", SINK, "schedules",
        "                    marker = marker.after(block, {})\n", "",
    ),
    Break(
        "marker behind its group believed", MARKER, "schedules",
        "if block is not None and not self.has_written(block):", "if block is None and self.block is None and not self:",
    ),
    Break(
        "marker of somebody else believed", MARKER, "schedules",
        "        if self.block != receipt:\n", "        if self.block is None and receipt is not None:\n",
    ),
    Break(
        "inputs of a marker of somebody else believed", MARKER, "schedules",
        "return cls(receipt, {}, doubtful=True)", "return cls(receipt, {})",
    ),
    Break("consumed offsets one too high", MARKER, "schedules", "consumed[place] = offset + 1", "consumed[place] = offset + 2"),
    Break("consumed offsets one too low", MARKER, "schedules", "consumed[place] = offset + 1", "consumed[place] = offset"),
    Break(
        "dead letters emitted again", MARKER, "schedules",
        "return reason_of(dead_letter).is_of_record or source_header(source) in dead_letters()", "return False",
    ),
    Break(
        "dead letters dropped", MARKER, "schedules",
        "return reason_of(dead_letter).is_of_record or source_header(source) in dead_letters()", "return True",
    ),
    Break("dead letters without blocks dropped", SINK, "schedules", "        _hand_on(writer, batch, batch.held)\n", ""),
    Break(
        "writer not discarded after a failed call", STAGE, "stages",
        "sink = _SINKS.pop(output, None) or output.open()", "sink = _SINKS.setdefault(output, _SINKS.get(output) or output.open())",
    ),
)  # fmt: skip

OF_STORE = (
    Break(
        "cache token unchecked", STORE, "schedules",
        "if cached is not None and cached.token == head.token:", "if cached is not None:",
    ),
    Break(
        "journal truncated too early", STORE, "schedules",
        "        backend.append_journal(entry)\n", "        backend.clear_journal()\n        backend.append_journal(entry)\n",
    ),
    Break(
        "saving decided by the clock",
        STORE,
        "schedules",
        "        head.journal_bytes + entry_bytes >= journal_bytes_max\n",
        "        time.monotonic_ns() % 3 == 0\n",
    ),
    Break(
        "journal entry appended twice", STORE, "schedules",
        "            backend.append_journal(entry)\n", "            _ = [*map(backend.append_journal, (entry, entry))]\n",
    ),
    Break("journal not truncated", STORE, "schedules", "    backend.clear_journal()\n    return", "    return"),
    Break("journal not executed again", STORE, "schedules", "here.processor.catch_up(*decode_entry", "(lambda *_: ())(*decode_entry"),
    Break(
        "page not written", SLOTS, "schedules",
        "            store.save_slot(number, data)\n",
        "            if number not in self.sizes:\n                store.save_slot(number, data)\n",
    ),
    Break(
        "head written before its pages", STORE, "schedules",
        "slots_hash=lane.slots.hash(),", "slots_hash=head.slots_hash,",
    ),
    Break(
        "parts of a batch end where its chunks do", "validator/lanes/arrived.py", "schedules",
        "at = bisect_left(unpacked, border, key=_offset_of)", "at = len(unpacked)",
    ),
    Break(
        "lane kept in the cache while it executes", STORE, "schedules",
        "return self._lanes.pop(name, None)", "return self._lanes.get(name)",
    ),
)  # fmt: skip

OF_PARKING = (
    Break(
        "inputs of a parked lane counted as consumed",
        PARKING,
        "schedules",
        "            yield from self._park(self._holding(parked), head)\n            return False\n",
        "            yield from self._park(self._holding(parked), head)\n"
        "            self.consumed = consumed_by(items)\n            return False\n",
    ),
    Break(
        "order to resume ignored",
        PARKING,
        "schedules",
        '            parked = replace(parked, resuming=True)\n',
        '            pass\n',
    ),
    Break(
        "order to resume applied twice",
        PARKING,
        "schedules",
        '            items += (item for item in inputs if item.source.offset < end)\n',
        '            items += [item for item in inputs if item.source.offset < end] * 2\n',
    ),
    Break(
        "rest of a resuming lane forgotten",
        PARKING,
        "schedules",
        '                left[place] = Span(end, held[place].end)\n',
        '                pass\n',
    ),
    Break(
        "pages of a failed batch written", COLLECTED, "schedules",
        "self._writes.append(partial(self._backend.save_slot, number, data))", "self._backend.save_slot(number, data)",
    ),
    Break(
        "dead letters of a failed batch emitted", PARKING, "schedules",
        "                    others.append(output)\n", "                    yield output\n",
    ),
    Break(
        "consumed offsets not handed to the sink", STAGE, "stages",
        "sink.commit(lane, consumed())", "sink.commit(lane, {})",
    ),
)  # fmt: skip

OF_WRITER = (
    Break(
        "no fencing: a random transactional.id", "validator/checkpoint/markers.py", "writers",
        "transactional_id=group_of(self.prefix, lane))",
        "transactional_id=group_of(self.prefix, lane) + __import__('secrets').token_hex(4))",
    ),
    Break(
        "produced outside the transaction", LANE_WRITER, "writers",
        "            self._writer.send(self._sent(records))\n",
        "            import confluent_kafka\n            from validator.kafka.settings import producer_config\n"
        '            outside = self.__dict__.get("outside") or confluent_kafka.Producer(producer_config(self._log._kafka))\n'
        "            self.outside = outside\n            for topic, key, value, headers in self._sent(records):\n"
        "                outside.produce(topic, value, key, headers=headers)\n            outside.flush()\n",
    ),
    Break(
        "commit swallowed", WRITER, "writers",
        "            self._in_slices(self.producer.commit_transaction, self._bound_s)\n", "            pass\n",
    ),
    Break(
        "marker in a separate transaction", WRITER, "writers",
        "        self.send(progress)\n",
        "        with self._explained():\n            self._begin()\n            self.producer.commit_transaction(self._bound_s)\n"
        "        self._open = False\n        self.send(progress)\n",
    ),
    Break(
        "another job not refused", LANE_WRITER, "writers",
        "if seen or last.place is None or last.job == self._job:", "if self._lane:",
    ),
)  # fmt: skip

BREAKS = (*OF_SINK, *OF_STORE, *OF_PARKING, *OF_WRITER)
