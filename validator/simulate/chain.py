# SPDX-License-Identifier: Apache-2.0
"""The blocks of a simulated relay chain of any protocol: records in canonical order, and their expected verdicts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from validator.simulate.draws import Draws
from validator.simulate.results import Json
from validator.simulate.settings import Record, RecordKind, SimulatedBlock, SimulationSettings

Judged: TypeAlias = tuple[Json, Json]
"""A record without its lane, block and index, and the model's result for it."""

LOST_AFTER_BLOCKS: Final = 6
"""Number of blocks after which a pending candidate times out if it has not become available."""


class SimulatedChain(ABC):
    """A seeded chain, block by block; a protocol's subclass makes the traffic and has a model judge it, in the order of the methods.

    All randomness comes from ``draws``. ``block`` is the number of the block under construction.
    """

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self.draws = Draws(settings.seed)
        self.block = settings.first_block

    @abstractmethod
    def chain(self) -> Json:
        """Return the chain's complete configuration, with which the rules give the same verdicts."""

    @abstractmethod
    def paras(self) -> list[int]:
        """Return the registered paras, ascending."""

    @abstractmethod
    def pending(self) -> list[Json]:
        """Return the pending candidates: objects with ``backed_at`` and ``candidate``, which has ``para_id``."""

    @abstractmethod
    def begin_block(self, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin the block; return a result for each inclusion, then for each timeout."""

    @abstractmethod
    def requests(self) -> Iterator[Judged]:
        """Make the block's channel requests."""

    @abstractmethod
    def downward(self) -> Iterator[Judged]:
        """Make the relay chain's own downward messages."""

    @abstractmethod
    def candidates(self) -> Iterator[tuple[Json, Json, tuple[str, ...]]]:
        """Make the block's candidates, each with the model's result and the error kinds that it is made to cause."""

    def dispatched(self) -> list[list[Any]]:
        """Return the upward messages that the block's dispatch round handles, as ``[para, payload in hex]``."""
        return []

    @abstractmethod
    def session_change(self) -> Json | None:
        """End the session if this block does, and return the change in the form of the block's record."""

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain. Records are made for the state that the records before them left."""
        for number in range(self.settings.first_block, self.settings.first_block + self.settings.blocks):
            self.block = number
            yield self._play(number)

    def breaks(self) -> bool:
        """Return whether the next record should break a rule."""
        return self.draws.random() < self.settings.violation_share

    def _play(self, number: int) -> SimulatedBlock:
        included, timed_out = self._availability(number)
        results = self.begin_block(included, timed_out)
        requests = list(self.requests())
        downward = list(self.downward())
        candidates = list(self.candidates())
        for index, (candidate, _, _) in enumerate(candidates):
            candidate["candidate_hash"] = self._hash(f"candidate {number}/{index}")
        dispatched = self.dispatched()
        block: Json = {
            "lane": self.settings.lane,
            "block": number,
            "parent_number": None,
            "block_hash": self._hash(f"block {number}"),
            "candidates": len(candidates),
            "requests": len(requests),
            "downward": len(downward),
            "included": included,
            "timed_out": timed_out,
            "session_change": self.session_change(),
        }
        records: list[Record] = [("blocks", block)]
        expected: list[Json] = []

        def expect(kind: str, results: list[Json]) -> None:
            for index, result in enumerate(results):
                expected.append({"lane": self.settings.lane, "block": number, "kind": kind, "index": index, **result})

        def place(topic: RecordKind, kind: str, judged: list[Judged]) -> None:
            for index, (body, _) in enumerate(judged):
                records.append((topic, {"lane": self.settings.lane, "block": number, "index": index, **body}))
            expect(kind, [result for _, result in judged])

        expect("inclusion", results[: len(included)])
        expect("timeout", results[len(included) :])
        place("channel-requests", "request", requests)
        place("downward-messages", "downward", downward)
        place("candidates", "candidate", [(candidate, result) for candidate, result, _ in candidates])
        intended = {index: kinds for index, (_, _, kinds) in enumerate(candidates) if kinds}
        return SimulatedBlock(number, records, expected, dispatched, intended)

    def _hash(self, what: str) -> str:
        text = f"{self.settings.lane}, seed {self.settings.seed}, {what}"
        return blake2b(text.encode(), digest_size=32).hexdigest()

    def _availability(self, number: int) -> tuple[list[Json], list[Json]]:
        """Return the inclusions and timeouts, at times with an entry that was never pending or no longer is."""
        included: list[Json] = []
        timed_out: list[Json] = []
        if self.settings.enactment == "immediate":
            return included, timed_out
        for item in self.pending():
            named = item["backed_at"] if self.draws.percent(80) else None
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            age, chance = number - item["backed_at"], self.draws.randrange(100)
            if chance < 3 or age >= LOST_AFTER_BLOCKS:
                timed_out.append(entry)
            elif chance < 75:
                included.append(entry)
        if self.breaks():
            stranger = {"para_id": self.draws.choice(self.paras()), "backed_at": number + 7}
            if included and self.draws.percent(50):
                stranger = dict(self.draws.choice(included))  # the same one twice
            self.draws.choice((included, timed_out)).append(stranger)
        return included, timed_out
