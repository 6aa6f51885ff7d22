# SPDX-License-Identifier: Apache-2.0
"""What the operator of bodies has to have emitted, and how that differs from what readers see.

What it emits depends on which records share a batch. Spark's offset log decides that once, so the suite reads the log while the job runs,
and gives the same batches to the job's state machine in this process, undisturbed. Every output topic must then hold the same records, byte
for byte and in the same order for each key.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from validator_xcmp_bodies import records

from tests.bodies.history import Named
from tests.crash.comparison import Tally
from validator.lanes.keyed import ordered
from validator.plugin.job_api import Job, JobItem, JobRecord

OUTPUTS = (records.HELD, records.REFUSED, records.WANTED, records.FLOW, records.QUEUES)

Ends = dict[str, int]
Emitted = tuple[bytes, bytes]
"""Key and value of a record."""


@dataclass
class Plan:
    """The end of every batch by topic, as far as Spark's offset log has been seen: it keeps the newest batches only."""

    job: Job
    prefix: str
    ends: dict[int, Ends] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)

    def look(self, checkpoint: Path) -> None:
        """Take what the log of a checkpoint has now."""
        self.committed |= set(_numbers(checkpoint / "commits"))
        for number in _numbers(checkpoint / "offsets"):
            if number not in self.ends:
                lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
                self.ends[number] = {
                    topic.removeprefix(self.prefix): sum(partitions.values())
                    for line in lines[2:]  # after the version and the query's metadata, one line for each source
                    for topic, partitions in json.loads(line).items()
                }

    def covers(self, produced: Mapping[str, int]) -> bool:
        """Whether everything produced is in committed batches, and each of them is known."""
        if not self.committed:
            return False
        last = max(self.committed)
        if missing := sorted(set(range(last + 1)) - self.ends.keys()):
            raise AssertionError(f"batches {missing} have left the offset log unseen")
        return all(self.ends[last].get(topic, 0) >= count for topic, count in produced.items())

    def expected(self, history: Sequence[Named]) -> dict[tuple[str, str], list[Emitted]]:
        """Return what the committed batches emit in a process that never fails, by topic and key of the job."""
        job, items = self.job, _items(self.job, history)
        states = {key: job.restore(key, {}) for key in job.keys}
        found: defaultdict[tuple[str, str], list[Emitted]] = defaultdict(list)
        begins: Ends = {}
        for number in sorted(self.committed):
            ends = self.ends[number]
            for key in job.keys:
                batch = [each for each in items[key] if begins.get(each.topic, 0) <= each.offset < ends[each.topic]]
                for record in states[key].process(ordered(job, batch)) if batch else ():
                    found[record.topic, key].append((record.key, record.value))
            begins = ends
        return found


def _numbers(folder: Path) -> Iterator[int]:
    return (int(path.name) for path in (folder.iterdir() if folder.is_dir() else ()) if path.name.isdigit())


def _items(job: Job, history: Sequence[Named]) -> dict[str, list[JobItem]]:
    found: dict[str, list[JobItem]] = {key: [] for key in job.keys}
    offsets: Counter[str] = Counter()
    for topic, value in history:
        offset = offsets[topic]
        offsets[topic] += 1
        for key, content in job.condense(JobRecord(topic, 0, offset, None, value)):
            found[key].append(JobItem(topic, 0, offset, content))
    return found


def compare(expected: Sequence[Emitted], found: Sequence[Emitted], where: str, tally: Tally) -> None:
    """Count what is lost, duplicated, out of order or different in ``found``."""
    tally.records += len(found)
    wanted, there = Counter(expected), Counter(found)
    for record, count in (wanted - there).items():
        tally.blame("lost", f"{where}: {count} of {_shown(where, record)}")
    for record, count in (there - wanted).items():
        kind = "duplicated" if record in wanted else "differing"
        tally.blame(kind, f"{where}: {count} of {_shown(where, record)}")
    if wanted == there and list(expected) != list(found):
        at = next(at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
        tally.blame("out_of_order", f"{where}: {_shown(where, found[at])} is at {at}")


def _shown(where: str, record: Emitted) -> object:
    topic = where.split(" ", maxsplit=1)[0]
    return records.decode(topic, record[1]) if topic in OUTPUTS else record


def sequence(history: Iterable[Named], recipient: int) -> list[str]:
    """Return the positions of all messages to a recipient, in the fair order."""
    events = (records.decode(topic, value) for topic, value in history if topic == records.INGRESS)
    names = {(each["sent_at"], each["sender"]) for each in events if each["recipient"] == recipient}
    return [f"{sent_at}/{sender}" for sent_at, sender in sorted(names)]
