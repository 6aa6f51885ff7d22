# SPDX-License-Identifier: Apache-2.0
"""`validator dry-run`, on state files and on a checkpoint made in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.cli.follower import LANE, invoke
from tests.cli.stored_job import KeptLane, refused
from tests.unit.lanes.chains import chain, inputs_of
from validator.config.toml import to_toml
from validator.core.rules import pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


BLOCKS = 40


class Lane(KeptLane):
    """A lane in a checkpoint, and what would come next."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, protocol: str) -> None:
        of = chain(SimulationSettings(seed=31, blocks=BLOCKS + 1, lane=LANE), protocol)
        taken = [each for each in of.records if each.block <= BLOCKS]
        super().__init__(folder, patch, of.table, inputs_of(taken, protocol))
        self.next = of.blocks[BLOCKS]

    def ask(self, record: Any, *arguments: str) -> Any:
        option = f"--config={self.config_path}"
        data = (record if isinstance(record, str) else json.dumps(record)).encode()
        return invoke("dry-run", "-", f"--lane={LANE}", option, *arguments, stdin=data)

    def answer(self, record: dict[str, Any], *arguments: str) -> dict[str, Any]:
        result = self.ask(record, "--json", *arguments)
        found: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (0 if found["ok"] else 1), result.output
        return found


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Lane]:
    return lambda protocol: Lane(tmp_path, monkeypatch, protocol)


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_verdict_of_the_first_candidate_of_the_next_block_is_foretold(
    protocol: str, lane: Callable[[str], Lane]
) -> None:
    asked = lane(protocol)
    records = [record for kind, record in asked.next.records if kind == "candidates"]
    first: dict[int, dict[str, Any]] = {}
    for record in records:
        first.setdefault(record["para_id"], record)
    expected = {verdict["index"]: verdict for verdict in asked.next.expected if verdict["kind"] == "candidate"}
    others = [kind for kind, _ in asked.next.records if kind not in ("candidates", "blocks")]
    compared = 0
    for record in first.values():
        found = asked.answer(record)
        verdict = expected[record["index"]]
        if others and found["ok"] != verdict["ok"]:
            continue  # a request or message of the same block came first
        assert found["ok"] == verdict["ok"], (record, found, verdict)
        if not found["ok"]:
            assert found["errors"][0]["kind"] == verdict["error"]["kind"]
        assert found["complete"]
        compared += 1
    assert compared > 0


def test_all_violations_are_listed_with_their_rules(lane: Callable[[str], Lane]) -> None:
    asked = lane("router")
    rules = asked.processor().lane.rules
    para = rules.state.hrmp_egress_channels_index and min(rules.state.hrmp_egress_channels_index)  # type: ignore[attr-defined]
    record = {
        "para_id": para,
        "hrmp_watermark": BLOCKS + 50,
        "processed_downward_messages": 4_000,
        "horizontal_messages": [{"recipient": 9, "data": "00"}, {"recipient": 8, "data": "00"}],
    }
    found = asked.answer(record)
    kinds = [error["kind"] for error in found["errors"]]
    assert kinds == [
        "ProcessedDownwardMessages/Underflow",
        "HrmpWatermark/AheadRelayParent",
        "OutboundHrmp/NoSuchChannel",
        "OutboundHrmp/NotSorted",
        "OutboundHrmp/NoSuchChannel",
    ]
    assert (found["executed_block"], found["block"]) == (BLOCKS, BLOCKS + 1)
    assert all(error["rule"].startswith("docs/rules/router.md#") for error in found["errors"])
    assert found["headroom_after"] is None
    assert found["headroom"][0]["para_id"] == para
    printed = asked.ask(record)
    assert printed.exit_code == 1
    assert "rejected: 5 violations, the lane names the first" in printed.stdout
    assert "OutboundHrmp/NotSorted  idx 1" in printed.stdout
    assert "The watermark may be at most the relay parent." in printed.stdout, "the sentence of the error's page"


def test_headroom_shrinks_by_what_an_accepted_candidate_sends(lane: Callable[[str], Lane]) -> None:
    asked = lane("router")
    processor = asked.processor()
    before = pages(processor.lane.rules)
    rules: Any = processor.lane.rules
    (sender, recipient), channel = next(
        (name, each)
        for name, each in sorted(rules.state.hrmp_channels.items())
        if each.used_places + 1 <= each.limit_used_places
        and each.used_bytes + 2 <= each.limit_used_bytes
        and not rules.state.downward_message_queues.get(name[0])
    )
    record = {
        "para_id": sender,
        "hrmp_watermark": BLOCKS,
        "upward_messages": ["0102"],
        "horizontal_messages": [{"recipient": recipient, "data": "0a0b"}],
    }
    found = asked.answer(record)
    assert found["ok"], found
    now, then = (
        {(each.get("sender"), each.get("recipient")): each for each in found[name]}
        for name in ("headroom", "headroom_after")
    )
    assert now[sender, recipient]["places_left"] == channel.limit_used_places - channel.used_places
    assert then[sender, recipient]["places_left"] == now[sender, recipient]["places_left"] - 1
    assert then[sender, recipient]["bytes_left"] == now[sender, recipient]["bytes_left"] - 2
    assert then[None, None]["upward_count_left"] == now[None, None]["upward_count_left"] - 1
    assert found["messages"][0]["sequence_number"] == channel.messages_sent + 1
    assert "accepted" in asked.ask(record).stdout
    assert pages(asked.processor().lane.rules) == before, "the checkpoint is as it was"


def test_state_file_is_asked_instead_of_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = {
        "host_configuration": {"preset": "polkadot-2023"},
        "genesis_paras": [{"para_id": 2000, "balance": 10**12}, {"para_id": 2004, "balance": 10**12}],
    }
    (tmp_path / "validator.toml").write_text(to_toml({"chains": {LANE: table}}), encoding="utf-8")
    (tmp_path / "STATE.json").write_text(json.dumps({"first_block": 8, "state": {"valid_paras": [2000, 2004]}}))
    candidate = tmp_path / "candidate.json"
    candidate.write_text(json.dumps({"para_id": 2000, "hrmp_watermark": 7}))
    result = invoke("dry-run", "candidate.json", f"--lane={LANE}", "--state=STATE.json", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["block"] == 8
    request = {"kind": "init_open_channel", "origin": 2000, "recipient": 2000, "max_places": 0, "max_message_size": 0}
    candidate.write_text(json.dumps(request))
    result = invoke(
        "dry-run", "candidate.json", f"--lane={LANE}", "--state=STATE.json", "--kind=channel-requests", "--json"
    )
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["ok"], answer["complete"]) == (1, False, True)
    assert [error["kind"] for error in answer["errors"]] == [
        "OpenHrmpChannelToSelf",
        "OpenHrmpChannelZeroCapacity",
        "OpenHrmpChannelZeroMessageSize",
        "InsufficientBalance",
    ]
    refused(invoke("dry-run", "candidate.json", "--lane=kusama", "--state=STATE.json"), "no chain 'kusama'")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("[]", "standard input: record: expected an object, found []"),
        ("{", "standard input"),
        ({"para_id": -1, "hrmp_watermark": 1}, "standard input: para_id: expected an integer from 0"),
        ({"para_id": 1, "hrmp_watermark": 1, "block": 3}, f"block: expected a block after {BLOCKS}"),
        ({"para_id": 1, "hrmp_watermark": 1, "lane": "kusama"}, "lane: expected 'polkadot', found 'kusama'"),
        ({"para_id": 1, "watermark": 1}, "watermark: no such field; did you mean 'hrmp_watermark'?"),
    ],
)
def test_bad_records_are_refused_in_one_line(record: Any, words: str, lane: Callable[[str], Lane]) -> None:
    refused(lane("router").ask(record), words)


def test_file_of_two_records_is_refused_in_words(lane: Callable[[str], Lane]) -> None:
    refused(lane("router").ask("{}\n\n{}\n"), "expected one record, found 2 lines, of which the first is one")


def test_unknown_kind_is_refused(lane: Callable[[str], Lane]) -> None:
    refused(lane("router").ask({}, "--kind=blocks"), "--kind: expected candidates, channel-requests")


@pytest.fixture
def state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a configuration and a state with two paras into the current folder, and return the state's file."""
    monkeypatch.chdir(tmp_path)
    table = {"host_configuration": {"preset": "polkadot-2023"}}
    (tmp_path / "validator.toml").write_text(to_toml({"chains": {LANE: table}}), encoding="utf-8")
    path = tmp_path / "STATE.json"
    path.write_text(json.dumps({"first_block": 8, "state": {"valid_paras": [2000, 2004]}}))
    return path


def ask_state(path: Path, record: dict[str, Any], *arguments: str) -> Any:
    return invoke(
        "dry-run", "-", f"--lane={LANE}", f"--state={path.name}", *arguments, stdin=json.dumps(record).encode()
    )


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_para_that_is_not_registered_is_noted(state_file: Path, arguments: tuple[str, ...]) -> None:
    known = ask_state(state_file, {"para_id": 2000, "hrmp_watermark": 7}, *arguments)
    assert (known.exit_code, known.stderr) == (0, "")
    unknown = ask_state(state_file, {"para_id": 5, "hrmp_watermark": 7}, *arguments)
    assert unknown.exit_code == 0
    assert unknown.stderr == (
        f"note: para 5 is not registered with lane {LANE} after block 7; protocol router judges its candidates all the same "
        "(reading I-28: `validator explain I-28`)\n"
    )
    if arguments:
        assert json.loads(unknown.stdout).keys() == json.loads(known.stdout).keys()
    else:
        assert "accepted" in unknown.stdout
    rejected = ask_state(state_file, {"para_id": 5, "hrmp_watermark": 9}, *arguments)
    assert (rejected.exit_code, "para 5 is not registered" in rejected.stderr) == (1, True)
    message = ask_state(state_file, {"para_id": 5, "msg": "00"}, "--kind=downward-messages", *arguments)
    assert message.stderr == ""


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {"para_id": 2000, "hrmp_watermark": 7},
            "STATE.json: expected keys of a state, such as valid_paras, balances and channels",
        ),
        ({"first_block": 8, "state": {"para_id": 2000}}, "STATE.json.state: expected keys of a state"),
        ({"chanels": {}}, "unknown key 'chanels', did you mean 'channels'?"),
    ],
)
def test_document_that_is_no_state_is_refused(state_file: Path, document: Any, words: str) -> None:
    state_file.write_text(json.dumps(document))
    refused(ask_state(state_file, {"para_id": 2000, "hrmp_watermark": 7}), words)


def test_limits_that_a_job_wrote_into_a_state_are_in_force(state_file: Path) -> None:
    """A state of `validator state show --json` is judged by its own limits, not by those of the preset."""
    candidate = {"para_id": 2000, "hrmp_watermark": 7, "upward_messages": ["00", "01"]}
    answer = ask_state(state_file, candidate)
    assert answer.exit_code == 0
    assert "limits and rules: validator.toml, router/seed" in answer.stdout
    document = json.loads(state_file.read_text())
    limits = {"max_upward_message_num_per_candidate": 1, "max_upward_message_size": 10, "max_upward_queue_count": 9}
    state_file.write_text(json.dumps({**document, "host_configuration": limits, "balances": "unlimited"}))
    answer = ask_state(state_file, candidate)
    assert (answer.exit_code, "MoreMessagesThanPermitted" in answer.stdout) == (1, True)
    assert "limits: STATE.json; rules: validator.toml, router/seed" in answer.stdout
    assert (
        "note: validator.toml has limits or rules that are not used: max_upward_message_num_per_candidate 16 in place of 1"
        in (answer.stderr)
    )
    changed = [
        "--set=max_upward_message_num_per_candidate=2",
        "--set=max_upward_queue_size=9",
        "--rules=router/2023-04",
    ]
    found = json.loads(ask_state(state_file, candidate, *changed, "--json").stdout)
    assert found["ok"], found
    assert found["limits_of"] == "STATE.json, max_upward_message_num_per_candidate=2, max_upward_queue_size=9"
    assert (found["rules_of"], found["rules"]) == ("--rules", "router/2023-04")
    state_file.write_text(json.dumps({**document, "host_configuration": {"max_upward": 1}}))
    refused(ask_state(state_file, candidate), "STATE.json.host_configuration.max_upward: no such key")
    refused(ask_state(state_file, candidate, "--set=max=x"), "--set: expected LIMIT=NUMBER")


def test_limits_of_a_configuration_that_a_running_lane_does_not_use_are_named(lane: Callable[[str], Lane]) -> None:
    asked = lane("router")
    state: Any = asked.processor().lane.rules.state
    record = {"para_id": min(state.paras), "hrmp_watermark": BLOCKS, "upward_messages": ["00"]}
    own = f"lane {LANE} as executed at block {BLOCKS}"
    first = asked.ask(record)
    assert f"limits and rules: {own}, router/" in first.stdout
    limit = "max_upward_message_num_per_candidate"
    found = asked.ask(record, f"--set={limit}=0", "--rules=router/2026-06", "--json")
    answer = json.loads(found.stdout)
    assert "UpwardMessages/MoreMessagesThanPermitted" in [error["kind"] for error in answer["errors"]]
    assert (answer["limits_of"], answer["rules_of"]) == (f"{own}, {limit}=0", "--rules")
    assert answer["rules"] == "router/2026-06"
    text = asked.config_path.read_text()
    value = getattr(state.host_configuration, limit)
    other = asked.config_path.with_name("other.toml")
    other.write_text(text.replace(f"{limit} = {value}", f"{limit} = {value + 1}"))
    asked.config_path = other
    result = asked.ask(record)
    assert f"{other} has limits or rules that are not used: {limit} {value + 1} in place of {value}" in result.stderr
