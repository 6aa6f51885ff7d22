# SPDX-License-Identifier: Apache-2.0
"""A simulated relay chain of any protocol, block by block: records in canonical order, their expected verdicts, sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from validator_simulators.kit import Draws, Json
from validator_simulators.settings import Record, RecordKind, SimulatedBlock, SimulationSettings

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


PARAS: Final = 12
"""Default number of paras, unless a block has more candidates."""
FIRST_PARA: Final = 2000
POOR_EVERY: Final = 5
"""One para in this many cannot pay a deposit."""
LEAVING_PERCENT: Final = 35
"""Percentage of session changes in which a para may leave."""
BACK_AT_ONCE_PERCENT: Final = 20
"""Percentage of leaving paras that the same session change onboards again."""
SPARE_PARAS: Final = 2
WARM_UP_BLOCKS: Final = 40
"""Sessions are short during the first blocks, so that channels open soon."""
WARM_UP_SESSION_BLOCKS: Final = 10


class SessionTraffic:
    """Moves paras in and out of a chain, and changes its limits: two of ``choices`` at a time, each to one of its values.

    ``genesis`` are the initial paras; ``gone`` are the ids of paras that have left.
    """

    def __init__(self, settings: SimulationSettings, draws: Draws, choices: Mapping[str, tuple[int, ...]]) -> None:
        self.settings = settings
        self.draws = draws
        self.choices = choices
        self.wanted = settings.paras or max(PARAS, settings.candidates_per_block)
        self.gone: list[int] = []
        self.next_para = FIRST_PARA
        self.genesis = [self._newcomer() for _ in range(self.wanted)]

    def end_after(self, block: int) -> bool:
        """Return whether a block is the last of its session."""
        played, length = block - self.settings.first_block + 1, self.settings.session_length_blocks
        return played % (min(length, WARM_UP_SESSION_BLOCKS) if played <= WARM_UP_BLOCKS else length) == 0

    def change(self, registered: Iterable[int]) -> Json:
        """Return the next session change, in the form of a block's record."""
        paras, draws = sorted(registered), self.draws
        outgoing: list[int] = []
        onboarding: list[Json] = []
        if len(paras) > max(3, self.wanted - SPARE_PARAS) and draws.percent(LEAVING_PERCENT):
            outgoing.append(draws.choice(paras))
        for para in outgoing:
            if draws.percent(BACK_AT_ONCE_PERCENT):
                onboarding.append(self._para(para))
            else:
                self.gone.append(para)
        if len(paras) - len(outgoing) < self.wanted and draws.percent(60):
            back = draws.one_of([para for para in self.gone if para not in outgoing])
            if back is not None and draws.percent(60):
                self.gone.remove(back)
                onboarding.append(self._para(back))
            else:
                onboarding.append(self._newcomer())
        limits: dict[str, int] = {}
        if draws.percent(self.settings.configuration_changes_per_100_sessions):
            for name in draws.sample(list(self.choices), 2):
                limits[name] = draws.choice(self.choices[name])
        return {"outgoing": outgoing, "onboarding": onboarding, "limits": limits}

    def _para(self, para: int) -> Json:
        balance = self.draws.randrange(40) if para % POOR_EVERY == 0 else self.draws.randint(300, 1200)
        return {"para_id": para, "kind": "parachain", "balance": balance}

    def _newcomer(self) -> Json:
        self.next_para += 1
        return self._para(self.next_para - 1)


DOWNWARD_BYTES_MAX: Final = 120
"""Limit on the payload of the relay chain's own downward messages."""
GONE_PERCENT: Final = 2
"""Percentage of these messages that go to a para that has left."""
SLEEPY_EVERY: Final = 4
"""One para in this many seldom has a candidate, so that messages to it pile up."""
SLEEPY_PERCENT: Final = 12
LIVELY_PERCENT: Final = 85


def is_sleepy(para: int) -> bool:
    """Return whether a para seldom has a candidate."""
    return para % SLEEPY_EVERY == 0


class Model(Protocol):
    """A naive model of a protocol; its methods are called in the order of a block's phases."""

    pending: list[Json]

    @property
    def paras(self) -> Collection[int]:
        """Return the registered paras."""

    def begin_block(self, block: int, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin a block and return a result for each inclusion, then for each timeout."""

    def downward(self, para: int, msg: str) -> Any:
        """Queue a downward message of the relay chain, which always succeeds."""

    def session_change(self, change: Json) -> None:
        """End the session: ``outgoing``, ``onboarding``, ``new_config``."""


class Requests(Protocol):
    """Makes channel requests."""

    def play(self, *, breaks: bool) -> Judged | None:
        """Return the next request and the model's result, or None if there is nothing to request."""


class Candidates(Protocol):
    """Makes candidates."""

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate, the model's result, and the error kinds that it is made to cause; None for no candidate."""


class ModelledChain(SimulatedChain):
    """A simulated chain made of a model and makers of requests and candidates, which a subclass sets in its constructor."""

    protocol: ClassVar[str]
    limits: ClassVar[Mapping[str, int]]
    """The limits that a chain starts with."""
    changes: ClassVar[Mapping[str, tuple[int, ...]]]
    """The values that session changes may set limits to."""
    model: Model
    channels: Requests
    traffic: Candidates

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.sessions = SessionTraffic(settings, self.draws, self.changes)

    def chain(self) -> Json:
        """Return the chain's complete configuration."""
        return {
            "lane": self.settings.lane,
            "protocol": self.protocol,
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": dict(self.limits),
            "genesis_paras": self.sessions.genesis,
        }

    def paras(self) -> list[int]:
        """Return the registered paras, ascending."""
        return sorted(self.model.paras)

    def pending(self) -> list[Json]:
        """Return the pending candidates."""
        return self.model.pending

    def begin_block(self, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin the block."""
        return self.model.begin_block(self.block, included, timed_out)

    def requests(self) -> Iterator[Judged]:
        """Make valid and invalid requests."""
        for _ in range(self.draws.count(self.settings.requests_per_100_blocks)):
            played = self.channels.play(breaks=self.breaks())
            if played is not None:
                yield played

    def downward(self) -> Iterator[Judged]:
        """Make downward messages of the relay chain, some of them to paras that have left."""
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            gone = self.draws.one_of(self.sessions.gone) if self.draws.percent(GONE_PERCENT) else None
            para = self.draws.choice(self.paras()) if gone is None else gone
            message = self.draws.hex(self.draws.randrange(DOWNWARD_BYTES_MAX))
            self.model.downward(para, message)
            yield {"para_id": para, "msg": message}, {"ok": True}

    def candidates(self) -> Iterator[tuple[Json, Json, tuple[str, ...]]]:
        """Make valid and invalid candidates."""
        for para in self.producers():
            played = self.traffic.play(para, breaks=self.breaks())
            if played is not None:
                yield played

    def producers(self) -> list[int]:
        """Return the paras that have a candidate in this block: each at most one, and none while another is pending."""
        busy = [item["candidate"]["para_id"] for item in self.pending()]
        awake = [
            para
            for para in self.paras()
            if para not in busy and self.draws.percent(SLEEPY_PERCENT if is_sleepy(para) else LIVELY_PERCENT)
        ]
        return self.draws.sample(awake, min(self.settings.candidates_per_block, len(awake)))

    def session_change(self) -> Json | None:
        """End the session if this is its last block."""
        if not self.sessions.end_after(self.block):
            return None
        change = self.sessions.change(self.model.paras)
        self.model.session_change({**change, "new_config": change["limits"]})
        return change
