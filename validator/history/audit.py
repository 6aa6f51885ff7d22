# SPDX-License-Identifier: Apache-2.0
"""Audits a lane: executes its whole recorded history again and compares it with what was emitted and stored."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from validator.ask.plain_view import plain_view
from validator.core.errors import InvariantBroken
from validator.core.handlers.errors import HandlerFault
from validator.core.handlers.state import FIRST_OWNER
from validator.core.limits import U32_MAX, U64_MAX
from validator.errors import UserError
from validator.history.channel_ledger import ChannelLedger
from validator.history.emitted import Emitted, EmittedDiffers
from validator.history.findings import Finding
from validator.history.lane_inputs import rare_collection
from validator.history.verification import compare_pages
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.ask.state import RestoredState
    from validator.core.inputs import DeadLetter, Input
    from validator.core.lane import Lane
    from validator.core.outcomes import Executed
    from validator.core.types import BlockNumber
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

COMPARED: Final = ("verdicts", "dispatches", "channel-events", "ingress-events", "receipts")
"""The topics whose records are compared with a second execution."""

RECORDS_PER_STEP: Final = 1_000
"""Inputs that the lane takes before it executes what is complete."""

FINDINGS_MAX: Final = 1_000
"""Findings of one audit that are kept; all are counted."""


@dataclass(slots=True)
class Audit:
    """The result of an audit."""

    lane: str
    records: int = 0
    blocks: int = 0
    last_block: BlockNumber | None = None
    checks: dict[str, int] = field(default_factory=dict)
    """By check, how often it was made."""
    faults: int = 0
    notes: int = 0
    findings: list[Finding] = field(default_factory=list)
    """The first `FINDINGS_MAX`."""
    waits_for: str = ""
    """What the lane waits for at the end of its inputs."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Checks that were not made, with the reason."""

    def made(self, check: str, times: int = 1) -> None:
        """Count a check."""
        self.checks[check] = self.checks.get(check, 0) + times

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.faults += finding.fault
        self.notes += not finding.fault
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


@dataclass(frozen=True, slots=True)
class Topics:
    """Where a lane's output is."""

    kafka: KafkaTable
    prefix: str


def audit(
    inputs: Iterable[Input | DeadLetter],
    definition: LaneDefinition,
    *,
    topics: Topics | None = None,
    stored: RestoredState | None = None,
    every: int = 1,
) -> Audit:
    """Execute a lane's inputs from its first block, and return what is wrong.

    Invariants are checked after every block whose number is a multiple of ``every``, at session changes and at the end. ``topics`` None
    leaves out what was emitted, ``stored`` None the checkpoint. Raises `UserError` if an input cannot be executed.
    """
    with ExitStack() as stack:
        stack.enter_context(rare_collection())
        run = _Run(definition, stored, every)
        if topics is None:
            run.result.skipped["emitted records"] = "no topics to compare with"
        else:
            for name in COMPARED:
                emitted = Emitted(topics.kafka, topics.prefix, name, definition.name)
                stack.callback(emitted.close)
                run.emitted.append(emitted)
        source = iter(inputs)
        while items := list(islice(source, RECORDS_PER_STEP)):
            run.take(items)
        run.end()
    return run.result


class _Run:
    def __init__(self, definition: LaneDefinition, stored: RestoredState | None, every: int) -> None:
        settings = replace(definition.settings, blocks_ahead_max=U32_MAX, waiting_bytes_max=U64_MAX)
        self._processor = LaneProcessor.create(replace(definition, settings=settings))
        self._protocol = definition.protocol
        self._stored = stored
        self._every = every
        self._ledger = ChannelLedger()
        self._session_before: int | None = None
        self.emitted: list[Emitted] = []
        self.result = Audit(definition.name)
        if self._protocol.invariants is None:
            self.result.skipped["invariants"] = f"protocol {self._protocol.name} has none that a program could check"
        if stored is None:
            self.result.skipped["stored pages"] = "no checkpoint"

    @property
    def lane(self) -> Lane:
        return self._processor.lane

    def take(self, items: list[Input | DeadLetter]) -> None:
        self.result.records += len(items)
        try:
            for executed, output in self._processor.follow(items):
                self._block(executed)
                for emitted in list(self.emitted):
                    self._compare(emitted, executed.receipt.block, output)
        except HandlerFault as fault:
            raise UserError(f"lane {self.lane.name}: its inputs cannot be executed again: {fault}") from fault

    def end(self) -> None:
        """Make the checks of the state at the end."""
        result, lane = self.result, self.lane
        result.waits_for = lane.waits_for()
        if result.last_block is not None and result.last_block % self._every:
            self._invariants(result.last_block)
        if self._stored is not None and "stored pages" not in result.checks:
            found = self._stored.processor.lane.executed_block
            result.skipped["stored pages"] = (
                f"the checkpoint is after block {found}, the inputs lead to block {lane.executed_block}"
            )
        for finding in (*self._orphans(), *self._ledger.findings(self._open_channels())):
            result.add(finding)
        result.made("channels", len(self._ledger.channels))

    def _block(self, executed: Executed) -> None:
        block = executed.receipt.block
        self.result.blocks += 1
        self.result.last_block = block
        self._ledger.observe(executed)
        session_ends = executed.receipt.session != self._session_before
        if block % self._every == 0 or session_ends:
            self._invariants(block)
        self._session_before = executed.receipt.session
        if self._stored is not None and block == self._stored.processor.lane.executed_block:
            self._pages(block, self._stored)

    def _invariants(self, block: BlockNumber) -> None:
        if self._protocol.invariants is None:
            return
        self.result.made("invariants")
        try:
            if left_out := self._protocol.invariants(self.lane.rules):
                self.result.skipped.setdefault("some invariants", f"since block {block}: {left_out}")
        except InvariantBroken as error:
            self.result.add(Finding("invariants", "state", str(error), block=block))

    def _compare(self, emitted: Emitted, block: BlockNumber, output: list[Any]) -> None:
        self.result.made(emitted.name)
        try:
            emitted.compare(block, [record for record in output if record.topic == emitted.name])
        except EmittedDiffers as error:
            detail = f"emitted {error.there}, executed again {error.here}"
            self.result.add(Finding(emitted.name, "topic", detail, block=error.block))
            self.emitted.remove(emitted)  # whatever follows differs because of this

    def _pages(self, block: BlockNumber, stored: RestoredState) -> None:
        ours = stored.processor.lane
        self.result.made("stored pages")
        same_common = ours.rules.common_pages()[0] == self.lane.rules.common_pages()[0]
        for part in (() if same_common else ("session, configuration, requests",)) + compare_pages(
            ours, self.lane
        ).differing:
            self.result.add(
                Finding("stored pages", part, "the checkpoint differs from a second execution", block=block)
            )

    def _orphans(self) -> Iterator[Finding]:
        """Yield what the state holds for paras that are gone, or never were."""
        rules = self.lane.rules
        view = self._protocol.state_view or plain_view(self._protocol.traces)
        for owner in rules.owners():
            if owner >= FIRST_OWNER:
                continue
            headroom = rules.para_headroom(owner)
            if headroom is None or headroom.valid or rules.page(owner) is None:
                continue
            kept = (view.para_document(rules, owner) or {}).get("state", {})
            keys = ", ".join(key for key, value in kept.items() if value)
            yield Finding(
                "orphans", f"para {owner}", f"it is no valid para, but the state holds {keys or 'a page'}", fault=False
            )
        self.result.made("orphans")

    def _open_channels(self) -> list[tuple[int, int]]:
        rules = self.lane.rules
        view = self._protocol.state_view or plain_view(self._protocol.traces)
        found = []
        for channel in view.channels(rules):
            headroom = rules.channel_headroom(channel)
            if headroom is None or headroom.open:
                found.append(channel)
        return found
