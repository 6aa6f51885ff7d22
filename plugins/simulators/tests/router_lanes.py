# SPDX-License-Identifier: Apache-2.0
"""Plays simulated chains through lanes, and compares what comes out with what the model expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from validator_simulators import SimulatedBlock
from validator_simulators.installed import chain_table
from validator_simulators.router.traffic import RouterSimulation

from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input, to_json
from validator.config import Config
from validator.core.errors import Violation
from validator.core.inputs import DeadLetter, Source
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.protocols.router.view import view
from validator.topics import INPUT_TOPICS

COMPARED = ("lane", "block", "kind", "index", "ok", "error")

Json = dict[str, Any]


def records(block: SimulatedBlock, kind: str) -> list[Json]:
    return [record for found, record in block.records if found == kind]


def request_of(record: Json) -> Json:
    return {**record, "index": record["message_index"]} if "message_index" in record else record


def refusals(blocks: Iterable[SimulatedBlock]) -> Counter[str]:
    return Counter(str(v["error"]["kind"]) for block in blocks for v in block.expected if not v["ok"])


@cache
def violations() -> dict[str, type[Violation]]:
    found: dict[str, type[Violation]] = {}
    open_ends: list[type[Violation]] = [Violation]
    while open_ends:
        children = open_ends.pop().__subclasses__()
        modules = ("validator.protocols.router.", "validator.protocols.kit.")
        found |= {child.kind: child for child in children if child.kind and child.__module__.startswith(modules)}
        open_ends += children
    return found


def as_the_model_says(verdict: Json) -> Json:
    """Return what a verdict and the model have in common: fields of an error that the rules leave open are not among it."""
    common = {name: verdict[name] for name in COMPARED if name in verdict}
    if not verdict["ok"] and not violations()[verdict["error"]["kind"]].normative:
        common["error"] = {"kind": verdict["error"]["kind"]}
    return common


def definition_of(simulation: RouterSimulation) -> LaneDefinition:
    chain = simulation.chain()
    tables = {"chains": {chain["lane"]: chain_table(chain)}}
    return lane_definition(Config.model_validate(tables), chain["lane"])


def outputs_of(processor: LaneProcessor, definition: LaneDefinition, block: SimulatedBlock) -> dict[str, list[Json]]:
    inputs = []
    for offset, (topic, record) in enumerate(block.records):
        kind = INPUT_TOPICS[topic]
        value = encode_input(definition.codec, kind, record, "router")
        lanes = {record["lane"]: definition.records}
        decoded = decode_record(definition.codec, kind, value, Source(topic, 0, offset), None, lanes)
        assert not isinstance(decoded, DeadLetter), decoded.detail
        inputs.append(decoded[1])
    outputs: dict[str, list[Json]] = {"verdicts": [], "dispatches": []}
    for batch in processor.process(inputs):
        for each in batch.records:
            if each.topic in outputs:
                outputs[each.topic].append(to_json(each.topic, each.value))
    return outputs


def assert_lane_agrees(simulation: RouterSimulation) -> Counter[str]:
    """Compare every verdict, every dispatch and the state at the end; return how often each error occurred."""
    definition = definition_of(simulation)
    processor = LaneProcessor.create(definition)
    met: Counter[str] = Counter()
    for block in simulation.blocks():
        outputs = outputs_of(processor, definition, block)
        assert list(map(as_the_model_says, outputs["verdicts"])) == block.expected
        assert [[each["para_id"], each["payload"]] for each in outputs["dispatches"]] == block.dispatched
        met += refusals([block])
    state: Any = processor.lane.rules.state
    assert view(state) == simulation.router.state()
    return met
