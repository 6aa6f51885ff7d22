# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain under early HRMP: its records block by block, and the verdicts that the naive model gives on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator.plugin.api import SimulatedBlock, SimulationSettings
from validator_early_hrmp.simulation.candidates import CandidateTraffic
from validator_early_hrmp.simulation.draws import Draws
from validator_early_hrmp.simulation.hashing import blake2b_256
from validator_early_hrmp.simulation.model import OK, NaiveEarlyHrmp
from validator_early_hrmp.simulation.requests import RequestTraffic, request_record
from validator_early_hrmp.simulation.sessions import LIMITS, SessionTraffic

Json = dict[str, Any]

PARAS: Final = 12
"""Paras where the settings name no number, unless a block has more candidates."""
LOST_AFTER_BLOCKS: Final = 6
"""A pending candidate that did not become available by then times out."""
DOWNWARD_BYTES_MAX: Final = 120
WARM_UP_BLOCKS: Final = 40
"""Sessions are short up to here, so that channels are open soon."""
WARM_UP_SESSION_BLOCKS: Final = 10


class EarlyHrmpSimulation:
    """One simulated chain: `chain` describes it, `blocks` plays it, `model` is the model behind it."""

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self.draws = Draws(settings.seed)
        paras = settings.paras or max(PARAS, settings.candidates_per_block)
        self.sessions = SessionTraffic(self.draws, paras, settings.configuration_changes_per_100_sessions)
        self.model = NaiveEarlyHrmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            waits=settings.enactment == "on-inclusion",
        )
        self.requests = RequestTraffic(self.model, self.draws)
        self.candidates = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)

    def chain(self) -> Json:
        """Return the chain's configuration, whole: what the rules need to come to the same verdicts."""
        return {
            "lane": self.settings.lane,
            "protocol": "early-hrmp",
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": dict(LIMITS),
            "genesis_paras": self.sessions.genesis,
        }

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain; each block's records are made against the state that the records before them left."""
        for number in range(self.settings.first_block, self.settings.first_block + self.settings.blocks):
            yield self._block(number)

    def _block(self, number: int) -> SimulatedBlock:
        included, timed_out = self._availability(number)
        expected: list[Json] = []

        def expect(kind: str, results: list[Json]) -> None:
            for index, result in enumerate(results):
                expected.append({"lane": self.settings.lane, "block": number, "kind": kind, "index": index, **result})

        results = self.model.begin_block(number, included, timed_out)
        expect("inclusion", results[: len(included)])
        expect("timeout", results[len(included) :])
        requests, results = self._requests()
        expect("request", results)
        downward = self._downward()
        expect("downward", [OK] * len(downward))
        candidates, results, intended = self._candidates(number)
        expect("candidate", results)
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
            "session_change": self._session_change(number),
        }
        return SimulatedBlock(
            number,
            [
                ("blocks", block),
                *(("channel-requests", self._placed(number, *item)) for item in enumerate(requests)),
                *(("downward-messages", self._placed(number, *item)) for item in enumerate(downward)),
                *(("candidates", self._placed(number, *item)) for item in enumerate(candidates)),
            ],
            expected,
            intended=intended,
        )

    def _placed(self, block: int, index: int, body: Json) -> Json:
        return {"lane": self.settings.lane, "block": block, "index": index, **body}

    def _hash(self, what: str) -> str:
        return blake2b_256(f"{self.settings.lane}, seed {self.settings.seed}, {what}".encode()).hex()

    def _breaks(self) -> bool:
        """Return whether the next record sets out to break a rule."""
        return self.draws.random() < self.settings.violation_share

    def _availability(self, number: int) -> tuple[list[Json], list[Json]]:
        """Return what became available or timed out, and at times something that is not pending."""
        included: list[Json] = []
        timed_out: list[Json] = []
        if not self.model.waits:
            return included, timed_out
        for item in self.model.pending:
            named = item["backed_at"] if self.draws.percent(80) else None
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            if number - item["backed_at"] >= LOST_AFTER_BLOCKS or self.draws.percent(5):
                timed_out.append(entry)
            elif self.draws.percent(75):
                included.append(entry)
        if self._breaks():
            stranger = {"para_id": self.draws.choice(sorted(self.model.paras)), "backed_at": number + 7}
            if included and self.draws.percent(50):
                stranger = dict(self.draws.choice(included))  # the same one twice
            self.draws.choice((included, timed_out)).append(stranger)
        return included, timed_out

    def _requests(self) -> tuple[list[Json], list[Json]]:
        requests, results = [], []
        for _ in range(self.draws.count(self.settings.requests_per_100_blocks)):
            played = self.requests.play(breaks=self._breaks())
            if played is not None:
                requests.append(request_record(played[0]))
                results.append(played[1])
        return requests, results

    def _downward(self) -> list[Json]:
        """Return messages of the relay chain; nothing is asked of them, so that some go to who has left."""
        messages = []
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            gone = self.draws.one_of(self.sessions.gone) if self.draws.percent(2) else None
            para = self.draws.choice(sorted(self.model.paras)) if gone is None else gone
            message: Json = {"para_id": para, "msg": self.draws.hex(self.draws.randrange(DOWNWARD_BYTES_MAX))}
            self.model.downward(para, message["msg"])
            messages.append(message)
        return messages

    def _candidates(self, number: int) -> tuple[list[Json], list[Json], dict[int, tuple[str, ...]]]:
        candidates: list[Json] = []
        results: list[Json] = []
        intended: dict[int, tuple[str, ...]] = {}
        for para in self.candidates.producers(self.settings.candidates_per_block):
            played = self.candidates.play(para, breaks=self._breaks())
            if played is None:
                continue
            candidate, result, kinds = played
            if kinds:
                intended[len(candidates)] = kinds
            candidates.append({**candidate, "candidate_hash": self._hash(f"candidate {number}/{len(candidates)}")})
            results.append(result)
        return candidates, results, intended

    def _session_change(self, number: int) -> Json | None:
        played, length = number - self.settings.first_block + 1, self.settings.session_length_blocks
        if played % (min(length, WARM_UP_SESSION_BLOCKS) if played <= WARM_UP_BLOCKS else length):
            return None
        change = self.sessions.change(self.model)
        self.model.session_change(change)
        return {"outgoing": change["outgoing"], "onboarding": change["onboarding"], "limits": change["new_config"]}
