# SPDX-License-Identifier: Apache-2.0
"""The harness runs a real chain, and pytest offers it as fixtures wherever validator is installed."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.unit.testing import remark
from validator.config import DEFAULT_PROTOCOL
from validator.core.outcomes import DispatchOutcome
from validator.errors import UserError
from validator.plugin.protocol_api import Node, Para
from validator.plugin.registry import PluginError
from validator.plugin.runtime import installed_protocol
from validator.testing import Harness, fixtures
from validator.testing.case import run_python

HELLO = b"\x00\x01hello"
ASK = b"\x00\x02" + (2001).to_bytes(4, "little")


def test_message_is_dispatched_in_own_block() -> None:
    harness = Harness(remark, block=7)
    first = harness.send(HELLO)
    second = harness.send(b"\x00\x01again", para=2001)
    assert (first.block, second.block, harness.block) == (7, 8, 9)
    assert (first.outcome, first.handler, first.kind) == (DispatchOutcome.OK, "remark@1.0.0", "remark")
    assert [(event.name, event.data) for event in first.events] == [("kept", (2000).to_bytes(4, "little"))]
    assert harness.state == {
        b"count": (2).to_bytes(4, "little"),
        (2000).to_bytes(4, "little"): b"hello",
        (2001).to_bytes(4, "little"): b"again",
    }


def test_blocks_may_be_skipped_but_not_repeated() -> None:
    harness = Harness(remark)
    assert harness.send(HELLO, block=10).block == 10
    with pytest.raises(UserError, match="block 10: expected a block from 11 on"):
        harness.send(HELLO, block=10)


def test_message_affects_other_paras() -> None:
    harness = Harness(remark, {"copy_to": 2001}, balances={2000: 12, 2001: 3})
    assert harness.send(HELLO).outcome is DispatchOutcome.OK
    assert harness.downward(2001) == [b"hello"]
    assert (harness.balance(2000), harness.balance(2001), harness.balance(2002)) == (7, 8, 0)


def test_channel_request_is_made_and_expires() -> None:
    limits = {
        "preferred_dispatchable_upward_messages_step_weight": 10_000,
        "hrmp_channel_max_places": 2,
        "hrmp_channel_max_message_size": 8,
        "hrmp_channel_max_size": 16,
        "hrmp_max_parachain_outbound_channels": 2,
        "hrmp_sender_deposit": 100,
        "hrmp_open_request_ttl": 3,
    }
    harness = Harness(remark, host_configuration=limits, balances=250)
    assert harness.send(ASK).outcome is DispatchOutcome.OK
    assert [event.event for event in harness.channel_events] == ["requested"]
    assert not harness.open_requests[2000, 2001].confirmed
    assert (harness.balance(2000), harness.reserved(2000)) == (150, 100)
    for _ in range(3):
        events = harness.change_session()
    assert [event.event for event in events] == ["request_expired"]
    assert (harness.open_requests, harness.channels, harness.close_requests) == ({}, {}, [])
    assert harness.balance(2000) == 250


def test_calls_are_counted_and_fail_on_request() -> None:
    harness = Harness(remark)
    harness.send(HELLO)
    assert (harness.calls, harness.call_names) == (5, ["charge", "read", "write", "write", "emit"])
    root = harness.state_root
    harness.fail_at(4)
    dispatch = harness.send(b"\x00\x01other")
    assert (dispatch.outcome, dispatch.failure) == (
        DispatchOutcome.FAILED,
        "HarnessFault: made to fail at call 4 (write)",
    )
    assert harness.calls == 4
    assert harness.state_root == root
    assert harness.send(b"\x00\x01other").outcome is DispatchOutcome.OK
    assert harness.state_root != root


def test_fault_beyond_last_call_is_dropped() -> None:
    harness = Harness(remark)
    harness.fail_at(100)
    assert harness.send(HELLO).outcome is DispatchOutcome.OK
    assert harness._fail_at is None
    assert harness.send(b"nobody's").outcome is DispatchOutcome.NO_HANDLER
    assert harness.calls == 0


def test_restart_keeps_state_and_plugin_continues() -> None:
    harness = Harness(remark, {"copy_to": 2002})
    harness.send(HELLO)
    before = (harness.state, harness.state_root, harness.block)
    harness.restart()
    assert (harness.state, harness.state_root, harness.block) == before
    harness.send(HELLO)
    assert harness.state[b"count"] == (2).to_bytes(4, "little")


def test_round_dispatches_within_its_weight() -> None:
    harness = Harness(remark, host_configuration={"preferred_dispatchable_upward_messages_step_weight": 2_000})
    assert [each.para_id for each in harness.send_all([(2000, HELLO), (2001, HELLO), (2000, HELLO)])] == [2000, 2001]
    with pytest.raises(UserError, match="messages of earlier blocks are still queued"):
        harness.send(HELLO)
    assert [each.para_id for each in harness.run_block()] == [2000]


def test_session_change_onboards_offboards_and_configures() -> None:
    harness = Harness(remark, paras=(2000, Para(2005, balance=4)))
    assert harness.balance(2005) == 4
    harness.change_session(outgoing=[2005], onboarding=[2009], new_config={"max_downward_message_size": 0})
    with pytest.raises(UserError, match="para 2005 is not valid, there are 2000, 2009"):
        harness.send(HELLO, para=2005)
    assert harness.send(HELLO, para=2009).outcome is DispatchOutcome.OK


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"host_configuration": "polkadot"}, "preset 'polkadot': no such preset"),
        ({"host_configuration": {}}, "nothing would be dispatched"),
        (
            {"host_configuration": {"max_queue": 1}},
            "host_configuration.max_queue: no such limit, there are max_upward_",
        ),
        ({"host_configuration": {"max_upward_queue_count": "x"}}, "max_upward_queue_count: expected an integer from 0"),
        ({"protocol": "no-such-protocol"}, "no-such-protocol: no installed plugin of group"),
        ({"protocol": "xcmp"}, "protocol 'xcmp' has no bench for testing handlers"),
        ({"balances": {9: 1}}, "para 9 is not one of paras"),
        ({"config": {"bytes_max": "x"}}, "config.bytes_max"),
        ({"config": {"bites": 1}}, "config.bites: no such key"),
    ],
)
def test_invalid_chain_settings_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(UserError, match=text):
        Harness(remark, **arguments)  # type: ignore[arg-type]


def test_limits_may_be_given_as_class_of_protocol() -> None:
    protocol = installed_protocol(DEFAULT_PROTOCOL)
    assert protocol is not None
    limits = {"preferred_dispatchable_upward_messages_step_weight": 2_000}
    named = Harness(remark, host_configuration=limits)
    typed = Harness(remark, host_configuration=protocol.configuration(Node(limits, "limits")))
    assert named.state_root == typed.state_root != Harness(remark).state_root


def test_plugin_may_be_module_object_or_name() -> None:
    class Plugin:
        validator_manifest = staticmethod(remark.validator_manifest)
        validator_handlers = staticmethod(remark.validator_handlers)

    assert Harness(Plugin()).send(HELLO).outcome is DispatchOutcome.OK
    assert Harness(Harness(remark).plugin).send(HELLO).outcome is DispatchOutcome.OK
    with pytest.raises(PluginError, match=r"no installed plugin of group .* has this name"):
        Harness("no-such-plugin")
    with pytest.raises(PluginError, match="it has no hook"):
        Harness(object())


TEST = """
from tests.unit.testing import remark

def test_harness(harness):
    assert harness(remark, {"bytes_max": 5}).send(b"\\x00\\x01hello").outcome == "ok"

def test_vectors(vectors):
    scenarios = vectors("router")
    assert len(scenarios) > 100
    assert not any(scenario.skipped for scenario in scenarios)
"""


def test_fixtures_are_available_to_tests_of_others(tmp_path: Path) -> None:
    (tmp_path / "test_plugin.py").write_text(TEST)
    root = Path(remark.__file__).parents[3]
    plugin = [] if entry_points(group="pytest11", name="validator") else ["-p", fixtures.__name__]
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_plugin.py"]
    run = run_python(arguments, cwd=tmp_path, first_on_path=[str(root)])
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout


def test_fixtures_import_nothing_else() -> None:
    program = "import sys, validator.testing.fixtures as f; print(sorted(n for n in sys.modules if n.startswith('validator')))"
    run = run_python(["-c", program])
    assert run.stdout.strip() == "['validator', 'validator.testing', 'validator.testing.fixtures']"
    assert sys.modules[fixtures.__name__] is fixtures
