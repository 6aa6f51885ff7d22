# SPDX-License-Identifier: Apache-2.0
"""The records that go into the topics, in segments, and the output of an undisturbed run for them, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from validator_simulators import SimulationSettings

from tests.codecs import decoded
from tests.unit.lanes.chains import Chain, chain, definition_of, record
from validator.core.inputs import DeadLetter, Input, Source
from validator.lanes.processor import LaneProcessor

COMPARED = ("verdicts", "dispatches", "channel-events", "ingress-events", "headroom", "receipts")
"""Topics whose content does not depend on the order of arrival."""

LANES = (
    SimulationSettings(candidates_per_block=3, violation_share=0.15, session_length_blocks=7),
    SimulationSettings(
        lane="kusama",
        topology="kusama",
        candidates_per_block=3,
        violation_share=0.15,
        session_length_blocks=5,
        enactment="on-inclusion",
        notifications=True,
        unlimited_balances=True,
    ),
    SimulationSettings(lane="westend", candidates_per_block=2, violation_share=0.3, session_length_blocks=4),
)


class Sent(NamedTuple):
    """A record for an input topic (without the prefix), ``key`` is the lane's name."""

    topic: str
    key: bytes
    value: bytes


def chains_of(seed: int, lanes: int, blocks: int) -> tuple[Chain, ...]:
    """Return the simulated relay chains of a seed. The second one has handlers, so that a separate process executes it."""
    chains = [chain(replace(each, seed=seed + at, blocks=blocks)) for at, each in enumerate(LANES[:lanes])]
    weighed = ("ump_weights", "ump_failing_messages")
    for at in range(1, len(chains), 3):
        table = {name: value for name, value in chains[at].table.items() if name not in weighed}
        chains[at] = replace(chains[at], table=table | {"handlers": [{"name": "balances"}, {"name": "remark"}]})
    return tuple(chains)


class Traffic:
    """Splits chains into segments of a few blocks, each in random order, with records in between that no lane can use.

    A few records of each segment arrive with the next one, so that some block always waits.
    """

    def __init__(self, chains: Sequence[Chain], random: Random, blocks_per_segment: int) -> None:
        self._chains = chains
        self._random = random
        self._blocks = blocks_per_segment
        self._next_block = 1
        self._late: list[Sent] = []
        self._unannounced: set[tuple[str, int, int]] = set()

    @property
    def exhausted(self) -> bool:
        """Whether all blocks have been taken."""
        return self._next_block > len(self._chains[0].blocks)

    def segment(self, *, ahead: bool = False) -> list[Sent]:
        """Return the next records in order of arrival.

        With ``ahead``, the segment contains a record that is dead only because of its block record, which comes with the next segment.
        """
        random = self._random
        blocks = range(self._next_block, self._next_block + self._blocks)
        self._next_block = blocks.stop
        records = [
            Sent(each.topic, each.lane.encode(), each.value)
            for chain in self._chains
            for each in chain.records
            if each.block in blocks
        ]
        good = self._late + records
        random.shuffle(good)
        held_back = 0 if self.exhausted else random.randrange(len(good) // 8)
        good, self._late = good[held_back:], good[:held_back]
        return self._with_garbage(good, blocks, ahead=ahead)

    def _with_garbage(self, good: list[Sent], blocks: range, *, ahead: bool) -> list[Sent]:
        random = self._random
        out = list(good)
        for each in random.sample(good, k=min(4, len(good))):
            at = random.randrange(out.index(each), len(out)) + 1  # after the record that it repeats or contradicts
            changed = each.value[:-1] + bytes([each.value[-1] ^ 1])
            readable = not isinstance(_decode(each._replace(value=changed), Source("", 0, 0)), DeadLetter)
            wrong = changed if readable and each.topic == "downward-messages" and random.random() < 0.5 else each.value
            out.insert(at, each._replace(value=wrong))
        lane = random.choice(self._chains).lane
        block = blocks.stop if ahead else random.choice((blocks.start, blocks.stop - 1, blocks.stop))
        index = 900 + random.randrange(99)
        while (
            lane,
            block,
            index,
        ) in self._unannounced:  # whether a second one is a duplicate or dead depends on what arrives when
            index += 1
        self._unannounced.add((lane, block, index))
        body = {"lane": lane, "block": block, "index": index, "para_id": 2000, "msg": "aa"}
        unannounced = record("downward-messages", body).value
        for topic, key, value in (
            ("downward-messages", lane.encode(), unannounced),
            ("candidates", lane.encode(), random.randbytes(40)),
            ("blocks", b"stranger", b"\xff"),
        ):
            if random.random() < 0.6 or (ahead and value == unannounced):
                out.insert(random.randrange(len(out) + 1), Sent(topic, key, value))
        return out


def _decode(sent: Sent, source: Source) -> DeadLetter | tuple[str, Input]:
    return decoded(sent.topic, sent.value, source, sent.key)


class Undisturbed:
    """The output of lanes that get every record once, in this process, without disturbance.

    ``output`` has key and value of each record in order, by lane and topic; ``dead`` has the sources of records that become dead letters.
    """

    def __init__(self, chains: Sequence[Chain], prefix: str) -> None:
        self._prefix = prefix
        definitions = {each.lane: definition_of(each) for each in chains}
        self._workers = {lane: LaneProcessor.create(definition) for lane, definition in definitions.items()}
        self.output: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {
            (lane, topic): [] for lane in definitions for topic in COMPARED
        }
        self.dead: Counter[bytes] = Counter()
        self.offsets: Counter[str] = Counter()

    def take(self, records: Sequence[Sent]) -> None:
        """Take records in the order in which they went into the topics."""
        by_lane: dict[str, list[Input | DeadLetter]] = {lane: [] for lane in self._workers}
        for sent in records:
            offset = self.offsets[sent.topic]
            self.offsets[sent.topic] += 1
            decoded = _decode(sent, Source(self._prefix + sent.topic, 0, offset))
            lane, item = (decoded.lane, decoded) if isinstance(decoded, DeadLetter) else decoded
            if lane in self._workers:
                by_lane[lane].append(item)
            else:
                self.dead[f"{self._prefix}{sent.topic}/0/{offset}".encode()] += 1
        for lane, items in by_lane.items():
            for output in self._workers[lane].process(items):
                for each in output.records:
                    if each.topic == "dead-letters":
                        self.dead[dict(each.headers)["source"]] += 1
                    else:
                        self.output[lane, each.topic].append((each.key, each.value))

    def skip(self, topic: str) -> None:
        """Leave out a record that is for no lane's core, as an order is."""
        self.offsets[topic] += 1

    def counters(self) -> dict[str, dict[str, int]]:
        """Return how the records of each lane ended."""
        names = ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
        return {
            lane: {name: getattr(worker.lane.counters, name) for name in names}
            for lane, worker in self._workers.items()
        }
