# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a parked lane, and the order that lets it continue, through a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.distributions import files_of, on_path, packed
from tests.sending import send
from tests.unit.lanes.chains import Record, record
from validator.cli.lanes import app
from validator.codec.inflight import Arrival
from validator.codec.orders import InputSpan, LaneOrder, decode_order
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.inputs import RecordKind, Source
from validator.errors import UserError
from validator.history.engine import InputPartition
from validator.job import orders as parked_service
from validator.job.orders import why_lanes_wait
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.lanes.configured import chain_runtime, configured_codec
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, Parked, Span, running
from validator.plugin.pack import pack

PREFIX = "parked-cli."
LANE = "alpha"
HANDLER = """
def ends(context, payload):
    raise SystemExit(0)

KINDS = [(b"*", "ends", ends)]
"""


def _candidate(block: int) -> Record:
    body = {"lane": LANE, "block": block, "index": 0, "para_id": 2000, "hrmp_watermark": block - 1}
    return record(
        "candidates", {**body, "upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": []}
    )


def _ran(config: Path, *arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [*arguments, f"--config={config}"])
    refused = ended.exception if isinstance(ended.exception, UserError) else ""
    return ended.exit_code, f"{ended.output}{refused}"


def test_lane_that_is_parked_again_is_named_once(
    kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume(*given: Any, **_: Any) -> dict[str, Any]:
        shown = {"state": "parked", "reason": f"lane {LANE}: it hung", "held": []}
        given[-1](shown)
        return shown

    config = tmp_path / "validator.toml"
    config.write_text(to_toml({"kafka": kafka, "topics": {"prefix": PREFIX}}), encoding="utf-8")
    monkeypatch.setattr(parked_service, "resume", resume)
    assert _ran(config, "resume", "--lane", LANE) == (1, f"lane {LANE} is parked again: it hung\n")


def test_parked_lane_is_shown_and_ordered_to_continue(kafka: dict[str, Any], tmp_path: Path) -> None:
    create_topics(kafka, prefix=PREFIX)
    config = tmp_path / "validator.toml"
    chain = 'host_configuration = {preset = "polkadot-2023"}\ngenesis_paras = [{para_id = 2000}]\n'
    table = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in kafka.items())
    config.write_text(
        f'[kafka]\n{table}\n[topics]\nprefix = "{PREFIX}"\n'
        f'[job]\ndirectory = "{tmp_path / "job"}"\n[chains.{LANE}]\n{chain}',
        encoding="utf-8",
    )
    assert _ran(config, "--parked")[0] == 0
    code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0")
    assert code
    assert said == f"lane {LANE} is not parked"

    parked = Parked(Fault.HANDLER, f"lane {LANE}: it hung", 7, {(f"{PREFIX}candidates", 0): Span(1, 4)})
    candidates = [("candidates", LANE.encode(), _candidate(block).value) for block in (3, 8)]
    marker = Marker(7).encode(LANE)
    told = [*parked.record(LANE).records, marker]
    send(kafka, PREFIX, [*candidates, *((each.topic, each.key, each.value) for each in told)])
    code, said = _ran(config, "--parked")
    assert code == 1
    assert "PARKED since block 7 (handler): it hung" in said
    assert f"{PREFIX}candidates[0] from 1" in said
    assert f"validator lanes resume --lane {LANE}" in said
    elsewhere = tmp_path / "without.toml"
    elsewhere.write_text(
        config.read_text(encoding="utf-8").replace(f"[chains.{LANE}]", "[chains.other]"), encoding="utf-8"
    )
    code, said = _ran(elsewhere, "--parked")
    assert code == 0, "a lane that is not configured any more is no alarm"
    assert "PARKED" in said
    assert "nothing, as the lane is not configured any more" in said
    code, said = _ran(config, "--json", "--parked")
    shown = json.loads(said)["parked"]
    assert (code, shown["state"], shown["fault"], shown["since_block"], shown["lost"]) == (
        1,
        "parked",
        "handler",
        7,
        [],
    )

    for skip, wrong in (
        ("candidates:0", "expected TOPIC:PARTITION:OFFSET"),
        ("verdicts:0:1", "expected one of the topics"),
        ("candidates:0:99", "Kafka has no record there"),
        ("candidates:0:0", "it belongs to block 3, and the output up to block 7 is committed"),
    ):
        code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--skip", skip)
        assert code
        assert wrong in said
    code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--skip", "candidates:0:1")
    assert (code, said) == (0, f"lane {LANE}: the order to continue is written\n")
    code, said = _ran(config, "--parked")
    assert code == 1, "it is parked until the job takes the order"
    assert "an order to resume is written; the job takes it with its next batch" in said
    assert "validator lanes resume" not in said
    assert json.loads(_ran(config, "--json")[1])["parked"]["ordered"] is True
    words = why_lanes_wait(load_config(config), LANE).words
    assert words.endswith("it hung; an order to resume is written; the job takes it with its next batch")
    told_again = parked.record(LANE).records  # as the lane does that takes the order
    send(kafka, PREFIX, [(each.topic, each.key, each.value) for each in told_again])
    assert "validator lanes resume" in _ran(config)[1]
    assert json.loads(_ran(config, "--json")[1])["parked"]["ordered"] is False
    with TopicReader(kafka, PREFIX, ["blocks"]) as reader:
        (written,) = reader.read_to_end()
    source = Source(f"{PREFIX}blocks", written.partition, written.offset)
    order: Arrival | None = decode_order(written.value, source)
    assert order == LaneOrder(LANE, frozenset({Source(f"{PREFIX}candidates", 0, 1)}), source)

    code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--json")
    assert (code, json.loads(said)) == (0, {"lane": LANE, "state": "ordered"})

    code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--rebuild")
    assert code
    assert f"lane {LANE}: --rebuild is for the machine with the job's checkpoint" in said
    _keep_checkpoint(tmp_path / "job" / "checkpoint", {f"{PREFIX}candidates": {"0": 2, "7": 4}})
    code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--rebuild")
    assert (code, said) == (0, f"lane {LANE}: the order to continue is written\n")
    with TopicReader(kafka, PREFIX, ["blocks"]) as reader:
        *_, written = reader.read_to_end()
    order = decode_order(written.value, source)
    assert isinstance(order, LaneOrder)
    assert (order.inputs, order.checkpoint) == ((InputSpan(f"{PREFIX}candidates", 0, 0, 2),), "an-id")

    loaded = load_config(config)
    partition = InputPartition(kafka, (f"{PREFIX}blocks", written.partition), written.offset + 1)
    try:
        checks = chain_runtime(loaded.chains[LANE], LANE).records
        inputs = list(partition.inputs(configured_codec(loaded), RecordKind.BLOCK, LANE, checks))
    finally:
        partition.close()
    assert (partition.offsets, inputs) == (written.offset + 1, []), (
        "`state verify` does not take orders for dead letters"
    )

    send(kafka, PREFIX, [(each.topic, each.key, each.value) for each in running(LANE).records])
    assert _ran(config, "--parked")[0] == 0


def _keep_checkpoint(checkpoint: Path, consumed: dict[str, Any]) -> None:
    """Write what Spark keeps of a query after its first batch."""
    for folder, text in (("offsets", f"v1\n{{}}\n{json.dumps(consumed)}"), ("commits", "v1\n{}")):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text(text, encoding="utf-8")
    (checkpoint / "metadata").write_text('{"id": "an-id"}', encoding="utf-8")


def test_a_record_is_skipped_although_the_chain_has_a_handler_of_an_artefact(
    kafka: dict[str, Any], tmp_path: Path
) -> None:
    prefix = "parked-artefact."
    create_topics(kafka, prefix=prefix)
    wheel = packed(tmp_path / "throwaway_exits-1.0.0-py3-none-any.whl", files_of("exits", "1.0.0", HANDLER))
    artefact = pack(str(wheel), tmp_path / "artefacts").path
    config = tmp_path / "validator.toml"
    table = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in kafka.items())
    config.write_text(
        f'[kafka]\n{table}\n[topics]\nprefix = "{prefix}"\n[job]\ndirectory = "{tmp_path / "job"}"\n'
        f'[plugins]\nartefacts = ["{artefact}"]\n'
        f'[chains.{LANE}]\nhost_configuration = {{preset = "polkadot-2023"}}\nhandlers = [{{name = "exits"}}]\n',
        encoding="utf-8",
    )
    parked = Parked(Fault.HANDLER, f"lane {LANE}: it hung", 0, {(f"{prefix}candidates", 0): Span(0, 1)})
    told = [(each.topic, each.key, each.value) for each in parked.record(LANE).records]
    send(kafka, prefix, [("candidates", LANE.encode(), _candidate(1).value), *told])
    with on_path():
        code, said = _ran(config, "resume", "--lane", LANE, "--wait", "0", "--skip", "candidates:0:0")
    assert (code, said) == (0, f"lane {LANE}: the order to continue is written\n")


pytestmark = pytest.mark.broker
