# SPDX-License-Identifier: Apache-2.0
"""`validator audit`, on topics and checkpoints made in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, follower, invoke, lines
from tests.cli.stored_job import Job, refused
from tests.codecs import encoded
from tests.sending import send
from validator.ask import state
from validator.cli.audit import _shown
from validator.codec.json_form import encode_json, to_json
from validator.codec.schemas import schemas
from validator.core.types import BlockNumber
from validator.history.audit import Audit, Finding
from validator.lanes.configured import job_directory, lane_definition
from validator.lanes.kept_start import keep_start, start_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def audit(job: Job, *arguments: str) -> Any:
    return invoke("audit", f"--lane={LANE}", job.chain.option(), *arguments)


def answers(job: Job, *arguments: str) -> list[dict[str, Any]]:
    return lines(audit(job, "--json", *arguments).stdout)


def test_history_without_a_fault(job: Callable[..., Job]) -> None:
    followed = job(blocks=40)
    followed.follow(followed.chain.records)
    result = audit(followed)
    assert result.exit_code == 0, result.output
    assert f"{LANE} · 40 blocks up to block 40" in result.stdout
    assert "no fault" in result.stdout
    *_, summary = answers(followed, "--every=10")
    assert (summary["ok"], summary["faults"], summary["records"]) == (True, 0, len(followed.chain.records))
    checks = summary["checks"]
    assert {checks[name] for name in ("verdicts", "dispatches", "channel-events", "receipts")} == {40}
    assert checks["stored pages"] == 1
    assert checks["invariants"] < 20
    assert summary["skipped"] == {}


def test_notes_of_one_check_do_not_fill_the_table() -> None:
    notes = [
        Finding("unused channels", f"{at} -> {at + 1}", "nothing was sent over it", fault=False) for at in range(60)
    ]
    left = [Finding("orphans", str(at), "downward messages of no para", fault=False) for at in range(3)]
    faults = [Finding("verdicts", f"candidate {at}", "differs", block=BlockNumber(at)) for at in range(52)]
    result = Audit(LANE)
    for each in (*notes, *left, *faults):
        result.add(each)
    shown, left_out = _shown(result)
    assert shown == [*faults[:50], *notes[:5], *left]
    assert left_out == {"unused channels": 55, "verdicts": 2}


def test_forged_verdict_is_a_fault_with_both_sides(
    kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane's output is sent with one verdict that a second execution does not give."""
    followed = follower(tmp_path, kafka, "audit-forged.", blocks=12)
    forged = Job(followed)
    monkeypatch.setattr(state, "read_checkpoint", forged.read)
    send(
        followed.config.kafka,
        forged.prefix,
        [(kind, LANE.encode(), value) for kind, value in _encoded(followed.records)],
    )
    items = [forged.item(kind, record) for kind, record in followed.records]
    changed = 0
    for _, output in followed.worker.process(items):
        sent = []
        for topic, key, value, _ in output:
            if (
                topic == "verdicts"
                and (record := to_json(topic, value))["block"] == 7
                and record["index"] == 0
                and not changed
            ):
                changed = 1
                value = encode_json(schemas()["validator.Verdict"], {**record, "para_id": 4_242})  # noqa: PLW2901
            sent.append((topic, key, value))
        send(followed.config.kafka, forged.prefix, sent)
    assert changed
    result = audit(forged)
    assert result.exit_code == 1, result.output
    finding, summary = answers(forged)[0], answers(forged)[-1]
    assert (finding["check"], finding["block"], finding["fault"]) == ("verdicts", 7, True)
    assert "para_id 4242" in finding["detail"]
    assert (summary["ok"], summary["faults"]) == (False, 1)
    assert "1 fault" in result.stdout


@pytest.mark.parametrize(("block", "exit_code"), [(20, 0), (11, 1)])
def test_live_lane_may_wait_for_its_last_block_but_not_have_a_gap(
    job: Callable[..., Job], block: int, exit_code: int
) -> None:
    followed = job(blocks=20)
    records = followed.chain.records
    missing = next(at for at, (kind, each) in enumerate(records) if kind == "candidates" and each["block"] == block)
    followed.follow([each for at, each in enumerate(records) if at != missing])
    result = audit(followed)
    assert result.exit_code == exit_code, result.output
    assert f"{block - 1} blocks up to block {block - 1}" in result.stdout
    *findings, summary = answers(followed)
    stops = [each["detail"] for each in findings if each["check"] == "history"]
    assert stops == ([summary["stopped"]] if exit_code else [])
    assert summary["unused"] > 0
    if exit_code:
        assert summary["stopped"].startswith("stopped after block 10: waiting for 1 of ")


def test_other_limits_than_the_job_s_are_named_first(job: Callable[..., Job]) -> None:
    followed = job(blocks=12)
    followed.follow(followed.chain.records)
    config = followed.chain.config
    keep_start(job_directory(config) / "lanes", LANE, start_of(config, lane_definition(config, LANE)))
    limit = "hrmp_max_message_num_per_candidate"
    lines_of = followed.chain.config_path.read_text(encoding="utf-8").splitlines()
    changed = "\n".join(f"{limit} = 1" if line.startswith(limit) else line for line in lines_of)
    followed.chain.config_path.write_text(changed, encoding="utf-8")
    result = audit(followed)
    assert result.exit_code == 1, result.output
    first = result.stdout.splitlines()[1]
    assert first.startswith("  the records were made with another runtime (digest ")
    assert f"the job began with other keys: host_configuration.{limit} was " in first
    assert first.endswith(", is 1")
    (verdicts,) = [line for line in result.stdout.splitlines() if line.startswith("verdicts  ") and "emitted" in line]
    assert "OutboundHrmp/MoreMessagesThanPermitted" in verdicts
    pages = [line for line in result.stdout.splitlines() if line.startswith("stored pages  ")]
    assert len(pages) <= 2, "one line for all paras about which the same is said"
    assert answers(followed)[0]["check"] == "configuration"


def test_two_deployments_are_compared_to_the_first_difference(kafka: dict[str, object], tmp_path: Path) -> None:
    one = follower(tmp_path / _made(tmp_path, "one"), kafka, "audit-one.", blocks=30)
    text = one.config_path.read_text(encoding="utf-8")
    _made(tmp_path, "two")
    same = tmp_path / "two" / "same.toml"
    same.write_text(text.replace("audit-one.", "audit-two."), encoding="utf-8")
    two = follower(tmp_path / "two", kafka, "audit-two.", blocks=30)
    one.judge(one.records)
    two.judge(one.records)
    equal = invoke("audit", f"--lane={LANE}", one.option(), f"--against={same}")
    assert equal.exit_code == 0, equal.output
    assert "30 receipts compared" in equal.stdout
    assert "all are equal, up to block 30" in equal.stdout

    _made(tmp_path, "three")
    three = follower(tmp_path / "three", kafka, "audit-three.", blocks=30)
    index = next(
        verdict["index"]
        for verdict in one.expected
        if verdict["block"] == 17 and verdict["kind"] == "candidate" and verdict["ok"]
    )
    place = 17, index
    three.judge(
        (
            kind,
            {**record, "hrmp_watermark": 900}
            if kind == "candidates" and (record["block"], record["index"]) == place
            else record,
        )
        for kind, record in one.records
    )
    limit = "hrmp_max_message_num_per_candidate"
    lines_of = three.config_path.read_text(encoding="utf-8").splitlines()
    changed = "\n".join(f"{limit} = 1" if line.startswith(limit) else line for line in lines_of)
    three.config_path.write_text(changed, encoding="utf-8")
    result = invoke("audit", f"--lane={LANE}", one.option(), f"--against={three.config_path}", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert (found["ok"], found["block"]) == (False, 17)
    receipt = {each["field"]: each for each in found["differences"] if each["topic"] == "receipts"}
    assert receipt["rejected"]["other"] == receipt["rejected"]["own"] + 1
    (verdict,) = [each for each in found["differences"] if each["topic"] == "verdicts" and each["field"] == "error"]
    assert verdict["place"] == f"candidate {index}"
    assert (verdict["own"], verdict["other"]["kind"]) == (None, "HrmpWatermark/AheadRelayParent")
    (setting,) = found["settings"]
    assert setting["field"].endswith(limit)
    assert setting["other"] == 1
    printed = invoke("audit", f"--lane={LANE}", one.option(), f"--against={three.config_path}").stdout
    assert "block 17 is the first that differs" in printed
    assert "HrmpWatermark/AheadRelayParent" in printed
    refused(
        invoke("audit", f"--lane={LANE}", one.option(), f"--against={one.config_path}"),
        "expected another deployment, found the same Kafka",
    )


def test_unknown_lane_is_refused(job: Callable[..., Job]) -> None:
    option = job(blocks=3).chain.option()
    for lane, hint in (("kusama", "configured are polkadot"), ("pol", "did you mean 'polkadot'?")):
        refused(invoke("audit", f"--lane={lane}", option), f"--lane: no chain {lane!r} is configured; {hint}")


def _made(folder: Path, name: str) -> str:
    (folder / name).mkdir(exist_ok=True)
    return name


def _encoded(records: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, bytes]]:
    return [(kind, encoded(kind, record)) for kind, record in records]
