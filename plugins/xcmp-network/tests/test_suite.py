# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete; so do the samples."""

from __future__ import annotations

import network_suite
import pytest
from network_trace import as_record
from validator_xcmp_network import errors

from tests.rule_sets import Json, WrittenSuite, check_sample, samples, violations_of
from validator.errors import UserError
from validator.plugin.protocol_api import Node
from validator.replay.run import run_scenario
from validator.replay.scenario import read_scenarios
from validator.testing.lane_suite import fits_into_blocks
from validator.testing.protocol import differences


class TestProtocol(WrittenSuite):
    """The suite; readings beyond the notes' eleven are the plugin's own."""

    protocol = "xcmp-network"
    violations = violations_of(errors)
    suite = network_suite
    readings = tuple(f"N-I{number:02}" for number in range(1, 12))

    def as_record(self, item: Json) -> Json:
        """Name the call, and the parts of a watermark."""
        return as_record(item)


def test_most_scenarios_fit_into_blocks() -> None:
    assert sum(map(fits_into_blocks, network_suite.all_scenarios())) > 30


def forget_ingress(state: Json) -> None:
    """Change the ingress queue of a final state."""
    state["ingress"]["2"] = [[1, 1]]


@pytest.mark.parametrize("scenario", samples("xcmp_network_samples.json"), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    check_sample(scenario, forget_ingress)


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
        (
            one_body(payloads=["0"]),
            r"steps\[0\].bodies\[0\].payloads\[0\]: expected bytes in hex, an even number of digits, found \"0\"",
        ),
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
