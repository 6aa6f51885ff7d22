# SPDX-License-Identifier: Apache-2.0
"""Checks a share of the blocks that a lane executes, in the worker that executes them (`[audit]`).

The state before a chosen block is encoded in pages. After the block a second rule set, restored from these pages, executes it again. What
both emit and all of their pages must be the same bytes, and the root that the lane keeps up to date must be the one over these pages. So a
state that its pages do not hold completely is found, a page whose change was not noted, and a rule or handler that does not give the same
result twice. The protocol's invariants are checked on the lane's own state. Which blocks are chosen depends on the lane's name and the
block's number only: a block that is executed again is chosen again, and two deployments choose the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.codec.encode import BlockOutput, Encoder, OutputRecord, write
from validator.codec.schemas import schemas
from validator.core.errors import InvariantBroken
from validator.core.execute import Intervals, execute
from validator.core.handlers.errors import HandlerFault
from validator.core.limits import AUDIT_STATE_BYTES_MAX
from validator.core.outcomes import Executed
from validator.core.types import Block, BlockNumber
from validator.lanes.parked import shortened

if TYPE_CHECKING:
    from validator.core.rules import RuleSet
    from validator.lanes.definition import LaneDefinition

MILLIONTHS: Final = 1_000_000
SHOWN_PAGES_MAX: Final = 5
"""Owners of differing pages that a finding names."""


class AuditSettings(NamedTuple):
    """Which blocks are checked: ``share`` in millionths. With ``parks``, a fault parks the lane before the block emits anything."""

    share: int
    parks: bool = False


class Outcome(StrEnum):
    """How the audit of a block ended."""

    SOUND = "sound"
    FAULTY = "faulty"
    INCOMPLETE = "incomplete"
    """The invariants hold, but the block was not executed a second time: the state is too large, or a handler was too slow."""


class AuditFault(NamedTuple):
    """What an audit found: ``check`` is ``invariants``, ``execution`` or ``pages``."""

    block: BlockNumber
    check: str
    detail: str

    def __str__(self) -> str:
        return f"audit of block {self.block}: {self.check}: {self.detail}"


class AuditFailed(Exception):
    """An audit has found a fault, and the lane is to be parked."""


class _Incomplete(Exception):
    """A block cannot be executed a second time here."""


class Auditor:
    """Executes the blocks of one batch of a lane, and checks the chosen ones; ``note`` gets how each audit ended and its seconds."""

    def __init__(
        self,
        definition: LaneDefinition,
        settings: AuditSettings,
        note: Callable[[Outcome, float], None] = lambda _outcome, _seconds: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._definition, self._settings, self._note, self._clock = definition, settings, note, clock
        self._last: AuditFault | None = None

    def execute(self, rules: RuleSet[Any], block: Block, intervals: Intervals) -> Executed:
        """Execute a block as `core.execute.execute` does. Raises `AuditFailed` for a fault, if it is to park the lane."""
        number = block.record.block
        if not is_chosen(self._definition.name, number, self._settings.share):
            return execute(rules, block, intervals)
        began_s = self._clock()
        before = _pages(rules)
        executing_s = self._clock()
        executed = execute(rules, block, intervals)
        executed_s = self._clock()
        outcome = Outcome.SOUND
        try:
            fault = self._fault(rules, block, intervals, before, executed)
        except _Incomplete:
            outcome, fault = Outcome.INCOMPLETE, None
        if fault is not None:
            outcome, self._last = Outcome.FAULTY, fault
        self._note(outcome, self._clock() - began_s - (executed_s - executing_s))
        if fault is not None and self._settings.parks:
            raise AuditFailed(str(fault))
        return executed

    def said(self) -> Iterator[BlockOutput]:
        """Yield the record of the batch's last fault, if there is one."""
        if self._last is not None:
            yield BlockOutput(None, [fault_record(self._definition.name, self._last)])

    def _fault(
        self, rules: RuleSet[Any], block: Block, intervals: Intervals, before: list[bytes] | None, executed: Executed
    ) -> AuditFault | None:
        """Return the first fault. Raises `_Incomplete`."""
        number = block.record.block
        invariants = self._definition.protocol.invariants
        if invariants is not None:
            try:
                invariants(rules)
            except InvariantBroken as error:
                return AuditFault(number, "invariants", str(error))
        if before is None:
            raise _Incomplete
        try:
            second = self._definition.restore_rules(before)
            again = execute(second, block, intervals)
        except (HandlerFault, MemoryError) as error:
            raise _Incomplete from error
        except Exception as error:  # noqa: BLE001 - the first execution raised nothing
            return AuditFault(number, "execution", f"a second execution raised {type(error).__name__}: {error}")
        if (detail := self._difference(executed, again)) is not None:
            return AuditFault(number, "execution", detail)
        detail = _differing_pages(rules, second)
        return None if detail is None else AuditFault(number, "pages", detail)

    def _difference(self, executed: Executed, again: Executed) -> str | None:
        """Return the first record in which two executions differ, in words."""
        encoder = Encoder(self._definition.name, self._definition.digest_at(executed.receipt.block))
        first, second = (encoder.executed(each) for each in (executed, again))
        for at, (one, other) in enumerate(zip(first, second, strict=False)):
            if one != other:
                return f"record {at} of the block, of topic {one.topic}, differs in a second execution"
        if len(first) != len(second):
            return f"the block emits {len(first)} records, and {len(second)} in a second execution"
        return None


def is_chosen(lane: str, block: BlockNumber, share: int) -> bool:
    """Return whether a block is checked: for about ``share`` of a million block numbers, spread by a hash."""
    if share == 0:
        return False
    drawn = int.from_bytes(blake2b(f"{lane}/{block}".encode(), digest_size=8).digest())
    return drawn % MILLIONTHS < share


def fault_key(lane: str) -> bytes:
    """Return the key of a lane's `LaneAudit` records."""
    return f"{lane}/audit".encode()


def fault_record(lane: str, fault: AuditFault) -> OutputRecord:
    """Return the record of a fault."""
    datum = {"lane": lane, **fault._asdict(), "detail": shortened(fault.detail)}
    return OutputRecord("lanes", fault_key(lane), write(schemas()["validator.LaneAudit"], datum))


def _pages(rules: RuleSet[Any]) -> list[bytes] | None:
    """Return a state in pages (`core.rules.pages`), or None if it has too many bytes."""
    found = rules.common_pages()
    size = sum(map(len, found))
    for owner in rules.owners():
        page = rules.page(owner)
        if page is not None:
            found.append(page)
            size += len(page)
        if size > AUDIT_STATE_BYTES_MAX:
            return None
    return found


def _differing_pages(rules: RuleSet[Any], second: RuleSet[Any]) -> str | None:
    """Return in words how two states differ; None if their pages are the same, and the root that is kept is the one over all of them."""
    owners = sorted({*rules.owners(), *second.owners()})
    differing = [owner for owner in owners if rules.page(owner) != second.page(owner)]
    if differing:
        shown = ", ".join(map(str, differing[:SHOWN_PAGES_MAX])) + (
            " and others" if len(differing) > SHOWN_PAGES_MAX else ""
        )
        return f"the state differs from that of a second execution: pages of {shown}"
    if rules.common_page() != second.common_page():
        return "the state differs from that of a second execution: session, configuration or requests"
    if rules.state_root() != second.state_root():  # the second one has no hashes of pages yet
        return "the state root is not the one over all pages: the change of a page was not noted"
    return None
