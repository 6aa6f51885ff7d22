# SPDX-License-Identifier: Apache-2.0
"""Checks a share of the blocks that a lane executes, in the worker that executes them (`[audit]`).

The state before a chosen block is encoded in pages. After the block a second rule set, restored from these pages, executes it again. What
both emit and all of their pages must be the same bytes, and the root that the lane keeps up to date must be the one over these pages. So a
state that its pages do not hold completely is found, a page whose change was not noted, and a rule or handler that does not give the same
result twice. The protocol's invariants are checked on the lane's own state. An exception in a check is a fault that it found, and does the
lane no harm. Which blocks are chosen depends on the lane's name and the block's number only: a block that is executed again is chosen
again, and two deployments choose the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """No fault was found, but not everything was checked: the state is too large, memory was short, or a handler was too slow."""


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


class _Raised(Exception):
    """A check has raised something."""

    def __init__(self, fault: AuditFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


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
        before = self._before(rules, number)
        executing_s = self._clock()
        executed = execute(rules, block, intervals)
        executed_s = self._clock()
        outcome = Outcome.SOUND
        try:
            fault = self._fault(rules, block, intervals, before, executed)
        except _Incomplete:
            outcome, fault = Outcome.INCOMPLETE, None
        except _Raised as raised:
            fault = raised.fault
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

    def _before(self, rules: RuleSet[Any], number: BlockNumber) -> list[bytes] | _Incomplete | _Raised:
        """Return the state before the block in pages, or why there are none."""
        try:
            with _checking(number, "pages", "encoding the state before the block"):
                return _pages(rules)
        except (_Incomplete, _Raised) as error:
            return error.with_traceback(None)

    def _fault(
        self,
        rules: RuleSet[Any],
        block: Block,
        intervals: Intervals,
        before: list[bytes] | _Incomplete | _Raised,
        executed: Executed,
    ) -> AuditFault | None:
        """Return the first fault. Raises `_Incomplete`, `_Raised`."""
        number = block.record.block
        invariants = self._definition.protocol.invariants
        if invariants is not None:
            with _checking(number, "invariants", "the check of the invariants"):
                try:
                    invariants(rules)
                except InvariantBroken as error:
                    return AuditFault(number, "invariants", str(error))
        if not isinstance(before, list):
            raise before
        with _checking(number, "execution", "a second execution"):
            second = self._definition.restore_rules(before)
            again = execute(second, block, intervals)
        with _checking(number, "execution", "the comparison of what both executions emit"):
            if (detail := self._difference(executed, again)) is not None:
                return AuditFault(number, "execution", detail)
        with _checking(number, "pages", "the comparison of both states"):
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


@contextmanager
def _checking(number: BlockNumber, check: str, what: str) -> Iterator[None]:
    """Raise `_Incomplete` or `_Raised` in place of whatever a check raises."""
    try:
        yield
    except _Incomplete:
        raise
    except (HandlerFault, MemoryError) as error:
        raise _Incomplete from error
    except (Exception, SystemExit) as error:
        raise _Raised(AuditFault(number, check, f"{what} raised {_named(error)}")) from error


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the exception of a plugin may have no words
        return type(error).__name__


def _pages(rules: RuleSet[Any]) -> list[bytes]:
    """Return a state in pages (`core.rules.pages`). Raises `_Incomplete` if it has too many bytes."""
    found = rules.common_pages()
    size = sum(map(len, found))
    for owner in rules.owners():
        page = rules.page(owner)
        if page is not None:
            found.append(page)
            size += len(page)
        if size > AUDIT_STATE_BYTES_MAX:
            raise _Incomplete
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
