# SPDX-License-Identifier: Apache-2.0
"""`validator what-if`, against lanes that are executed one after the other and compared by their encoded verdicts."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import LANE, follower, invoke, lines
from tests.cli.stored_job import refused
from tests.codecs import encoded
from tests.sending import send
from tests.unit.lanes.chains import inputs_of, record
from validator.codec.json_form import to_json
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.inputs import Input
from validator.errors import UserError
from validator.history.what_if import read_sweep
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from pathlib import Path

BLOCKS = 60
LIMIT = "hrmp_max_message_num_per_candidate"
LIMITED = "OutboundHrmp/MoreMessagesThanPermitted"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a simulated chain's records and its configuration."""
    out = tmp_path_factory.mktemp("what-if") / "chain"
    result = invoke("simulate", f"--blocks={BLOCKS}", "--seed=5", "--lane=polkadot", f"--out={out}")
    assert result.exit_code == 0, result.output
    text = (out / "validator.toml").read_text(encoding="utf-8")
    (out / "validator.toml").write_text(text + to_toml({"job": {"directory": str(out / "job")}}), encoding="utf-8")
    return out


def ask(folder: Path, *arguments: str) -> Any:
    own, records = f"--own={folder / 'validator.toml'}", f"--records={folder}"
    return invoke("what-if", f"--lane={LANE}", own, records, *arguments)


def answers(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    result = ask(folder, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return lines(result.stdout)


def with_limit(folder: Path, limit: str, value: int) -> Path:
    """Write the chain's configuration with another limit."""
    other = folder / f"{limit}-{value}.toml"
    table = load_config(folder / "validator.toml").chains[LANE].model_dump(mode="json", exclude_none=True)
    table["host_configuration"][limit] = value
    job = {"directory": str(folder / "elsewhere")}
    other.write_text(to_toml({"job": job, "chains": {LANE: table}}), encoding="utf-8")
    return other


def verdicts(folder: Path, config: Path) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Execute the records alone, and return the verdicts by place."""
    definition = lane_definition(load_config(config), LANE)
    processor = LaneProcessor.create(definition)
    kinds = ("blocks", "channel-requests", "downward-messages", "candidates")
    records = [
        record(kind, each) for kind in kinds for each in lines((folder / f"{kind}.jsonl").read_text(encoding="utf-8"))
    ]
    found = {}
    for _, output in processor.process(inputs_of(records)):
        for each in output:
            if each.topic == "verdicts":
                verdict = to_json("verdicts", each.value)
                found[verdict["block"], verdict["kind"], verdict["index"]] = verdict
    return found


def change(own: dict[str, Any], other: dict[str, Any]) -> str | None:
    if own["ok"] != other["ok"]:
        return "newly_rejected" if own["ok"] else "newly_accepted"
    same = {name: value for name, value in own.items() if name != "runtime_digest"} == {
        name: value for name, value in other.items() if name != "runtime_digest"
    }
    return None if same else "other_effect" if own["ok"] else "other_error"


def test_same_configuration_changes_nothing(folder: Path) -> None:
    (summary,) = answers(folder, f"--config={folder / 'validator.toml'}")
    assert set(summary["changes"].values()) == {0}
    assert (summary["kinds"], summary["paras"], summary["differing_blocks"]) == ([], [], {})
    assert (summary["first_block"], summary["last_block"], summary["blocks"]) == (1, BLOCKS, BLOCKS)
    assert summary["verdicts"] == len(verdicts(folder, folder / "validator.toml"))
    assert summary["levels"]["own"] == summary["levels"]["other"]
    assert len(summary["levels"]["own"]) == BLOCKS


def test_samples_count_the_messages_that_wait(folder: Path) -> None:
    (summary,) = answers(folder, f"--sweep={LIMIT}=1", "--limit=0")
    lane = lane_definition(load_config(folder / "validator.toml"), LANE).create()
    for kind in ("blocks", "channel-requests", "downward-messages", "candidates"):
        sent = lines((folder / f"{kind}.jsonl").read_text("utf-8"))
        for each in inputs_of(record(kind, datum) for datum in sent):
            assert isinstance(each, Input)
            lane.add(each)
    expected = []
    for executed, _ in lane.execute_ready():
        state = lane.rules.state
        waiting = (
            sum(len(queue) for para, queue in state.downward_message_queues.items() if para in state.paras),
            sum(map(len, state.relay_dispatch_queues.values())),
            sum(map(len, state.hrmp_channel_contents.values())),
        )
        expected.append((executed.receipt.block, *waiting))
    names = ("block", "downward_pending", "upward_pending", "channel_pending")
    assert [tuple(each[name] for name in names) for each in summary["levels"]["own"]] == expected
    assert all(max(column) > 0 for column in list(zip(*expected, strict=True))), "nothing ever waits"
    assert summary["levels"]["other"] != summary["levels"]["own"]


def test_differences_are_those_of_two_separate_executions(folder: Path) -> None:
    other = with_limit(folder, LIMIT, 1)
    own_verdicts, other_verdicts = verdicts(folder, folder / "validator.toml"), verdicts(folder, other)
    expected = {
        place: found
        for place, verdict in own_verdicts.items()
        if (found := change(verdict, other_verdicts[place])) is not None
    }
    assert len(set(expected.values())) > 1, "a limit that changes little proves little"
    *differences, summary = answers(folder, f"--config={other}", "--limit=10000")
    assert {(each["block"], each["kind"], each["index"]): each["change"] for each in differences} == expected
    assert summary["changes"] == {
        name: Counter(expected.values())[name]
        for name in ("newly_rejected", "newly_accepted", "other_error", "other_effect")
    }
    assert summary["differing_blocks"] == {
        str(block): n for block, n in sorted(Counter(block for block, _, _ in expected).items())
    }
    by_para = Counter((own_verdicts[place]["para_id"], found) for place, found in expected.items())
    assert {(each["para_id"], each["change"]): each["number"] for each in summary["paras"]} == by_para
    for each in differences[:20]:
        place = each["block"], each["kind"], each["index"]
        assert each["own"].get("error", {}).get("kind") == own_verdicts[place].get("error", {}).get("kind")
        assert each["other"].get("error", {}).get("kind") == other_verdicts[place].get("error", {}).get("kind")

    printed = ask(folder, f"--config={other}", "--limit=3").stdout
    assert f"{sum(Counter(expected.values()).values()):,} of {summary['verdicts']:,} verdicts differ" in printed
    assert "newly rejected" in printed
    assert "least places left of a channel" in printed
    assert f"and {len(expected) - 3:,} more" in printed


def test_sweep_compares_each_value_with_the_own_configuration(folder: Path) -> None:
    swept = answers(folder, f"--sweep={LIMIT}=1,2,10", "--limit=0")
    assert [each["configuration"] for each in swept] == [f"{LIMIT}={value}" for value in (1, 2, 10)]
    *_, alone = answers(folder, f"--config={with_limit(folder, LIMIT, 1)}", "--limit=0")
    assert {**swept[0], "configuration": ""} == {**alone, "configuration": ""}
    assert swept[0]["changes"]["newly_rejected"] > swept[1]["changes"]["newly_rejected"]
    printed = ask(folder, f"--sweep={LIMIT}=1,2,10").stdout.splitlines()
    assert [line.split()[0] for line in printed[-4:]] == ["own", *(each["configuration"] for each in swept)]


def test_other_configuration_applies_from_a_block(folder: Path) -> None:
    at = 31
    (summary,) = answers(folder, f"--sweep={LIMIT}=1", f"--from-block={at}", "--to-block=45", "--limit=0")
    assert (summary["first_block"], summary["last_block"], summary["blocks"]) == (at, 45, 15)
    assert summary["changes"]["newly_rejected"] > 0
    assert min(map(int, summary["differing_blocks"])) >= at
    recorded = verdicts(folder, folder / "validator.toml")
    for begin in (30, at):  # block 10 has raised limits, which hold on
        *differences, _ = answers(folder, f"--sweep={LIMIT}=1", f"--from-block={begin}", "--limit=10000")
        for each in differences:
            own = recorded[each["block"], each["kind"], each["index"]]
            assert (each["own"]["ok"], each["own"].get("error")) == (own["ok"], own.get("error"))
    (same,) = answers(folder, f"--config={folder / 'validator.toml'}", f"--from-block={at}", "--limit=0")
    assert set(same["changes"].values()) == {0}
    refused(ask(folder, f"--sweep={LIMIT}=1", "--from-block=900"), "--from-block: the inputs do not lead to block 900")
    refused(
        ask(folder, f"--sweep={LIMIT}=1", "--from-block=9", "--to-block=8"), "--to-block: expected a block from 9 on"
    )


def test_each_block_separates_causes_from_consequences(folder: Path) -> None:
    """A block under the other limit, on the lane's own state, is what a lane says that has the other limit from that block on."""
    (whole,) = answers(folder, f"--set={LIMIT}=1", "--limit=0")
    *causes, both = answers(folder, f"--set={LIMIT}=1", "--each-block", "--limit=10000")
    assert {name: value for name, value in both.items() if name != "causes"} == whole
    assert both["causes"]["changes"]["newly_rejected"] > 0
    assert sum(both["causes"]["changes"].values()) < sum(whole["changes"].values())
    assert {each["other"]["error"]["kind"] for each in causes if each["change"] == "newly_rejected"} == {
        "OutboundHrmp/MoreMessagesThanPermitted"
    }
    for block in (1, 17, 42):
        *alone, _ = answers(
            folder, f"--set={LIMIT}=1", f"--from-block={block + 1}", f"--to-block={block + 1}", "--limit=10000"
        )
        assert [each for each in causes if each["block"] == block + 1] == alone
    printed = ask(folder, f"--set={LIMIT}=1", "--each-block", "--limit=2").stdout
    assert f"{sum(both['causes']['changes'].values())} differ by the configuration itself" in " ".join(printed.split())


def test_rules_are_named_without_another_file(folder: Path, tmp_path: Path) -> None:
    (named,) = answers(folder, "--rules=router/2024-12", "--limit=0")
    table = load_config(folder / "validator.toml").chains[LANE].model_dump(mode="json", exclude_none=True)
    table["rules"] = [{"from_block": 1, "profile": "router/2024-12"}]
    other = tmp_path / "other.toml"
    other.write_text(to_toml({"chains": {LANE: table}}), encoding="utf-8")
    (of_file,) = answers(folder, f"--config={other}", "--limit=0")
    assert sum(named["changes"].values()) > 0
    assert named == {**of_file, "configuration": "rules router/2024-12"}


def test_plots_show_queues_and_headroom(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    result = ask(folder, f"--sweep={LIMIT}=1,2", f"--plots={tmp_path / 'plots'}")
    assert result.exit_code == 0, result.output
    drawn = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "plots").iterdir()}
    assert sorted(drawn) == ["what-if-channels.svg", "what-if-queues.svg", "what-if-upward.svg"]
    for text in drawn.values():
        assert f"{LIMIT}=1" in text
        assert "own" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            [],
            "expected --config OTHER.toml, --rules PROFILE, --set LIMIT=N or --sweep LIMIT=N,N,..., found none of them",
        ),
        (["--set=places"], "--set: expected LIMIT=NUMBER, found 'places'"),
        (["--set=places=1"], "chains.polkadot.host_configuration.places"),
        (["--rules=router/2099-01"], "router/2099-01"),
        (["--sweep=places"], "--sweep: expected LIMIT=NUMBER,NUMBER,..., found 'places'"),
        (["--sweep=places=1"], "chains.polkadot.host_configuration.places"),
        (["--sweep=hrmp_channel_max_places=-1"], "--sweep: expected LIMIT=NUMBER"),
        (["--config=missing.toml"], "missing.toml"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(folder: Path, arguments: list[str], words: str) -> None:
    refused(ask(folder, *arguments), words)


def test_another_protocol_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(to_toml({"chains": {LANE: {"protocol": "xcmp"}}}), encoding="utf-8")
    refused(
        ask(folder, f"--config={other}"),
        "chains.polkadot.protocol: expected router, which the records are of, found xcmp",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"lane": "polkadot", "block": 1, "candidate": 1}', "line 1: candidate: no such field"),
        (b'{"la', "line 1, column 2: not JSON"),
        (b'{"lane": "kusama", "blo', "line 1, column 20: not JSON"),
        (b"[]", "line 1: record: expected an object, found []"),
        (b"\xff", "line 1"),
        (b"{}", "line 1: lane"),
    ],
)
def test_bad_line_of_a_file_is_named(folder: Path, tmp_path: Path, line: bytes, words: str) -> None:
    (tmp_path / "blocks.jsonl").write_bytes(line + b"\n")
    result = invoke(
        "what-if", f"--lane={LANE}", f"--own={folder / 'validator.toml'}", f"--records={tmp_path}", f"--sweep={LIMIT}=1"
    )
    refused(result, f"blocks.jsonl, {words}")


def test_what_was_not_executed_is_said(folder: Path, tmp_path: Path) -> None:
    for name in ("blocks", "candidates", "channel-requests", "downward-messages"):
        text = (folder / f"{name}.jsonl").read_text()
        kept = [line for line in text.splitlines() if name != "candidates" or json.loads(line)["block"] != 9]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in kept))
    own = f"--own={folder / 'validator.toml'}"
    result = invoke("what-if", f"--lane={LANE}", own, f"--records={tmp_path}", f"--sweep={LIMIT}=1")
    assert result.exit_code == 1, result.output
    assert re.search(
        r"stopped after block 8: waiting for [0-9]+ of .* of block 9; .* records are unused", result.stderr
    )


@pytest.fixture(scope="module")
def changing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the records with a session change that sets the limit that tests change."""
    out = tmp_path_factory.mktemp("changing") / "chain"
    shutil.copytree(folder, out)
    records = lines((out / "blocks.jsonl").read_text("utf-8"))
    change = records[29]["session_change"] or {"outgoing": [], "onboarding": []}
    records[29]["session_change"] = {**change, "new_config": {LIMIT: 2}}
    (out / "blocks.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")
    return out


@pytest.mark.parametrize("is_set", [True, False])
def test_limit_and_session_change_are_the_same_in_both_ways(changing: Path, *, is_set: bool) -> None:
    """A limit that --set names holds; one of another file is set again as a lane under that file would do."""
    other = f"--set={LIMIT}=1" if is_set else f"--config={with_limit(changing, LIMIT, 1)}"
    *differences, summary = answers(changing, other, "--limit=10000")
    *causes, each_block = answers(changing, other, "--limit=10000", "--each-block")
    place = itemgetter("block", "kind", "index")
    assert causes
    assert set(map(place, causes)) <= set(map(place, differences))
    assert sum(each_block["causes"]["changes"].values()) == len(causes) < len(differences)
    assert {
        each["other"]["error"]["permitted"] for each in causes if each["block"] > 30 and LIMITED in str(each["other"])
    } == ({1} if is_set else set())
    assert summary["session_limits"] == [{"block": 30, "limit": LIMIT, "value": 2, "held": is_set}]
    words = (
        "the value asked for holds through the session change in block 30, which sets 2"
        if is_set
        else "reset to 2 by the session change in block 30"
    )
    assert f"  {LIMIT}: {words}\n" in ask(changing, other).stdout


def test_sweep_of_each_block(changing: Path) -> None:
    swept = answers(changing, f"--sweep={LIMIT}=1,2", "--each-block", "--limit=0")
    alone = answers(changing, f"--set={LIMIT}=1", "--each-block", "--limit=0")
    assert swept[0]["causes"] == alone[0]["causes"]
    printed = ask(changing, f"--sweep={LIMIT}=1,2", "--each-block").stdout
    caused = sum(swept[0]["causes"]["changes"].values())
    (row,) = [line.split() for line in printed.splitlines() if line.startswith(f"{LIMIT}=1 ")]
    assert row[1] == str(caused)
    assert "causes" in printed


def test_sweep_is_read() -> None:
    assert read_sweep("hrmp_channel_max_places=100,200") == ("hrmp_channel_max_places", (100, 200))
    with pytest.raises(UserError):
        read_sweep("=1")


def test_inputs_are_read_from_the_topics(
    folder: Path, kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follower(tmp_path, kafka, "what-if.", blocks=12)
    records = [(kind, LANE.encode(), encoded(kind, each)) for kind, each in followed.records]
    send(followed.config.kafka, followed.config.topics.prefix, records)
    monkeypatch.chdir(tmp_path)
    result = invoke("what-if", f"--lane={LANE}", f"--sweep={LIMIT}=1", "--json", "--limit=0")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["last_block"], summary["records"]) == (12, len(records))
    assert summary["verdicts"] == len(followed.expected)
    send(followed.config.kafka, followed.config.topics.prefix, [("candidates", LANE.encode(), b"no record")])
    exported = invoke("export", f"--lane={LANE}", f"--out={tmp_path / 'recorded'}")
    assert exported.exit_code == 0, exported.output
    assert exported.stderr == "left out, as they cannot be decoded: 1; see `validator dead-letters list`\n"
    for kind in ("blocks", "candidates", "channel-requests", "downward-messages"):
        lines = (tmp_path / "recorded" / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
        assert [(kind, encoded(kind, json.loads(line))) for line in lines] == [
            (topic, value) for topic, _, value in records if topic == kind
        ]
    again = invoke(
        "what-if", f"--lane={LANE}", f"--sweep={LIMIT}=1", "--json", "--limit=0", f"--records={tmp_path / 'recorded'}"
    )
    assert json.loads(again.stdout) == summary
    taken = invoke("export", f"--lane={LANE}", f"--out={tmp_path / 'recorded'}")
    assert (taken.exit_code, "exists already" in taken.stderr) == (2, True)
    part = invoke("export", f"--lane={LANE}", f"--out={tmp_path / 'part'}", "--from-block=3", "--to-block=5", "--json")
    assert json.loads(part.stdout)["blocks"] == 3
