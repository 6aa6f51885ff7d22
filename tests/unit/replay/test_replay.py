# SPDX-License-Identifier: Apache-2.0
"""`validator replay`: output, exit codes, warnings, and one line for malformed files and bugs of plugins."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.repetitions import repetitions
from tests.router.generate import GROUPS, scenarios_of
from tests.unit.testing.made_protocol import CHECK, RAISES, make_protocol
from validator.cli import replay as replay_module
from validator.cli.main import app
from validator.document import Node
from validator.errors import PluginFailed
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.statefile import STATE_KEYS
from validator.replay.run import judge_scenario, read_vectors
from validator.replay.scenario import Scenario, Step, failures_of

SCENARIO = next(scenario for scenario in scenarios_of("order") if scenario["id"] == "order/groups-of-a-candidate")


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json"


def write(file: Path, document: Any) -> Path:
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def refusal(result: Result) -> str:
    """Return the one error line for a malformed file."""
    assert result.exit_code == 2, result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("validator: ")
    assert line.isprintable()
    assert result.stdout == ""
    return line


def test_shipped_suite_passes() -> None:
    result = replay("--suite", "router")
    total = sum(len(scenarios_of(group)) for group in GROUPS)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[-1] == f"{total} passed, 0 failed"
    assert len(lines) == total + 1
    assert all(line.startswith("PASS ") for line in lines[:-1])


def test_files_may_hold_one_scenario_or_list_and_be_named_twice(file: Path) -> None:
    write(file, SCENARIO)
    several = write(file.with_name("several.json"), [SCENARIO, SCENARIO])
    result = replay(file, several, file)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "4 passed, 0 failed")
    assert replay(write(file, [])).stdout == "0 passed, 0 failed\n"


def test_failure_names_place_and_exits_with_1(file: Path) -> None:
    wrong = copy.deepcopy(SCENARIO)
    wrong["steps"][0]["expect"]["downward"][0] = {"ok": False, "error": {"kind": "ExceedsMaxMessageSize"}}
    result = replay(write(file, [wrong, SCENARIO]))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].startswith(
        'FAIL order/groups-of-a-candidate groups_of_a_candidate: step 0 (block 3): downward[0]: expected {"ok": false'
    )
    assert result.stdout.splitlines()[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize("extra", [{"protocol": "no-such-protocol"}, {"needs": ["teleportation"]}])
def test_scenario_for_missing_protocol_or_feature_is_skipped(file: Path, extra: dict[str, Any]) -> None:
    other = {"id": "x", "name": "other", **extra, "steps": [{"whatever": 1}]}
    result = replay(write(file, [other, SCENARIO]))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].startswith("SKIP x other: ")
    assert result.stdout.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"
    skipped = json.loads(replay("--json", file).stdout)["scenarios"][0]
    assert set(skipped) == {"id", "skipped"}


def test_json_has_every_key_and_dispatches_only_at_block_end(file: Path) -> None:
    result = replay("--json", write(file, SCENARIO))
    assert result.exit_code == 0
    (scenario,) = json.loads(result.stdout)["scenarios"]
    assert set(scenario) == {"id", "steps"}
    blocks = [step["block"] for step in SCENARIO["steps"]]
    assert [step["block"] for step in scenario["steps"]] == blocks
    for at, step in enumerate(scenario["steps"]):
        assert list(step) == ["block", "requests", "downward", "candidates", "dispatched", "state"]
        assert tuple(step["state"]) == STATE_KEYS
        ends = at + 1 == len(blocks) or blocks[at + 1] != blocks[at]
        assert (step["dispatched"] is not None) == ends


def test_json_ignores_expect(file: Path) -> None:
    wanted = replay("--json", write(file, SCENARIO)).stdout
    for expect in ({"state": {"channels": 7}}, 5, [], {"requests": 3}, {"candidates": [{"ok": "?"}]}, {"expects": 1}):
        other = copy.deepcopy(SCENARIO)
        for step in other["steps"]:
            step["expect"] = expect
        assert replay("--json", write(file, other)).stdout == wanted


def test_missing_file_argument_or_unknown_suite_is_refused() -> None:
    assert "expected a trace file" in refusal(replay())
    assert "no such suite, there are" in refusal(replay("--suite", "rooter"))


# --- malformed ---


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"nul", "not JSON"),
        (b"5", "expected a scenario or an array of them, found 5"),
        (b"null", "expected a scenario or an array of them, found null"),
        (b'"x"', "expected a scenario or an array of them"),
        (b"[5]", "[0]: expected an object, found 5"),
        (b"[[]]", "[0]: expected an object, found []"),
        (b"{}", "key 'id' is missing"),
        (b'{"id": "a"}', "key 'steps' is missing"),
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 64 levels deep"),
        (b"[" * 500 + b"]" * 500, "nested more than 64 levels deep"),
        (b'{"id":' * 66 + b"1" + b"}" * 66, "nested more than 64 levels deep"),
        (b"1" * 5_000, "digits"),
        (b'{"id": NaN, "steps": []}', "expected a JSON value, found NaN"),
    ],
)
def test_file_that_is_not_a_trace_is_refused(file: Path, content: bytes, why: str) -> None:
    file.write_bytes(content)
    for arguments in ((file,), ("--json", file)):
        line = refusal(replay(*arguments))
        assert str(file) in line
        assert why in line


def test_missing_file_or_directory_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(replay(tmp_path / "none.json"))
    assert "Is a directory" in refusal(replay(tmp_path))


def at(document: Any, path: str) -> tuple[Any, Any]:
    """Return the holder and key of a dotted path."""
    *parts, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parts:
        document = document[part]
    return document, last


VALID = {
    "id": "a",
    "config": {"hrmp_channel_max_places": 1},
    "genesis_paras": [{"para_id": 1, "kind": "parachain", "balance": 5}],
    "ump_weights": {"aa": 1},
    "ump_failing_messages": ["aa"],
    "steps": [
        {
            "block": 1,
            "requests": [
                {"kind": "init_open_channel", "origin": 1, "recipient": 2, "max_places": 1, "max_message_size": 1},
                {"kind": "accept_open_channel", "origin": 2, "sender": 1},
                {"kind": "close_channel", "origin": 2, "channel": [1, 2]},
                {"kind": "schedule_para_cleanup", "para_id": 3},
            ],
            "downward": [{"para_id": 1, "msg": "aa"}],
            "candidates": [
                {
                    "para_id": 1,
                    "relay_parent_number": 0,
                    "hrmp_watermark": 0,
                    "upward_messages": ["aa"],
                    "processed_downward_messages": 0,
                    "horizontal_messages": [{"recipient": 2, "data": "aa"}],
                    "enact_at_block": 1,
                }
            ],
            "session_change": {
                "outgoing": [1],
                "onboarding": [{"para_id": 1, "kind": "parathread", "balance": 1}],
                "new_config": {"hrmp_channel_max_places": 1},
            },
            "expect": {"requests": [{"ok": True}], "dispatched": [[1, "aa"]], "state": {"valid_paras": [1]}},
        }
    ],
}


def test_valid_document_runs(file: Path) -> None:
    assert replay("--json", write(file, VALID)).exit_code == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("id", 5),
        ("name", []),
        ("protocol", 5),
        ("needs", "delayed_enactment"),
        ("needs", [1]),
        ("config", []),
        ("config.hrmp_channel_max_places", -1),
        ("config.hrmp_channel_max_places", 1.0),
        ("config.hrmp_channel_max_places", True),
        ("config.hrmp_channel_max_places", "1"),
        ("config.hrmp_channel_max_places", 2**32),
        ("config.hrmp_sender_deposit", 2**128),
        ("config.preferred_dispatchable_upward_messages_step_weight", 2**64),
        ("config.hrmp_channel_max_place", 1),
        ("genesis_paras", {}),
        ("genesis_paras.0", 1),
        ("genesis_paras.0.para_id", None),
        ("genesis_paras.0.para_id", 2**32),
        ("genesis_paras.0.kind", "parafluid"),
        ("genesis_paras.0.kind", {}),
        ("genesis_paras.0.balance", 2**128),
        ("ump_weights", []),
        ("ump_weights.zz", 1),
        ("ump_weights.aa", -1),
        ("ump_default_weight", "1"),
        ("ump_failing_messages", "aa"),
        ("ump_failing_messages.0", "a"),
        ("steps", {}),
        ("steps", None),
        ("steps.0", None),
        ("steps.0.block", None),
        ("steps.0.block", "1"),
        ("steps.0.block", -1),
        ("steps.0.blok", 1),
        ("steps.0.requests", 1),
        ("steps.0.requests.0", []),
        ("steps.0.requests.0.kind", "open_channel"),
        ("steps.0.requests.0.kind", None),
        ("steps.0.requests.0.origin", "1"),
        ("steps.0.requests.0.max_places", 2**32),
        ("steps.0.requests.1.sender", []),
        ("steps.0.requests.2.channel", "1->2"),
        ("steps.0.requests.2.channel", [1]),
        ("steps.0.requests.2.channel", [1, 2, 3]),
        ("steps.0.requests.2.channel", [1, None]),
        ("steps.0.requests.3.para_id", None),
        ("steps.0.downward.0", "aa"),
        ("steps.0.downward.0.msg", "0xaa"),
        ("steps.0.downward.0.msg", "a a"),
        ("steps.0.downward.0.msg", "aa bb"),
        ("steps.0.downward.0.msg", "aa\n"),
        ("steps.0.downward.0.msg", "\u0660\u0661"),
        ("steps.0.downward.0.msg", "\ud800"),
        ("steps.0.downward.0.msg", 0),
        ("steps.0.candidates", {}),
        ("steps.0.candidates.0.para_id", None),
        ("steps.0.candidates.0.hrmp_watermark", None),
        ("steps.0.candidates.0.hrmp_watermark", -1),
        ("steps.0.candidates.0.hrmp_watermarks", 1),
        ("steps.0.candidates.0.relay_parent_number", "0"),
        ("steps.0.candidates.0.upward_messages", "aa"),
        ("steps.0.candidates.0.upward_messages.0", None),
        ("steps.0.candidates.0.processed_downward_messages", 1.5),
        ("steps.0.candidates.0.horizontal_messages", {"2": "aa"}),
        ("steps.0.candidates.0.horizontal_messages.0", [2, "aa"]),
        ("steps.0.candidates.0.horizontal_messages.0.recipient", None),
        ("steps.0.candidates.0.horizontal_messages.0.data", "a"),
        ("steps.0.candidates.0.enact_at_block", "2"),
        ("steps.0.session_change", []),
        ("steps.0.session_change.outgoing", 1),
        ("steps.0.session_change.outgoing.0", "1"),
        ("steps.0.session_change.onboarding.0.kind", 5),
        ("steps.0.session_change.new_config.hrmp_channel_max_places", "2"),
        ("steps.0.session_change.onbording", []),
    ],
)
def test_malformed_value_is_named(file: Path, path: str, value: Any) -> None:
    document = copy.deepcopy(VALID)
    holder, key = at(document, path)
    holder[key] = value
    write(file, document)
    for arguments in ((file,), ("--json", file)):
        line = refusal(replay(*arguments))
        assert str(file) in line
        assert str(key) in line.removeprefix(str(file))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("expect", 5),
        ("expect.request", []),
        ("expect.requests", 5),
        ("expect.requests.0", True),
        ("expect.requests.0", {}),
        ("expect.requests.0", {"ok": 1}),
        ("expect.requests.0", {"ok": False}),
        ("expect.requests.0", {"ok": False, "error": "x"}),
        ("expect.requests.0", {"ok": False, "error": {}}),
        ("expect.requests.0", {"ok": False, "error_any_of": 3}),
        ("expect.requests.0", {"ok": False, "error_any_of": [3]}),
        ("expect.dispatched", 5),
        ("expect.dispatched.0", 5),
        ("expect.dispatched.0", [5]),
        ("expect.state", []),
        ("expect.state.channel", {}),
    ],
)
def test_malformed_expectation_is_named(file: Path, path: str, value: Any) -> None:
    document = copy.deepcopy(VALID)
    holder, key = at(document["steps"][0], path)
    holder[key] = value
    assert str(key) in refusal(replay(write(file, document)))


def test_descending_blocks_are_refused(file: Path) -> None:
    document = {"id": "a", "steps": [{"block": 3}, {"block": 2}]}
    assert "steps[1].block: expected a block from 3 on, found 2" in refusal(replay(write(file, document)))


def test_unprintable_names_are_escaped(file: Path) -> None:
    document = {"id": "a\u202e\n", "name": "\x1b[31m", "steps": []}
    assert replay(write(file, document)).stdout == "PASS a\\u202e\\n \\u001b[31m\n1 passed, 0 failed\n"
    document = {"id": "a", "ump_weights": {"\ud800\n": 1}, "steps": []}
    refusal(replay(write(file, document)))


ODD = [None, True, -1, 0, 1, 2**32, 2**128, 1.5, float("nan"), "", "a", "\ud800", [], [[]], {}, {"a": 1}, [None]]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [path, *(leaf for key, item in children for leaf in _leaves(item, (*path, key)))]


def test_mutated_documents_never_cause_traceback(file: Path) -> None:
    """With any value in place of any other, the file passes, fails, or is refused in one line."""
    random = Random(1)
    seeds = [VALID, SCENARIO, scenarios_of("notifications")[0]]
    outcomes = set()
    for _ in range(repetitions(30, 600)):
        document = copy.deepcopy(random.choice(seeds))
        for _ in range(random.choice((1, 1, 2))):
            path = random.choice(_leaves(document)[1:])
            holder = document
            for key in path[:-1]:
                holder = holder[key]
            action = random.random()
            if action < 0.15:
                del holder[path[-1]]
            elif action < 0.25 and isinstance(holder, dict):
                holder[random.choice(("", "kind", "block", "\u2028", "expects"))] = holder.pop(path[-1])
            else:
                holder[path[-1]] = random.choice(ODD)
        result = replay(*random.choice(((), ("--json",))), write(file, document))
        outcomes.add(result.exit_code)
        if result.exit_code == 2:
            refusal(result)
        else:
            assert result.exit_code in (0, 1), result.exception
            assert all(line.startswith("validator: warning: ") for line in result.stderr.splitlines())
            assert " raised " not in result.stdout, "a rule has a bug"
    assert outcomes == {0, 1, 2}


STEP: dict[str, Any] = {"block": 1}
EMPTY = {"id": "x", "steps": [STEP]}
CHECKED = {"id": "x", "steps": [{**STEP, "expect": {"dispatched": []}}]}


def test_each_protocol_is_looked_for_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []

    def find(name: str) -> Any:
        looked_for.append(name)
        return installed_protocol(name)

    monkeypatch.setattr(replay_module, "installed_protocol", find)
    other = write(file.with_name("other.json"), {"id": "x", "protocol": "xcmp", "steps": []})
    result = replay(write(file, [EMPTY] * 3), other, write(file.with_name("again.json"), EMPTY))
    assert result.stdout.splitlines()[-1] == "5 passed, 0 failed"
    assert looked_for == ["router", "xcmp"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("valid_paras_set", [1]), ("ready_ring_set", ["1->2"]), ("mqc_heads_set", ["1->2"]), ("needs_dispatch_set", [])],
)
def test_exact_set_of_a_key_without_channels_is_compared(file: Path, key: str, value: list[Any]) -> None:
    scenario = {
        "id": "x",
        "steps": [{"block": 1, "expect": {"state": {key: value}}}],
        "genesis_paras": [{"para_id": 7}],
    }
    result = replay(write(file, scenario))
    assert result.exit_code == (1 if value else 0)
    assert result.stdout.splitlines()[-1] == ("0 passed, 1 failed" if value else "1 passed, 0 failed")


NOTHING = {"free": 0, "reserved": 0}
STATE = {"balances": {"1": {"free": 5, "reserved": 0}}, "sealed": {"1": {"sealed": False}}, "list": [0, {"x": 0}]}


def difference(expected: dict[str, Any]) -> str | None:
    scenario = Scenario("one", "one", steps=(Step(1, (), (), (), None, None, {}),), final_state=expected)
    return judge_scenario(scenario, {"steps": [{"dispatched": None, "state": STATE}]})


@pytest.mark.parametrize(
    "expected",
    [
        {"balances": {"1": {"free": 5}, "2": NOTHING}},
        {"balances": {"1": {"free": 5, "reserved": 0}, "2": None}},
        {"list": [0, {"x": 0}], "absent": [], "nothing": {}},
        {"sealed": {"1": {"sealed": False}}},
    ],
)
def test_what_is_zero_may_as_well_be_absent(expected: dict[str, Any]) -> None:
    assert difference(expected) is None


@pytest.mark.parametrize(
    "expected",
    [{"balances": {}}, {"balances": {"1": {"free": 6}}}, {"list": [0]}, {"sealed": {"1": {}}}, {"absent": {"1": 1}}],
)
def test_all_else_is_compared(expected: dict[str, Any]) -> None:
    assert (difference(expected) or "").startswith("final_state.")


def test_file_of_other_format_is_skipped(file: Path) -> None:
    result = replay(write(file, {"format": "no-such-protocol-vectors/1", "msg_hash": []}))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"SKIP no-such-protocol-vectors/1 {file}: its protocol is not installed",
        "0 passed, 0 failed, 1 skipped",
    ]


ID = "a-para-has-a-limited-number-of-candidates-in-a-session"


def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *changes: tuple[str, str], file: str = "rules.py"
) -> str:
    project = make_protocol(folder, name, *changes, file=file)
    monkeypatch.syspath_prepend(project / "src")
    return name


def test_exception_in_a_rule_fails_its_scenario_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotaa", RAISES)
    good = write(tmp_path / "good.json", CHECKED)
    result = replay("--suite", name, good)
    assert result.exit_code == 1
    assert result.stderr == ""
    other, failed, total = sorted(result.stdout.splitlines(), reverse=True)
    assert (other, total) == ("PASS x ", "1 passed, 1 failed")
    line = (tmp_path / f"validator-{name}/src/validator_{name}/rules.py").read_text().split("assert state.block")[0]
    assert failed.endswith(
        f"step 0 (block 1): candidates[0]: plugin {name} of validator-{name} 0.1.0 raised AttributeError at "
        f"validator_{name}/rules.py:{line.count(chr(10)) + 1}: 'CountingState' object has no attribute 'block'"
    )
    assert failed.startswith(f"FAIL {name}/{ID} ")


def test_traceback_is_shown_only_if_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotab", RAISES)
    result = CliRunner().invoke(app, ["-v", "replay", "--suite", name])
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("AttributeError: 'CountingState' object has no attribute 'block'\n")


def test_output_ends_with_one_line_that_names_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed(tmp_path, monkeypatch, "quotac", RAISES)
    result = replay("--json", "--suite", name)
    assert (result.exit_code, result.stdout) == (70, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"validator: scenario {name}/{ID}: step 0 (block 1): candidates[0]: plugin {name} of ")


def test_exception_while_a_file_is_read_names_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = (
        "def read_candidate(node: Node, block: BlockNumber) -> Candidate:",
        "def read_candidate(node: Node) -> Candidate:",
    )
    name = installed(tmp_path, monkeypatch, "quotad", change, file="records.py")
    result = replay("--suite", name)
    assert (result.exit_code, result.stdout) == (70, "")
    (line,) = result.stderr.splitlines()
    assert (
        f"counting.json[0].steps[0].candidates[0]: plugin {name} of validator-{name} 0.1.0 raised TypeError at " in line
    )


def test_place_is_in_the_plugin_even_if_it_called_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = installed(
        tmp_path,
        monkeypatch,
        "quotae",
        (CHECK, f"{CHECK}    state.touched.pages.update(5)\n    __import__('json').loads('')\n"),
    )
    protocol = installed_protocol(name)
    assert protocol is not None
    result = replay("--suite", name)
    assert f"at validator_{name}/rules.py:" in result.stdout


def test_exception_without_a_text_or_a_plugin_is_described() -> None:
    protocol = installed_protocol("router")
    assert protocol is not None
    with (
        pytest.raises(
            PluginFailed, match=r"^here: plugin router of relay-validator \S+ raised KeyError at \S+\.py:\d+$"
        ),
        failures_of(protocol, "here"),
    ):
        raise KeyError


def test_exception_for_a_vector_names_its_entry() -> None:
    protocol = installed_protocol("xcmp")
    assert protocol is not None
    broken = replace(protocol, traces=replace(protocol.traces, vectors=lambda _group, entry: {}[entry.path]))
    document = Node({"format": "xcmp-vectors/1", "msg_hash": [{"payload": "00"}]}, "file")
    with pytest.raises(
        PluginFailed, match=r"^file\.msg_hash\[0\]: plugin xcmp of validator-xcmp \S+ raised KeyError at "
    ):
        list(read_vectors(document, broken))


def warnings(result: Result) -> list[str]:
    lines = result.stderr.splitlines()
    assert all(line.startswith("validator: warning: ") for line in lines)
    return [line.removeprefix("validator: warning: ") for line in lines]


VAIN: dict[str, tuple[Any, str]] = {
    "no scenario": ([], "trace.json: holds no scenario"),
    "no step": ({"id": "idle", "steps": []}, "passes whatever comes out: idle"),
    "no expectation": ([CHECKED, {"id": "idle", "steps": [STEP]}], "passes whatever comes out: idle"),
    "an empty expectation": (
        {"id": "idle", "steps": [{**STEP, "expect": {"state": {"channels": {}}, "requests": []}}]},
        ": idle",
    ),
    "an unknown state key": (
        {"id": "x", "steps": [{**STEP, "expect": {"state": {"nonsense": None}}}]},
        "steps[0].expect.state: protocol router has no state key 'nonsense': null, 0 and [] always match",
    ),
    "an unknown final state key": (
        {**CHECKED, "final_state": {"nonsense": {}}},
        "final_state: protocol router has no state key 'nonsense'",
    ),
    "an unknown key": (
        {"id": "x", "steps": [{**STEP, "expect": {"dispatched": [], "note": "for people", "outcome": 1}}]},
        "steps[0].expect: nothing is compared with 'outcome'",
    ),
    "an unknown limit": (
        {**CHECKED, "config": {"preset": "polkadot-2023"}},
        "trace.json.config: protocol router has no limit 'preset'",
    ),
    "an unknown limit that changes": (
        {"id": "x", "steps": [{**STEP, "session_change": {"new_config": {"bogus": 1}}, "expect": {"dispatched": []}}]},
        "new_config: protocol router has no limit 'bogus': it is ignored",
    ),
}


@pytest.mark.parametrize("name", VAIN)
def test_what_is_said_in_vain_is_a_warning_and_fails_only_on_request(name: str, file: Path) -> None:
    document, words = VAIN[name]
    result = replay(write(file, document))
    assert result.exit_code == 0
    assert any(words in line for line in warnings(result)), result.stderr
    assert "FAIL" not in result.stdout
    assert replay(write(file, document), "--no-skip").exit_code == 1


def test_nothing_checked_is_said(file: Path) -> None:
    for document in ([], {"id": "x", "protocol": "absent", "steps": []}):
        assert "nothing was checked" in warnings(replay(write(file, document)))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_scenario_that_is_skipped_fails_only_on_request(options: tuple[str, ...], file: Path) -> None:
    document = [CHECKED, {"id": "y", "needs": ["teleportation"], "steps": []}]
    assert replay(write(file, document), *options).exit_code == 0
    failed = replay(write(file, document), "--no-skip", *options)
    assert (failed.exit_code, failed.stdout) == (1, replay(write(file, document), *options).stdout)


def test_protocol_that_is_not_installed_is_suggested(file: Path) -> None:
    result = replay(write(file, {"id": "x", "protocol": "ruter", "steps": []}))
    assert result.stdout.splitlines()[0] == "SKIP x : protocol 'ruter' is not installed; did you mean 'router'?"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"channels": {"2000-2004": None}},
            "state.channels: expected a channel as the key, such as \"2000->2004\", found '2000-2004'",
        ),
        ({"channels": {"2000->2004->1": None}}, "state.channels: expected a channel"),
        ({"contents": {"2000": []}}, "state.contents: expected a channel"),
        ({"balances": {"x": None}}, "state.balances: expected a para as the key, such as \"2000\", found 'x'"),
        ({"dmq": {"abc": None}}, "state.dmq: expected a para"),
        ({"watermarks": {"02000": None}}, "state.watermarks: expected a para"),
        ({"watermarks": {str(2**32): None}}, "state.watermarks: expected a para"),
        ({"watermarks": {"9" * 5_000: None}}, "state.watermarks: expected a para"),
        ({"watermarks": {"\u0662": None}}, "state.watermarks: expected a para"),
    ],
)
def test_key_that_no_state_has_is_refused(state: Any, words: str, file: Path) -> None:
    final = replay(write(file, {"id": "x", "steps": [STEP], "final_state": state}))
    assert final.exit_code == 2
    assert f"trace.json.final_{words}" in final.stderr
    document = {"id": "x", "steps": [{**STEP, "expect": {"state": state}}]}
    result = replay(write(file, document))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert f"trace.json.steps[0].expect.{words}" in line
    assert replay(write(file, document), "--json").exit_code == 0, "--json does not look at expect"


@pytest.mark.parametrize(
    ("protocol", "key"),
    [("early-hrmp", "channels"), ("early-hrmp", "dmq"), ("xcmp", "cst"), ("xcmp-network", "ingress")],
)
def test_keys_of_other_protocols_are_known(protocol: str, key: str, file: Path) -> None:
    document = {"id": "x", "protocol": protocol, "steps": [{**STEP, "expect": {"state": {key: {"a": None}}}}]}
    assert replay(write(file, document)).exit_code == 2


def test_suite_says_nothing_in_vain(file: Path) -> None:
    result = replay(write(file, scenarios_of("order")), "--no-skip")
    assert (result.exit_code, result.stderr) == (0, "")
    for suite in ("router", "early-hrmp", "xcmp", "xcmp-network"):
        result = replay("--no-skip", "--suite", suite)
        assert (result.exit_code, result.stderr) == (0, "")


LIMITED = "UpwardMessages/MoreMessagesThanPermitted"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"kind": LIMITED}, "; the rules fix the fields of this kind: the expected error lacks sent, permitted"),
        ({"kind": LIMITED, "sent": 2}, "; the rules fix the fields of this kind: the expected error lacks permitted"),
        ({"kind": LIMITED[:-1]}, f"; no error of router has this kind, did you mean {LIMITED!r}?"),
        ({"kind": LIMITED, "sent": 3, "permitted": 0}, ""),
        ({"kind": "UpwardMessages/MessageSize"}, ""),
        ({"kind": LIMITED, "sent": 2, "permitted": 0}, None),
    ],
)
def test_error_that_is_not_the_expected_one_says_what_to_write(
    tmp_path: Path, error: dict[str, object], words: str | None
) -> None:
    candidate = {"para_id": 2000, "hrmp_watermark": 0, "upward_messages": ["01", "02"]}
    step = {"block": 1, "candidates": [candidate], "expect": {"candidates": [{"ok": False, "error": error}]}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"id": "T", "genesis_paras": [{"para_id": 2000}], "steps": [step]}), encoding="utf-8")
    result = CliRunner().invoke(app, ["replay", str(path)])
    if words is None:
        assert result.exit_code == 0, result.output
        return
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith(f'"sent": 2, "permitted": 0}}}}{words}')
