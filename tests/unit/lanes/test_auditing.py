# SPDX-License-Identifier: Apache-2.0
"""The audit in the job: sound lanes stay as they are, each kind of fault is found, reported, and parks the lane if that is wanted."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from validator_simulators.settings import SimulationSettings

from tests.unit.lanes.chains import chain, definition_of, inputs_of
from tests.unit.lanes.running import Running, batches_of, undisturbed
from validator.cli.lanes import _audit_lines
from validator.codec.json_form import to_json
from validator.core.execute import execute
from validator.core.handlers.errors import HandlerFault
from validator.lanes import auditing
from validator.lanes.auditing import MILLIONTHS, Auditor, AuditSettings, Outcome, is_chosen
from validator.lanes.meter import LaneMeter, MeterSettings
from validator.lanes.parked import Fault
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.core.outcomes import Executed
    from validator.lanes.definition import LaneDefinition

ALL = AuditSettings(MILLIONTHS)
BLOCK = 7
"""The block at which something is broken."""


class Ends:
    """How the audits of a lane ended."""

    def __init__(self) -> None:
        self.counts: Counter[Outcome] = Counter()

    def note(self, outcome: Outcome, seconds: float) -> None:
        assert seconds >= 0
        self.counts[outcome] += 1


def audited(running: Running, settings: AuditSettings = ALL) -> Ends:
    """Let a lane be audited."""
    ends = Ends()
    running.auditor = lambda: Auditor(running.definition, settings, ends.note)
    return ends


def faults(running: Running) -> list[dict[str, Any]]:
    return [to_json("lanes", each.value) for each in running.log.records if each.key.endswith(b"/audit")]


@pytest.mark.parametrize("protocol", ["router", "early-hrmp", "xcmp", "xcmp-network"])
def test_every_block_of_every_protocol_is_sound_and_emits_what_it_would(protocol: str) -> None:
    settings = SimulationSettings(seed=31, blocks=25, session_length_blocks=6, lane="polkadot")
    of = chain(settings, protocol)
    definition = definition_of(of)
    ends, outputs = Ends(), []
    for auditor in (None, Auditor(definition, ALL, ends.note)):
        processor = LaneProcessor.create(definition)
        executor = execute if auditor is None else auditor.execute
        items = inputs_of(of.records, protocol)
        outputs.append([record for output in processor.process(items, executor) for record in output.records])
        if auditor is not None:
            assert list(auditor.said()) == []
    assert outputs[0] == outputs[1]
    assert ends.counts == {Outcome.SOUND: 25}


class Twice:
    """Executes blocks, and breaks the first or second execution of `BLOCK`."""

    def __init__(self, first: Callable[[Any], None] | None = None, second: Callable[[Any], None] | None = None) -> None:
        self.breaks = [first, second]
        self.calls = 0

    def __call__(self, rules: Any, block: Any, intervals: Any) -> Executed:
        executed = execute(rules, block, intervals)
        if block.record.block == BLOCK:
            broken = self.breaks[self.calls % 2]
            self.calls += 1
            if broken is not None:
                broken(rules)
        return executed


def queue_size(rules: Any) -> None:
    rules.state.relay_dispatch_queue_size[min(rules.state.paras)] = (3, 30)


def watermark(rules: Any) -> None:
    """Change a value that no invariant binds, without a note that its page has changed."""
    rules.state.hrmp_watermarks[min(rules.state.paras)] = 5


def unnoted(rules: Any) -> None:
    """Change the same value after the root has been brought up to date."""
    rules.state_root()
    watermark(rules)


def session(rules: Any) -> None:
    rules.state.session_index += 1


def crash(_: Any) -> None:
    raise KeyError("second")


FAULTS: dict[str, tuple[Twice, str, str]] = {
    "derived": (Twice(first=queue_size), "invariants", ""),
    "drift": (Twice(first=watermark), "pages", "differs from that of a second execution: pages of"),
    "common": (Twice(second=session), "pages", "session, configuration or requests"),
    "not noted": (Twice(first=unnoted, second=watermark), "pages", "the change of a page was not noted"),
    "crash": (Twice(second=crash), "execution", "a second execution raised KeyError: 'second'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_reported_with_its_block_and_the_lane_continues(
    name: str, make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, check, words = FAULTS[name]
    running = make()
    ends = audited(running)
    monkeypatch.setattr(auditing, "execute", broken)
    executed = 0
    for items in batches_of(running.chain):
        running.run(items)
        executed = sum(each.topic == "receipts" for each in running.log.records)
        if faults(running):
            break
    (fault,) = faults(running)
    assert (fault["block"], fault["check"]) == (BLOCK, check)
    assert words in fault["detail"]
    assert executed >= BLOCK
    assert ends.counts[Outcome.FAULTY] >= 1
    assert running.parked() is None
    (line,) = _audit_lines({"audit": fault})
    assert line == f"AUDIT FAULT in block {BLOCK} ({check}): {fault['detail']}"
    assert _audit_lines({"audit": None, "configured": True, "audit_share": 0}) == []


class Wordless(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise TypeError("no words")


RAISED: dict[str, tuple[BaseException, str]] = {
    "invariants": (KeyError("unknown"), "the check of the invariants raised KeyError: 'unknown'"),
    "_pages": (ValueError("a para\ud800"), "encoding the state before the block raised ValueError: a para?"),
    "restore_rules": (SystemExit("no more"), "a second execution raised SystemExit: no more"),
    "Encoder": (Wordless(), "the comparison of what both executions emit raised Wordless"),
    "prints_of": (IndexError(4), "the comparison of both states raised IndexError: 4"),
}
"""By the part of the audit that fails, what it raises, and the words of the fault."""


def fails_in(part: str, error: BaseException, running: Running, ends: Ends, patch: pytest.MonkeyPatch) -> None:
    """Let a part of the audit fail at the eleventh block."""
    before = list(range(20 if part in ("Encoder", "prints_of") else 10))  # both executions are encoded

    def or_raises(result: Callable[..., Any]) -> Callable[..., Any]:
        def some(*arguments: Any) -> Any:
            if not before:
                raise error
            before.pop()
            return result(*arguments)

        return some

    if part.islower() and not hasattr(auditing, part):
        definition = running.definition
        watched = SimpleNamespace(
            name=definition.name,
            digest_at=definition.digest_at,
            handlers_at=definition.handlers_at,
            restore_rules=definition.restore_rules,
            protocol=SimpleNamespace(invariants=definition.protocol.invariants),
        )
        owner = watched if hasattr(watched, part) else watched.protocol
        setattr(owner, part, or_raises(getattr(owner, part)))
        running.auditor = lambda: Auditor(cast("LaneDefinition", watched), ALL, ends.note)
    else:
        patch.setattr(auditing, part, or_raises(getattr(auditing, part)))


@pytest.mark.parametrize("part", RAISED)
def test_exception_in_the_audit_itself_is_reported_and_the_lane_emits_what_it_would(
    part: str, make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    ends = audited(running)
    error, words = RAISED[part]
    fails_in(part, error, running, ends, monkeypatch)
    for items in batches_of(running.chain):
        running.run(items)
    found = faults(running)
    assert {fault["detail"] for fault in found} == {words}
    assert found[-1]["block"] == 12
    assert ends.counts == {Outcome.SOUND: 10, Outcome.FAULTY: 2}
    assert running.parked() is None
    assert running.output() == undisturbed(running).output()


@pytest.mark.parametrize("part", ["invariants", "_pages", "prints_of"])
def test_audit_without_memory_is_incomplete(
    part: str, make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    ends = audited(running)
    fails_in(part, MemoryError(), running, ends, monkeypatch)
    for items in batches_of(running.chain):
        running.run(items)
    assert faults(running) == []
    assert ends.counts == {Outcome.SOUND: 10, Outcome.INCOMPLETE: 2}
    assert running.parked() is None


def test_other_output_of_a_second_execution_is_found(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(rules: Any, block: Any, intervals: Any) -> Executed:
        executed = execute(rules, block, intervals)
        differs.calls += 1  # type: ignore[attr-defined]
        if differs.calls % 2 == 0 and block.record.block == BLOCK:  # type: ignore[attr-defined]
            return executed._replace(receipt=executed.receipt._replace(weight_used=99))
        return executed

    differs.calls = 0  # type: ignore[attr-defined]
    running = make()
    audited(running)
    monkeypatch.setattr(auditing, "execute", differs)
    for items in batches_of(running.chain):
        running.run(items)
    (fault,) = faults(running)
    assert fault["check"] == "execution"
    assert "of topic receipts, differs in a second execution" in fault["detail"]


def test_lane_is_parked_before_the_faulty_block_emits_anything_and_continues_once_it_is_sound(
    make: Callable[..., Running],
) -> None:
    running = make()
    audited(running, AuditSettings(MILLIONTHS, parks=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditing, "execute", Twice(first=queue_size))
        for items in batches_of(running.chain):
            running.run(items)
    parked = running.parked()
    assert parked is not None
    assert parked.fault is Fault.AUDIT
    assert f"audit of block {BLOCK}: invariants:" in parked.reason
    blocks = [to_json("receipts", each.value)["block"] for each in running.output() if each.topic == "receipts"]
    assert max(blocks) == BLOCK - 1
    running.order()
    assert running.parked() is None
    assert running.output() == undisturbed(running).output()


@pytest.mark.parametrize("of_a_handler", [False, True])
def test_second_execution_that_is_not_possible_here_is_no_fault(
    of_a_handler: bool, make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        if of_a_handler:
            raise HandlerFault("tally", "a", "MemoryError raised") from MemoryError()
        raise MemoryError

    running = make()
    ends = audited(running)
    monkeypatch.setattr(auditing, "execute", Twice(second=fails))
    for items in batches_of(running.chain):
        running.run(items)
    assert faults(running) == []
    assert ends.counts == {Outcome.SOUND: 11, Outcome.INCOMPLETE: 1}


def test_second_execution_that_ends_with_a_fault_of_a_handler_differs(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        raise HandlerFault("tally", "a", "it did not end")

    running = make()
    ends = audited(running)
    monkeypatch.setattr(auditing, "execute", Twice(second=fails))
    for items in batches_of(running.chain):
        running.run(items)
    assert ends.counts == {Outcome.SOUND: 11, Outcome.FAULTY: 1}


def test_state_that_is_too_large_is_not_executed_twice(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make()
    ends = audited(running)
    monkeypatch.setattr(auditing, "AUDIT_STATE_BYTES_MAX", 10)
    for items in batches_of(running.chain):
        running.run(items)
    assert ends.counts == {Outcome.INCOMPLETE: 12}


def test_blocks_are_chosen_by_lane_and_number_and_a_greater_share_has_all_of_a_smaller_one() -> None:
    blocks = range(100_000)
    chosen = {
        share: {block for block in blocks if is_chosen("polkadot", block, share)} for share in (0, 10_000, 100_000)
    }
    assert chosen[0] == set()
    assert 900 < len(chosen[10_000]) < 1_100
    assert chosen[10_000] < chosen[100_000]
    assert all(is_chosen("polkadot", block, MILLIONTHS) for block in range(100))
    assert chosen[10_000] != {block for block in blocks if is_chosen("kusama", block, 10_000)}


def test_audits_are_counted_from_zero() -> None:
    meter = LaneMeter("polkadot", MeterSettings())
    counted = meter._grown["validator_lane_audited_blocks_total"]
    assert counted == {("sound",): 0, ("faulty",): 0, ("incomplete",): 0}
    meter.audited(Outcome.FAULTY, 0.5)
    assert counted["faulty",] == 1
    assert meter._grown["validator_lane_audit_seconds_total"] == {(): 0.5}
