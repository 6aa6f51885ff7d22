# SPDX-License-Identifier: Apache-2.0
"""The sample traces of the protocol pass, and fail with altered expectations."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from network_rule_set import SHARED, Json

from validator.errors import UserError
from validator.plugin.protocol_api import Node
from validator.replay.run import run_scenario
from validator.replay.scenario import read_scenarios
from validator.testing.protocol import differences

SAMPLES = SHARED / "xcmp_network_samples.json"


def samples() -> list[Json]:
    return json.loads(SAMPLES.read_text(encoding="utf-8")) if SAMPLES.exists() else []


@pytest.mark.skipif(not SAMPLES.exists(), reason="the checkout has no sibling ../shared/traces")
@pytest.mark.parametrize("scenario", samples(), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    assert differences(read_scenarios(Node(scenario, "sample"))) == {}
    wrong = deepcopy(scenario)
    wrong["final_state"]["ingress"]["2"] = [[1, 1]]
    assert list(differences(read_scenarios(Node(wrong, "sample")))) == [scenario["id"]]


def one_body(**change: object) -> Json:
    """Return a scenario with one body and a channel that is not part of its configuration."""
    body = {"sender": 1, "recipient": 2, "sent_at": 5, "payloads": [], **change}
    return {
        "id": "one",
        "protocol": "xcmp-network",
        "config": {},
        "genesis_paras": [{"para_id": 1}, {"para_id": 2}],
        "open_channels": [[1, 2]],
        "steps": [{"block": 5, "bodies": [body]}],
    }


def test_bodies_are_part_of_the_output() -> None:
    (scenario,) = read_scenarios(Node(one_body(), "file"))
    (step,) = run_scenario(scenario)["steps"]
    error = {"kind": "Body/NotExpected", "sender": 1, "recipient": 2, "sent_at": 5}
    assert step["bodies"] == [{"ok": False, "error": error}]


def test_expectation_of_bodies_is_compared() -> None:
    document = one_body()
    document["steps"][0]["expect"] = {"bodies": [{"ok": True}]}
    (difference,) = differences(read_scenarios(Node(document, "file"))).values()
    assert "bodies" in difference
    document["steps"][0]["expect"] = {"bodies": [{"ok": False, "error_any_of": ["Body/NotExpected"]}]}
    assert differences(read_scenarios(Node(document, "file"))) == {}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (one_body(payloads=["0"]), r"steps\[0\].bodies\[0\].payloads\[0\]: expected bytes in hex, found \"0\""),
        (one_body(sent_at=-1), r"bodies\[0\].sent_at: expected an integer"),
        ({**one_body(), "open_channels": [[1, 1]]}, r"open_channels\[0\]: expected \[sender, recipient\] of two paras"),
        (
            {**one_body(), "open_channels": [[1, 2], [1, 2]]},
            r"open_channels\[1\]: expected a channel that is not listed",
        ),
        ({**one_body(), "open_channel": [[1, 2]]}, "unknown key 'open_channel', did you mean 'open_channels'"),
        ({**one_body(), "config": {"channels": "xcmp"}}, "open_channels: expected no list"),
        ({**one_body(), "config": {"intra_block": "some"}}, "intra_block: expected one of free, prefix"),
        ({**one_body(), "config": {"require_bodies": 1}}, "require_bodies: expected true or false"),
        ({**one_body(), "config": {"max_block_bytes": -1}}, "max_block_bytes: expected an integer from 0"),
        ({**one_body(), "config": {"max_block_byte": 1}}, "unknown key 'max_block_byte'"),
    ],
)
def test_malformed_scenario_is_refused_in_one_line(document: Json, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_scenarios(Node(document, "file"))
