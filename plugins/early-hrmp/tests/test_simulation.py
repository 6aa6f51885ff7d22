# SPDX-License-Identifier: Apache-2.0
"""Simulated chains: deterministic, lively, breaking every rule, and judged by a lane as the naive model judges them."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from validator_early_hrmp import errors
from validator_early_hrmp.simulation.traffic import EarlyHrmpSimulation

from validator.cli.main import app
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input, to_json
from validator.codec.schemas import INPUT_TOPICS
from validator.config import Config
from validator.core.inputs import DeadLetter, Source
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.worker import LaneWorker
from validator.plugin.api import SimulatedBlock, SimulationSettings, Violation
from validator.service.simulation import chain_table, simulation_of

Json = dict[str, Any]

KINDS = {
    kind.kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, Violation) and kind is not Violation
}
PENDING_KINDS = {"Inclusion/CandidateNotPending", "Timeout/CandidateNotPending"}


def played(**settings: Any) -> list[SimulatedBlock]:
    return list(EarlyHrmpSimulation(SimulationSettings(**settings)).blocks())


def records_of(blocks: list[SimulatedBlock], wanted: str) -> list[Json]:
    return [record for block in blocks for kind, record in block.records if kind == wanted]


def refused(blocks: list[SimulatedBlock]) -> Counter[str]:
    return Counter(each["error"]["kind"] for block in blocks for each in block.expected if not each["ok"])


def definition_of(chain: Json) -> LaneDefinition:
    return lane_definition(Config.model_validate({"chains": {chain["lane"]: chain_table(chain)}}), chain["lane"])


def told_by(worker: LaneWorker, definition: LaneDefinition, block: SimulatedBlock) -> list[Json]:
    """Put a block's records into a lane, encoded, and return its verdicts."""
    inputs = []
    for offset, (topic, record) in enumerate(block.records):
        kind = INPUT_TOPICS[topic]
        value = encode_input(kind, record, "early-hrmp")
        source = Source(topic, 0, offset)
        decoded = decode_record(kind, value, source, None, {record["lane"]: definition.records})
        assert not isinstance(decoded, DeadLetter), decoded.detail
        inputs.append(decoded[1])
    told = [each for batch in worker.process(inputs) for each in batch.records]
    assert {each.topic for each in told}.isdisjoint({"dead-letters"})
    return [to_json("verdicts", each.value) for each in told if each.topic == "verdicts"]


def as_expected(verdict: Json) -> Json:
    return {key: verdict[key] for key in ("lane", "block", "kind", "index", "ok", "error") if key in verdict}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("enactment", ["immediate", "on-inclusion"])
def test_a_lane_gives_the_verdicts_that_the_model_expects(seed: int, enactment: Any) -> None:
    simulation = simulation_of("early-hrmp", SimulationSettings(seed=seed, blocks=300, enactment=enactment))
    definition = definition_of(simulation.chain())
    worker = LaneWorker.create(definition)
    blocks = []
    for block in simulation.blocks():
        assert list(map(as_expected, told_by(worker, definition, block))) == block.expected
        blocks.append(block)
    assert set(refused(blocks)) == (KINDS if enactment == "on-inclusion" else KINDS - PENDING_KINDS)


def test_the_same_settings_give_the_same_bytes() -> None:
    def lines(seed: int) -> list[str]:
        blocks = played(seed=seed, blocks=40, enactment="on-inclusion")
        return [json.dumps([block.records, block.expected]) for block in blocks]

    assert lines(5) == lines(5)
    assert lines(5) != lines(6)


def test_what_a_shorter_chain_has_a_longer_one_begins_with() -> None:
    assert played(seed=4, blocks=60)[:25] == played(seed=4, blocks=25)


@pytest.mark.parametrize("enactment", ["immediate", "on-inclusion"])
def test_a_well_behaved_chain_has_no_refusal(enactment: Any) -> None:
    blocks = played(seed=5, blocks=150, violation_share=0, enactment=enactment)
    assert refused(blocks) == Counter()
    assert len(records_of(blocks, "candidates")) > 500


def test_what_is_meant_to_be_refused_is_refused() -> None:
    blocks = played(seed=8, blocks=200, violation_share=0.4)
    pairs = 0
    for block in blocks:
        verdicts = {each["index"]: each for each in block.expected if each["kind"] == "candidate"}
        for index, kinds in block.intended.items():
            assert verdicts[index]["error"]["kind"] == kinds[0]
            pairs += len(kinds) == 2
    assert pairs > 20


def test_the_chain_lives() -> None:
    simulation = EarlyHrmpSimulation(SimulationSettings(seed=9, blocks=300))
    events: Counter[tuple[str, str | None]] = Counter()
    blocks = []
    for block in simulation.blocks():
        blocks.append(block)
        events.update((event[0], event[6]) for event in simulation.model.events)
    assert {
        ("requested", None),
        ("confirmed", None),
        ("opened", None),
        ("sealed", "requested"),
        ("closed", "requested"),
        ("closed", "drained"),
        ("closed", "offboarded"),
        ("request_expired", "expired"),
        ("request_dropped", "offboarded"),
    } <= set(events)
    changes = [change for block in records_of(blocks, "blocks") if (change := block["session_change"])]
    assert len(changes) == 30
    assert any(change["limits"] for change in changes)
    gone: set[int] = set()
    back = at_once = 0
    for change in changes:
        coming = {para["para_id"] for para in change["onboarding"]}
        at_once += bool(coming & set(change["outgoing"]))
        back += bool(coming & gone)
        gone |= set(change["outgoing"])
    assert back
    assert at_once
    kinds = Counter(request["kind"] for request in records_of(blocks, "channel-requests"))
    assert set(kinds) == {
        "init_open_channel",
        "accept_open_channel",
        "accept_open_channel_from",
        "close_channel",
    }
    assert len(records_of(blocks, "downward-messages")) > 200
    assert sum(len(each["hrmp_messages"]) for each in records_of(blocks, "candidates")) > 500


@pytest.mark.parametrize(
    "settings", [{"paras": 3, "candidates_per_block": 1}, {"candidates_per_block": 0}, {"blocks": 0}]
)
def test_small_chains_are_chains(settings: Json) -> None:
    blocks = played(**{"seed": 2, "blocks": 80, "first_block": 1000, "session_length_blocks": 1, **settings})
    assert [block.block for block in blocks] == list(range(1000, 1000 + settings.get("blocks", 80)))


def test_balances_may_be_unlimited() -> None:
    blocks = played(seed=3, blocks=200, unlimited_balances=True)
    assert "InsufficientBalance" not in refused(blocks)
    assert EarlyHrmpSimulation(SimulationSettings(unlimited_balances=True)).chain()["balances"] == "unlimited"


def test_the_command_writes_the_chain(tmp_path: Path) -> None:
    arguments = ["simulate", "--protocol", "early-hrmp", "--blocks", "20", "--lane", "rococo"]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert lines[0]["record"]["protocol"] == "early-hrmp"
    counts = Counter(line["kind"] for line in lines)
    assert counts["blocks"] == 20
    assert counts["expected-verdicts"] == sum(
        counts[kind] for kind in ("channel-requests", "downward-messages", "candidates")
    )
    written = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    assert written.exit_code == 0, written.output
    chain = json.loads((tmp_path / "chain.json").read_text(encoding="utf-8"))
    assert chain == lines[0]["record"]
    for kind in ("blocks", "channel-requests", "downward-messages", "candidates", "expected-verdicts"):
        text = (tmp_path / f"{kind}.jsonl").read_text(encoding="utf-8")
        assert [json.loads(line) for line in text.splitlines()] == [
            line["record"] for line in lines if line["kind"] == kind
        ]
