# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain: its records block by block, and the verdicts that the naive model gives on them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from random import Random
from typing import Any

from validator.simulate.candidate_traffic import CHEAP_BYTES, CandidateTraffic, Upward
from validator.simulate.channel_traffic import ChannelTraffic, genesis_balance
from validator.simulate.model import NaiveRouter
from validator.simulate.payloads import DOWNWARD, draw_count, draw_size, payload
from validator.simulate.presets import BUDGET, PRESETS
from validator.simulate.settings import Record, SimulatedBlock, SimulationSettings
from validator.simulate.topology import recorded_channels, topology

Json = dict[str, Any]

LOST_AFTER_BLOCKS = 6  # a pending candidate that did not become available by then times out


class Simulation:
    """One simulated chain: `chain()` describes its lane, `blocks()` plays it, `router` is the model behind it."""

    def __init__(self, settings: SimulationSettings) -> None:
        self.settings = settings
        self.rng = rng = Random(settings.seed)  # noqa: S311 - reproducible traffic, no secret
        count = settings.paras
        if count is None:
            recorded = {para for pair in recorded_channels(settings.topology) for para in pair}
            count = max(len(recorded), settings.candidates_per_block * 11 // 10)
        paras, plan = topology(settings.topology, count, rng, settings.channels_per_para)
        self.config = dict(PRESETS[settings.preset])
        self.genesis_paras: list[Json] = []
        for para in sorted(paras):
            kind = "parathread" if para not in paras[:5] and rng.random() < 0.08 else "parachain"
            balance = (
                genesis_balance(settings, rng) if para not in paras[:5] else 100 * self.config["hrmp_sender_deposit"]
            )
            self.genesis_paras.append({"para_id": para, "kind": kind, "balance": balance})
        self.upward = Upward(rng, self.config[BUDGET], settings.messages_per_round)
        self.router = NaiveRouter(
            self.config,
            self.genesis_paras,
            ump_weights=self.upward.weights,
            ump_default_weight=self.upward.default_weight,
            ump_failing_messages=self.upward.failing,
            notifications=settings.notifications,
            enactment=settings.enactment,
            unlimited_balances=settings.unlimited_balances,
        )
        self.candidates = CandidateTraffic(settings, self.router, rng, self.upward)
        self.large_downward = False  # one has been refused
        self.channels = ChannelTraffic(settings, self.router, rng, paras, plan)

    def chain(self) -> Json:
        """Return the lane's configuration, whole: what a Router needs to come to the same verdicts."""
        return {
            "lane": self.settings.lane,
            "protocol": "router",
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "hrmp_notifications": self.settings.notifications,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": self.config,
            "genesis_paras": self.genesis_paras,
            "ump_weights": self.upward.weights,
            "ump_default_weight": self.upward.default_weight,
            "ump_failing_messages": self.upward.failing,
        }

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain; each block's records are made against the state that the records before them left."""
        self.candidates.new_session()
        for number in range(self.settings.first_block, self.settings.first_block + self.settings.blocks):
            yield self._block(number)

    def _block(self, number: int) -> SimulatedBlock:
        expected: list[Json] = []

        def expect(kind: str, results: list[Json]) -> None:
            for index, result in enumerate(results):
                expected.append({"lane": self.settings.lane, "block": number, "kind": kind, "index": index, **result})

        included, timed_out = self._availability(number)
        results = self.router.begin_block(number, included, timed_out)
        expect("inclusion", results[: len(included)])
        expect("timeout", results[len(included) :])

        requests, results = self._requests()
        expect("request", results)
        downward, results = self._downward()
        expect("downward", results)
        candidates, results, intended = self._candidates(number)
        expect("candidate", results)

        dispatched = self.router.dispatch_round()
        change = None
        if self.channels.session_ends():
            change = self.channels.session_change()
            self.router.session_change(change)
            self.candidates.new_session()

        record: Json = {
            "lane": self.settings.lane,
            "block": number,
            "parent_number": None,
            "block_hash": self._hash(f"block {number}"),
            "candidates": len(candidates),
            "requests": len(requests),
            "downward": len(downward),
            "included": included,
            "timed_out": timed_out,
            "session_change": change,
        }
        records: list[Record] = [("blocks", record)]
        records += [("channel-requests", self._numbered(number, *item)) for item in enumerate(requests)]
        records += [("downward-messages", self._numbered(number, *item)) for item in enumerate(downward)]
        records += [("candidates", self._numbered(number, *item)) for item in enumerate(candidates)]
        return SimulatedBlock(number, records, expected, dispatched, intended)

    def _numbered(self, block: int, index: int, body: Json) -> Json:
        return {"lane": self.settings.lane, "block": block, "index": index, **body}

    def _hash(self, what: str) -> str:
        text = f"{self.settings.lane}, seed {self.settings.seed}, {what}"
        return blake2b(text.encode(), digest_size=32).hexdigest()

    def _availability(self, number: int) -> tuple[list[Json], list[Json]]:
        """Return what became available or timed out, and at times something that was never pending."""
        included: list[Json] = []
        timed_out: list[Json] = []
        if self.settings.enactment == "immediate":
            return included, timed_out
        for item in self.router.pending:
            named = item["backed_at"] if self.rng.random() < 0.8 else None
            entry = {"para_id": item["candidate"]["para_id"], "backed_at": named}
            age, chance = number - item["backed_at"], self.rng.random()
            if chance < 0.03 or age >= LOST_AFTER_BLOCKS:
                timed_out.append(entry)
            elif chance < 0.75:
                included.append(entry)
        if self.rng.random() < self.settings.violation_share:
            stranger = {"para_id": self.rng.choice(sorted(self.router.kinds)), "backed_at": number + 7}
            if included and self.rng.random() < 0.5:
                stranger = dict(self.rng.choice(included))  # the same one twice
            (included if self.rng.random() < 0.5 else timed_out).append(stranger)
        return included, timed_out

    def _requests(self) -> tuple[list[Json], list[Json]]:
        requests, results = [], []
        for _ in range(self.channels.count()):
            request = self.channels.request()
            if request is None:
                continue
            result = self.router.request(request)
            self.channels.note(result)
            requests.append(request)
            results.append(result)
        return requests, results

    def _downward(self) -> tuple[list[Json], list[Json]]:
        limit = self.router.config["max_downward_message_size"]
        paras = sorted(self.router.kinds)
        messages, results = [], []
        for _ in range(draw_count(self.rng, self.settings.downward_per_100_blocks)):
            para = self.rng.choice(paras)
            size = draw_size(self.rng, DOWNWARD, limit)
            if self.rng.random() < self.settings.violation_share:
                # A large limit makes a large record: broken seldom, a message to an unknown para instead (accepted).
                if limit <= CHEAP_BYTES or not self.large_downward or self.rng.random() < 0.1:
                    size = limit + 1
                    self.large_downward = True
                else:
                    para = 60_000 + self.rng.randrange(10)
            message = {"para_id": para, "msg": payload(self.rng, size)}
            results.append(self.router.downward(message))
            messages.append(message)
        return messages, results

    def _candidates(self, number: int) -> tuple[list[Json], list[Json], dict[int, tuple[str, ...]]]:
        candidates: list[Json] = []
        results: list[Json] = []
        intended: dict[int, tuple[str, ...]] = {}
        for para in self.candidates.producers():
            candidate, broken = self.candidates.candidate(para)
            if candidate is None:
                continue
            index = len(candidates)
            candidate["candidate_hash"] = self._hash(f"candidate {number}/{index}")
            if broken:
                intended[index] = broken
            result = self.router.candidate(candidate)
            self.candidates.note(result)
            candidates.append(candidate)
            results.append(result)
        return candidates, results, intended


def simulate(settings: SimulationSettings) -> Iterator[SimulatedBlock]:
    """Yield the blocks of a simulated chain; `Simulation` also tells its lane's configuration."""
    return Simulation(settings).blocks()
