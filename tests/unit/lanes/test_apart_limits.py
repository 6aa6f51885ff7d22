# SPDX-License-Identifier: Apache-2.0
"""What a lane's process says, leaves behind and waits for costs its own lane: never the worker, the job or another lane."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.distributions import files_of, on_path, packed
from tests.hostile import block_records
from tests.unit.lanes.chains import inputs_of
from tests.unit.lanes.hostile_process import KINDS, NAMES
from tests.unit.lanes.test_apart import FATAL_AT, LANE, Apart, definition
from tests.unit.lanes.test_apart import records as records_of
from tests.unit.lanes.test_confine import can_forbid
from validator.lanes.apart import batch, host
from validator.lanes.apart.host import LaneProcesses, LaneProcessFailed
from validator.lanes.apart.process import Start
from validator.lanes.auditing import AuditSettings
from validator.lanes.parked import Fault, point_of, stored_parts
from validator.lanes.parking import Suspect

records = partial(records_of, names=NAMES)


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    archive = packed(tmp_path_factory.mktemp("limits") / "hostile.zip", files_of("hostile", "1.0.0", KINDS))
    with on_path(archive):
        yield


@pytest.fixture
def may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let handlers do what they can do on a system without seccomp."""
    monkeypatch.setattr(batch, "Start", partial(Start, repeats=True))


@pytest.mark.usefixtures("may_fork")
def test_what_a_chain_of_sessions_leaves_is_ended_and_counted(processes: LaneProcesses) -> None:
    lane = Apart(processes, definition())
    with pytest.raises(LaneProcessFailed, match=re.escape("(hostile@1.0.0) left 6 processes behind")) as failed:
        lane.run(inputs_of(records("leaves-a-chain")))
    assert failed.value.fault is Fault.HANDLER
    assert not [each for forker in processes._forkers.values() for each in forker.orphans()]


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["trickles"], "its process did not end what it began to send: File"),
        (["says-nothing-all-the-time"], "its process did not complete a block or its batch within 5 seconds: File"),
        (
            ["calls-all-the-time"],
            "a block or its batch within 5 seconds, in handler hostile@1.0.0 (calls-all-the-time)",
        ),
        (["hangs-afterwards"], "its process did not complete a block or its batch within 5 seconds: File"),
        (["is-nearly-too-slow"] * 10, "its process did not complete a block or its batch within 2 seconds, in handler"),
    ],
)
def test_a_process_that_does_not_get_on_is_ended_by_the_clock_of_the_worker(
    processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch, kinds: list[str], said: str
) -> None:
    monkeypatch.setattr(host, "LAST_RESORT_S", 1.0)
    monkeypatch.setattr(host, "BLOCK_CALLS_MAX", 4 if len(kinds) == 1 else 1)
    lane = Apart(processes, definition(seconds_max=1))
    began_s = time.monotonic()
    with pytest.raises(LaneProcessFailed, match=re.escape(said)) as failed:
        lane.run(inputs_of(records(*kinds)))
    assert time.monotonic() - began_s < 60
    assert (failed.value.fault, failed.value.place) == (Fault.HANDLER, (FATAL_AT, 2000))


def test_a_process_may_take_its_time_for_each_block(processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LAST_RESORT_S", 1.0)
    monkeypatch.setattr(host, "BLOCK_CALLS_MAX", 2)
    lane = Apart(processes, definition(seconds_max=2))
    made = [
        each
        for block in range(1, 9)
        for each in block_records(LANE, block, [bytes([NAMES.index("is-nearly-too-slow"), block])])
    ]
    lane.run(inputs_of(made))
    assert lane.log.last.block == 8


def test_a_process_that_is_stopped_between_batches_goes_on(processes: LaneProcesses) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records())
    lane.run(items[:12])
    (idle,) = processes._idle.values()
    os.kill(idle._pid, signal.SIGSTOP)
    lane.run(items[12:])
    assert lane.log.last.block == 10


@pytest.mark.usefixtures("may_fork")
def test_no_other_lane_is_blamed_for_what_starts_between_batches(
    processes: LaneProcesses, capfd: pytest.CaptureFixture[str]
) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records("forks-later"))
    lane.run(items)
    time.sleep(1.5)
    other = Apart(processes, definition("other"))
    others = inputs_of(records(lane="other", blocks=30))
    for at in range(0, len(others), 12):
        other.run(others[at : at + 12])
        time.sleep(0.5)
    assert other.log.last.block == 30
    assert other.fault() is None
    found = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"processes ended"' in line]
    assert [(each["left_by"], each["before"]) for each in found] == [(LANE, "other")]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("says-refused", "REFUSED"),
        ("says-loaded", "LOADED"),
        ("takes-too-much", "test.blocks[0] taken up to 18446744073709551615, which it does not have"),
        ("takes-elsewhere", "elsewhere[4294967295] taken up to 5, which it does not have"),
        ("ends-short", "67 bytes expected at offset 1, 0 left"),
        ("asks-for-others", "inputs 0 to 9223372036854775808 of test.blocks[0], which it does not have"),
        ("lacks-headers", "a dead letter without its headers"),
        ("removes-a-slot", "slot 12345 to be removed, which it does not have"),
        ("saves-far-away", "slot 4294967295"),
        ("saves-nonsense", "state head version 110, expected 1"),
        ("saves-much", "more than 536870912 bytes for its state in one batch"),
        ("promises-much", "a frame BUG of 2147483647 bytes"),
        ("recovers-for-ever", "a recovery of nan seconds"),
        ("skips-blocks", "block 9 after block 7"),
        ("repeats-blocks", "block 1 after block 10"),
        ("speaks-of-a-block", "found"),
        ("sends-no-verdicts", "expected"),
        ("moves-verdicts", "a record on verdicts of block 2 among those of block 1"),
        ("measures-others", "a report of the lane other"),
        ("measures-nonsense", "Expecting property name"),
        ("breaks-the-terminal", "a reason of more than a line"),
        ("hides-blocks", "records of no block on dispatches"),
    ],
)
def test_what_it_says_costs_the_lane_and_not_the_job(processes: LaneProcesses, kind: str, said: str) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records(kind))
    with pytest.raises(LaneProcessFailed) as failed:
        lane.run(items)
    assert str(failed.value).startswith("its process sent what no lane sends: ")
    assert said in str(failed.value)
    assert failed.value.fault is Fault.HANDLER
    assert not {call for call in lane.attempt.calls if not call.startswith("load")}
    lane.suspects = {LANE: Suspect(point_of(None), str(failed.value), Fault.HANDLER)}
    lane.run(items)
    assert lane.fault() is Fault.HANDLER


def test_what_it_writes_to_the_log_is_quoted(processes: LaneProcesses, capfd: pytest.CaptureFixture[str]) -> None:
    lane = Apart(processes, definition())
    lane.run(inputs_of(records("forges-the-log")))
    processes.close()
    until_s, err = time.monotonic() + 10, ""
    while "[2J" not in err and time.monotonic() < until_s:
        time.sleep(0.1)
        err += capfd.readouterr().err
    lines = err.splitlines()
    assert f'lane {LANE}: {{"event": "audit fault", "lane": "other"}}' in lines
    assert """a lane's process: {"event": "process failed", "lane": "other"}""" in lines
    assert "a lane's process: the end of the job's output\\u0000" in lines
    assert "\0" not in err
    assert "\x1b" not in err


def test_a_fault_after_a_call_names_the_handlers_whatever_it_is(processes: LaneProcesses) -> None:
    lane = Apart(processes, definition())
    lane.run(inputs_of(records("raises-what-is-the-users")))
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    assert parked.fault is Fault.CONFIGURATION
    assert parked.reason == r"lane apart: the configuration is wrong\u001b; its handlers are hostile@1.0.0"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("ends-in-the-audit", "a second execution ended without a result; its handlers are hostile@1.0.0"),
        (
            "gives-up-in-the-audit",
            "a second execution raised HandlerFault: handler hostile@1.0.0 (gives-up-in-the-audit)",
        ),
        (
            "deepens-in-the-audit",
            "a second execution raised HandlerFault: handler hostile@1.0.0 (deepens-in-the-audit)",
        ),
        ("infects-the-audit", "a second execution: its process died (exit code 1)"),
    ],
)
def test_a_second_execution_that_ends_otherwise_is_a_difference(processes: LaneProcesses, kind: str, said: str) -> None:
    lane = Apart(processes, definition(), AuditSettings(1_000_000, parks=True))
    lane.run(inputs_of(records(kind)))
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    assert (parked.fault, parked.since_block) == (Fault.AUDIT, FATAL_AT - 1)
    assert said in parked.reason
    assert "hostile@1.0.0" in parked.reason


@pytest.mark.parametrize("kind", ["dies-in-the-audit", "leaves-something-in-the-audit"])
def test_a_second_execution_that_is_killed_is_none_and_leaves_nothing(processes: LaneProcesses, kind: str) -> None:
    lane = Apart(processes, definition(), AuditSettings(1_000_000, parks=True))
    lane.run(inputs_of(records(kind)))
    assert lane.fault() is (Fault.AUDIT if kind.startswith("leaves") and can_forbid() else None)
    assert not [each for forker in processes._forkers.values() for each in forker.orphans()]


def test_a_suspect_is_parked_without_a_process(processes: LaneProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records())
    lane.run(items[:7])
    point = point_of(lane.store.committed.head)
    monkeypatch.setattr(processes, "take", None)
    lane.suspects = {LANE: Suspect(point, "it fails whatever it does", Fault.HANDLER)}
    lane.run(items[7:])
    parked = stored_parts(lane.store.committed.head)[0]
    assert parked is not None
    assert (parked.fault, parked.reason) == (Fault.HANDLER, "it fails whatever it does")
    assert {span.end for span in parked.held.values()} == {10}


def test_what_is_left_out_between_two_batches_is_found(processes: LaneProcesses) -> None:
    lane, items = Apart(processes, definition()), inputs_of(records())
    lane.run(items[:12])
    point, block = processes.left[LANE]
    assert block == 6
    processes.left[LANE] = point, block - 1
    with pytest.raises(LaneProcessFailed, match="block 7 after block 5"):
        lane.run(items[12:])
