# SPDX-License-Identifier: Apache-2.0
"""An audit finds nothing in a simulated chain's history, and each thing that is put into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.distributions import files_of, on_path, written
from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of
from validator.core.levels import ChannelLevel, Levels
from validator.core.outcomes import (
    ChannelEvent,
    ChannelEventKind,
    Dispatch,
    Executed,
    InputKind,
    MessageRange,
    Receipt,
    Verdict,
)
from validator.core.types import BlockNumber, ParaKind
from validator.history.audit import ChannelLedger, Observer, QueueLedger, audit
from validator.history.emitted import COMPARED
from validator.history.engine import Engine, NotExecuted, Replica
from validator.lanes.definition import LaneDefinition
from validator.plugin.protocol_api import InvariantBroken
from validator.plugin.runtime import installed_protocol
from validator.replay.scenario import suite_names

BLOCKS = 40
ABSENT = "/nowhere/rates.json"


def simulated(protocol: str = "router") -> tuple[Chain, LaneDefinition]:
    of = chain(SimulationSettings(seed=31, blocks=BLOCKS, lane="rococo"), protocol)
    return of, definition_of(of)


def executed(observer: Observer, of: Chain) -> None:
    Engine(inputs_of(of.records), [observer.replica]).run(observer.observe)


@pytest.mark.parametrize("protocol", suite_names())
def test_history_of_every_protocol_has_no_fault(protocol: str) -> None:
    of, definition = simulated(protocol)
    result = audit(inputs_of(of.records, protocol), definition)
    assert (result.blocks, result.last_block, result.faults) == (BLOCKS, BLOCKS, 0), result.findings
    assert result.checks["invariants"] == BLOCKS
    assert result.checks["orphans"] == 1
    assert set(result.skipped) == {*COMPARED, "stored pages"}
    assert result.records == len(of.records)


def test_invariants_are_checked_as_often_as_told() -> None:
    of, definition = simulated()
    sessions = sum(
        record["session_change"] is not None
        for block in of.blocks
        for kind, record in block.records
        if kind == "blocks"
    )
    result = audit(inputs_of(of.records), definition, every=7)
    assert BLOCKS // 7 <= result.checks["invariants"] <= BLOCKS // 7 + sessions + 2
    assert result.faults == 0


def test_broken_invariant_names_the_block() -> None:
    of, definition = simulated()
    protocol = installed_protocol("router")
    assert protocol is not None

    def broken(state: Any, rules: Any) -> None:
        if run.lane.rules.env.now >= 30:
            raise InvariantBroken("needs_dispatch is [7], paras with queues are []")

    run = Observer(definition)
    run.protocol = replace(protocol, invariants=broken)
    executed(run, of)
    found = [each for each in run.result.findings if each.check == "invariants"]
    assert [each.block for each in found] == list(range(30, BLOCKS + 1))
    assert found[0].fault
    assert "needs_dispatch is [7]" in found[0].detail


def test_what_invariants_leave_out_is_said_once() -> None:
    of, definition = simulated()
    protocol = installed_protocol("router")
    assert protocol is not None
    run = Observer(definition)
    run.protocol = replace(
        protocol, invariants=lambda *_: "the chain leaves it" if run.lane.rules.env.now >= 30 else None
    )
    executed(run, of)
    assert run.result.skipped["some invariants"] == "since block 30: the chain leaves it"
    assert run.result.checks["invariants"] == BLOCKS


def test_rules_of_the_chain_say_what_they_leave() -> None:
    of = chain(SimulationSettings(seed=31, blocks=BLOCKS, lane="rococo", history=True))
    result = audit(inputs_of(of.records), definition_of(of))
    assert result.faults == 0
    assert "as_the_chain: the chain itself leaves" in result.skipped["some invariants"]


def test_state_that_a_gone_para_left_is_a_note() -> None:
    of, definition = simulated()
    run = Observer(definition)
    executed(run, of)
    state: Any = run.lane.rules.state  # type: ignore[attr-defined]
    para = max(state.paras) + 1
    state.hrmp_watermarks[para] = 5
    state.touched.pages[para] = None
    run.end()
    (finding,) = [each for each in run.result.findings if each.subject == f"para {para}"]
    assert not finding.fault
    assert "watermarks" in finding.detail
    state.paras[para] = ParaKind.PARACHAIN


FAILING = """
def read(context, payload):
    if context.block >= {block}:
        open("{path}")

KINDS = [(b"", "rates", read)]
"""


def test_audit_ends_before_a_block_in_which_a_handler_fails(tmp_path: Path) -> None:
    of, plain = simulated()
    at = message_after(plain, of, BLOCKS // 2).block
    with on_path(written(tmp_path, files_of("rates", "1.0.0", FAILING.format(block=at, path=ABSENT)))):
        definition = definition_of(of, handlers=[{"name": "rates"}], ump_weights={}, ump_failing_messages=[])
        result = audit(inputs_of(of.records), definition)
        (finding,) = result.findings
        assert (result.blocks, result.last_block, result.faults, result.notes) == (at - 1, at - 1, 0, 1)
        assert (finding.check, finding.block, finding.fault) == ("execution", at, False)
        assert (
            f"rates@1.0.0 (rates): FileNotFoundError is not a verdict: No such file or directory: {ABSENT}, at "
            in finding.detail
        )
        assert "orphans, channels" in result.skipped
        run = Observer(definition)
        run.emitted = [SimpleNamespace(has_since=lambda block: block == at)]  # type: ignore[list-item]
        run.failed(NotExecuted(BlockNumber(at), "as above"))
        assert [each.fault for each in run.result.findings] == [True]


def message_after(definition: LaneDefinition, of: Chain, block: int) -> Dispatch:
    """Return the first message that is dispatched after a block."""
    found: list[Dispatch] = []
    replica = Replica.create(definition, "")
    Engine(inputs_of(of.records), [replica]).run(lambda executed: found.extend(executed[0].dispatches))
    return next(each for each in found if each.block > block)


def event(block: int, kind: ChannelEventKind, sender: int = 0, recipient: int = 0) -> Executed:
    moved = ChannelEvent(block, 0, kind, 2000, 2004, sender, recipient, 0)
    return Executed([], [], [moved], [], Receipt(block, block - 1, 0, 0, 0, 0, 0, 0))


def test_deposits_have_to_add_up() -> None:
    ledger = ChannelLedger()
    ledger.observe(event(1, ChannelEventKind.REQUESTED, 10))
    ledger.observe(event(2, ChannelEventKind.CONFIRMED, 0, 5))
    ledger.observe(event(3, ChannelEventKind.OPENED))
    ledger.observe(event(4, ChannelEventKind.CLOSED, -10, -4))
    (kept,) = ledger.findings([])
    assert (kept.check, kept.block, kept.fault) == ("deposits", 4, False)
    assert "it ended, and 1 of the recipient is still reserved" in kept.detail
    ledger.observe(event(5, ChannelEventKind.REQUESTED, 10))
    ledger.observe(event(6, ChannelEventKind.CLOSED, -12))
    *_, wrong = ledger.findings([])
    assert wrong.fault
    assert "2 more was returned to the sender than it had reserved" in wrong.detail


def left(block: int, *received: MessageRange, event: ChannelEvent | None = None) -> Executed:
    verdict = Verdict(InputKind.CANDIDATE, block, 0, 2004, enacted=True, received=received)
    return Executed([verdict], [], [event] if event else [], [], Receipt(block, block - 1, 0, 1, 0, 1, 0, 0))


def dropped(block: int, kind: ChannelEventKind, *ranges: MessageRange) -> ChannelEvent:
    return ChannelEvent(block, 0, kind, 2000, 2004, 0, 0, 1, "requested", ranges)


def test_each_message_leaves_its_queue_once() -> None:
    ledger = QueueLedger()
    ledger.observe(left(1, MessageRange(None, -1, 0, 9), MessageRange(2000, 1, 3, 12)))
    ledger.observe(left(2, MessageRange(None, 1, 1, 4), MessageRange(2000, 4, 4, 1)))
    closed = dropped(3, ChannelEventKind.CLOSED, MessageRange(2000, 6, 7, 2))
    ledger.observe(left(3, MessageRange(2000, 5, 5, 1), event=closed))
    ledger.observe(left(4, MessageRange(2000, 1, 2, 2), event=dropped(4, ChannelEventKind.OPENED)))
    assert list(ledger.findings(Levels())) == []
    assert ledger.gone == {(None, 2004): 1, (2000, 2004): 2}


@pytest.mark.parametrize("first", [2, 3, 5])
def test_message_that_leaves_its_queue_twice_or_is_left_out_is_a_fault(first: int) -> None:
    ledger = QueueLedger()
    ledger.observe(left(1, MessageRange(2000, 1, 3, 12)))
    ledger.observe(left(2, MessageRange(2000, first, 5, 4)))
    (finding,) = ledger.findings(Levels())
    assert (finding.subject, finding.block, finding.fault) == ("channel 2000→2004", 2, True)
    assert finding.detail == f"messages {first} to 5 left it after message 3"


def test_message_that_leaves_a_closed_channel_is_a_fault() -> None:
    ledger = QueueLedger()
    ledger.observe(left(1, event=dropped(1, ChannelEventKind.CLOSED, MessageRange(2000, 1, 2, 2))))
    ledger.observe(left(2, MessageRange(2000, 1, 1, 1)))
    (finding,) = ledger.findings(Levels())
    assert (finding.subject, finding.block, finding.fault) == ("channel 2000→2004", 2, True)


def test_message_that_neither_waits_nor_left_is_a_fault() -> None:
    ledger = QueueLedger()
    ledger.observe(left(1, MessageRange(2000, 1, 3, 12)))
    level = ChannelLevel(
        2000, 2004, messages=1, bytes=4, messages_max=8, bytes_max=99, oldest=1, messages_sent=5, bytes_sent=9
    )
    (finding,) = ledger.findings(Levels(channels=(level,)))
    assert finding.detail == "5 messages were sent and 1 wait, but 3 is the last that has left"
    assert list(ledger.findings(Levels(channels=(level._replace(messages=2),)))) == []


def test_unused_channels_are_notes_unless_no_message_was_ever_seen() -> None:
    of, definition = simulated()
    run = Observer(definition)
    executed(run, of)
    accepted = {
        (verdict["block"], verdict["index"])
        for block in of.blocks
        for verdict in block.expected
        if verdict["kind"] == "candidate" and verdict["ok"]
    }
    since = {channel_id: followed.since for channel_id, followed in run.ledger.channels.items()}
    used = {
        channel_id
        for block in of.blocks
        for kind, record in block.records
        if kind == "candidates" and (record["block"], record["index"]) in accepted
        for message in record["horizontal_messages"]
        if record["block"] > since.get(channel_id := (record["para_id"], message["recipient"]), BLOCKS)
    }
    open_channels = set(run.lane.rules.state.hrmp_channels)  # type: ignore[attr-defined]
    run.end()
    unused = {each.subject for each in run.result.findings if each.check == "unused channels"}
    assert unused == {f"channel {one}→{other}" for one, other in open_channels & set(since) - used}
    silent = ChannelLedger()
    silent.observe(event(1, ChannelEventKind.REQUESTED, 1))
    assert list(silent.findings([(2000, 2004)])) == []


def test_stored_pages_are_compared_at_their_block() -> None:
    from tests.cli.stored_job import BATCH
    from validator.ask.state import RestoredState
    from validator.lanes.store import LaneCache, process_batch, restore_lane

    of, definition = simulated()
    store = Store()
    attempt = store.attempt()
    list(
        process_batch(definition, attempt, LaneCache(), [inputs_of([each for each in of.records if each.block <= 25])])
    )
    store.commit(attempt)

    def stored() -> RestoredState:
        processor = restore_lane(definition, store.attempt())
        assert processor is not None
        head: Any = None
        return RestoredState("rococo", BATCH, {}, head, 0, processor, definition.protocol, definition)

    good = audit(inputs_of(of.records), definition, stored=stored())
    assert (good.checks["stored pages"], good.faults) == (1, 0)
    damaged = stored()
    state: Any = damaged.rules.state  # type: ignore[attr-defined]
    para = min(state.hrmp_watermarks)
    state.hrmp_watermarks[para] += 1
    found = audit(inputs_of(of.records), definition, stored=damaged)
    (finding,) = [each for each in found.findings if each.fault]
    assert (finding.check, finding.subject, finding.block) == ("stored pages", f"para {para}", 25)
