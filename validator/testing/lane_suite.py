# SPDX-License-Identifier: Apache-2.0
"""Runs steps of traces, or records in JSON form, the way a job does: configuration, Avro records, a lane, encoded outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby, pairwise
from typing import Any

from validator.codec.decode import decode_record
from validator.codec.encode import Encoder
from validator.codec.json_form import encode_input, to_json, without_clause
from validator.config import DEFAULT_PROTOCOL, Config
from validator.config.limits import find_limits
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.core.lane import Lane
from validator.core.rules import LaneRules
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.plugin.runtime import installed_protocol
from validator.testing.scenario_writer import STEP_ORDER
from validator.topics import INPUT_TOPICS

Json = dict[str, Any]

LANE = "chain"

_KINDS = {
    "requests": (RecordKind.REQUEST, "request"),
    "downward": (RecordKind.DOWNWARD, "downward"),
    "candidates": (RecordKind.CANDIDATE, "candidate"),
}
"""For each key of a step, the kind of its records and the kind of their verdicts."""

_ELSEWHERE = ("needs", "rules", "ump_weights", "ump_default_weight", "ump_failing_messages")


def blocks_of(scenario: Json) -> list[tuple[int, list[Json]]]:
    """Return the blocks of a scenario with their steps."""
    return [(block, list(steps)) for block, steps in groupby(scenario["steps"], key=lambda step: step["block"])]


def fits_into_blocks(scenario: Json) -> bool:
    """Return whether every block's steps keep their order when merged, and a chain from block 1 on can be set up for the scenario.

    It cannot for features, rules by height and weights of upward messages, which a chain has elsewhere.
    """
    if not scenario["steps"] or scenario["steps"][0]["block"] == 0 or any(scenario.get(key) for key in _ELSEWHERE):
        return False
    for _, steps in blocks_of(scenario):
        keys = [key for step in steps for key in STEP_ORDER if key in step]
        in_order = all(STEP_ORDER.index(earlier) <= STEP_ORDER.index(later) for earlier, later in pairwise(keys))
        if not in_order or keys.count("session_change") > 1:
            return False
    return True


class ChainPlayer:
    """A lane of a configured chain, which takes the chain's records in the JSON form of `validator submit`.

    Raises `UserError` if ``table``, the chain's table in `validator.toml`, is not valid.
    """

    def __init__(self, lane: str, table: Json) -> None:
        self._definition = lane_definition(Config.model_validate({"chains": {lane: table}}), lane)
        self._protocol: str = table["protocol"]
        self._lanes = {lane: self._definition.records}
        self._processor = LaneProcessor.create(self._definition)

    @property
    def rules(self) -> LaneRules[Any]:
        """The lane's rules, with their state."""
        return self._processor.lane.rules

    def play(self, records: Iterable[tuple[str, Json]]) -> dict[str, list[Json]]:
        """Give the lane records, each with its topic, and return verdicts and dispatches by topic; no record may be a dead letter."""
        codec, inputs = self._definition.codec, []
        for offset, (topic, record) in enumerate(records):
            kind = INPUT_TOPICS[topic]
            value = encode_input(codec, kind, record, self._protocol)
            decoded = decode_record(codec, kind, value, Source(topic, 0, offset), None, self._lanes)
            assert not isinstance(decoded, DeadLetter), decoded.detail
            inputs.append(decoded[1])
        found: dict[str, list[Json]] = {"verdicts": [], "dispatches": []}
        for each in (each for batch in self._processor.process(inputs) for each in batch.records):
            assert each.topic != "dead-letters"
            if each.topic in found:
                found[each.topic].append(to_json(each.topic, each.value))
        return found


class SuitePlayer:
    """A lane for the chain that a scenario begins with; ``as_record`` turns an entry of a step into the JSON form of its record.

    Raises `UserError` if the scenario's configuration, updated with ``changed``, is not valid.
    """

    def __init__(self, scenario: Json, as_record: Callable[[Json], Json] = dict, **changed: Any) -> None:
        name = scenario.get("protocol", DEFAULT_PROTOCOL)
        protocol = installed_protocol(name)
        assert protocol is not None, f"protocol {name} is not installed"
        chain = {
            "protocol": name,
            "first_block": scenario["steps"][0]["block"],
            find_limits(name).key: scenario.get("config", {}),
            "genesis_paras": scenario.get("genesis_paras", []),
        }
        self.definition: LaneDefinition = lane_definition(
            Config.model_validate({"chains": {LANE: chain | changed}}), LANE
        )
        self.lane: Lane = self.definition.create()
        self._protocol = name
        self._limits = "new_config" if protocol.typed_limits else "limits"
        self._view = protocol.traces.view
        self._scenario = scenario
        self._as_record = as_record
        self._encoder = Encoder(LANE, self.definition.runtime_digest)
        self._parent = self.definition.first_block - 1

    def records(self, block: int, steps: Iterable[Json]) -> list[tuple[RecordKind, bytes]]:
        """Return a block's records, the block record first. Raises `UserError` if an entry is not valid for the protocol."""
        taken = list(steps)
        made: list[tuple[RecordKind, bytes]] = []
        body: Json = {"parent_number": self._parent}
        for key, (kind, _) in _KINDS.items():
            items = [item for step in taken for item in step.get(key, ())]
            body[key] = len(items)
            made += [(kind, self._encoded(kind, block, self._as_record(item), at)) for at, item in enumerate(items)]
        for change in (step["session_change"] for step in taken if "session_change" in step):
            body["session_change"] = {
                "outgoing": change.get("outgoing", []),
                "onboarding": [{"kind": "parachain"} | para for para in change.get("onboarding", ())],
                self._limits: change.get("new_config", {}),
            }
        return [(RecordKind.BLOCK, self._encoded(RecordKind.BLOCK, block, body)), *made]

    def execute(self, block: int, steps: Iterable[Json]) -> list[tuple[str, Json]]:
        """Give the lane a block's records, the block record last, and return the lane's output records with their topics."""
        for offset, (kind, value) in enumerate(reversed(self.records(block, steps))):
            decoded = self.decoded(kind, value, offset)
            assert not isinstance(decoded, DeadLetter), decoded.detail
            assert self.lane.add(decoded[1]) == []
        ((executed, _),) = self.lane.execute_ready()
        self._parent = block
        return [(each.topic, to_json(each.topic, each.value)) for each in self._encoder.executed(executed)]

    def decoded(self, kind: RecordKind, value: bytes, offset: int = 0) -> Any:
        """Return a decoded record: an input with its lane's name, or a `DeadLetter`."""
        return decode_record(
            self.definition.codec, kind, value, Source("topic", 0, offset), None, {LANE: self.definition.records}
        )

    def restart(self) -> None:
        """Save the lane and continue with the restored one, which must be equal."""
        before, snapshot = self.lane, self.lane.snapshot()
        self.lane = self.definition.restore(snapshot)
        assert self.lane.snapshot() == snapshot
        assert self._view(self.lane.rules.state) == self._view(before.rules.state)
        assert self.lane.rules.state_root() == before.rules.state_root()

    def play(self) -> None:
        """Execute the scenario, with a restart after every block, and check the results of requests, messages and candidates."""
        for block, steps in blocks_of(self._scenario):
            verdicts = [record for topic, record in self.execute(block, steps) if topic == "verdicts"]
            for key, (_, kind) in _KINDS.items():
                expected = [result for step in steps for result in step.get("expect", {}).get(key, ())]
                results = [result_of(verdict) for verdict in verdicts if verdict["kind"] == kind]
                assert results == expected, f"{self._scenario['id']}, block {block}, {key}"
            self.restart()

    def _encoded(self, kind: RecordKind, block: int, body: Json, index: int | None = None) -> bytes:
        place = {"lane": LANE, "block": block} | ({} if index is None else {"index": index})
        return encode_input(self.definition.codec, kind, place | body, self._protocol)


def result_of(verdict: Json) -> Json:
    """Return the outcome of a verdict in JSON as conformance traces and models have it, without the error's clause."""
    return {key: value for key, value in without_clause(verdict).items() if key in ("ok", "error")}
