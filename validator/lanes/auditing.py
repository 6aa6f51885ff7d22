# SPDX-License-Identifier: Apache-2.0
"""Checks a share of the blocks that a lane executes, in the process that executes them (`[audit]`).

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from validator.codec.encode import BlockOutput, Encoder, OutputRecord, write
from validator.codec.schemas import schemas
from validator.core.errors import InvariantBroken
from validator.core.execute import Intervals, execute
from validator.core.handlers.errors import HandlerFault
from validator.core.limits import AUDIT_STATE_BYTES_MAX
from validator.core.outcomes import Executed
from validator.core.scale import Reader, Writer
from validator.core.types import Block, BlockNumber
from validator.lanes.definition import named_handlers
from validator.lanes.parked import shortened

if TYPE_CHECKING:
    from validator.core.rules import LaneRules
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
    """No fault was found, but not everything was checked: the state is too large, memory was short, or the second process was killed."""


class AuditFault(NamedTuple):
    """What an audit found: ``check`` is ``invariants``, ``execution`` or ``pages``."""

    block: BlockNumber
    check: str
    detail: str

    def __str__(self) -> str:
        return f"audit of block {self.block}: {self.check}: {self.detail}"


class AuditFailed(Exception):
    """An audit has found a fault, and the lane is to be parked."""


class Incomplete(Exception):
    """A block cannot be executed a second time here."""


class Raised(Exception):
    """A check has raised something."""

    def __init__(self, fault: AuditFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


Before: TypeAlias = list[bytes] | Incomplete | Raised
"""The state before a block in pages, or why there are none."""


class Again(Protocol):
    """Executes a block a second time (`execute_again`)."""

    def __call__(
        self, definition: LaneDefinition, before: Before, block: Block, intervals: Intervals
    ) -> tuple[list[OutputRecord], Prints]: ...


class Auditor:
    """Executes the blocks of one batch of a lane, and checks the chosen ones; ``note`` gets how each audit ended and its seconds."""

    def __init__(
        self,
        definition: LaneDefinition,
        settings: AuditSettings,
        note: Callable[[Outcome, float], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        again: Again | None = None,
    ) -> None:
        self._definition, self._settings, self._note, self._clock = definition, settings, note, clock
        self._again = again or execute_again
        self._last: AuditFault | None = None

    def execute(self, rules: LaneRules[Any], block: Block, intervals: Intervals) -> Executed:
        """Execute a block as `core.execute.execute` does. Raises `AuditFailed` for a fault, if it is to park the lane."""
        number = block.record.block
        if not is_chosen(self._definition.name, number, self._settings.share):
            return execute(rules, block, intervals)
        began_s = self._clock()
        before = pages_before(rules, number)
        executing_s = self._clock()
        executed = execute(rules, block, intervals)
        executed_s = self._clock()
        outcome = Outcome.SOUND
        try:
            fault = self._fault(rules, block, intervals, before, executed)
        except Incomplete:
            outcome, fault = Outcome.INCOMPLETE, None
        except Raised as raised:
            fault = raised.fault
        if fault is not None:
            outcome, self._last = Outcome.FAULTY, fault
        if self._note is not None:
            self._note(outcome, self._clock() - began_s - (executed_s - executing_s))
        if fault is not None and self._settings.parks:
            raise AuditFailed(str(fault))
        return executed

    def said(self) -> Iterator[BlockOutput]:
        """Yield the record of the batch's last fault, if there is one."""
        if self._last is not None:
            yield BlockOutput(None, [fault_record(self._definition.name, self._last)])

    def _fault(
        self,
        rules: LaneRules[Any],
        block: Block,
        intervals: Intervals,
        before: Before,
        executed: Executed,
    ) -> AuditFault | None:
        """Return the first fault. Raises `Incomplete`, `Raised`."""
        number = block.record.block
        check_invariants(self._definition, rules, number)
        repeated, prints = self._again(self._definition, before, block, intervals)
        with checking(number, "execution", "the comparison of what both executions emit"):
            detail = difference(emitted(self._definition, executed), repeated)
        if detail is not None:
            return AuditFault(number, "execution", detail + named_handlers(self._definition, number))
        with checking(number, "pages", "the comparison of both states"):
            detail = prints_of(rules).difference(prints)
        return (
            None if detail is None else AuditFault(number, "pages", detail + named_handlers(self._definition, number))
        )


class Prints(NamedTuple):
    """What a state is known by: a hash of each owner's page and of the pages that no owner has, and the root that the lane keeps."""

    pages: dict[int, bytes]
    common: bytes
    root: bytes

    def difference(self, second: Prints) -> str | None:
        """Return in words how the state differs from that of a second execution, whose root is over all pages; None if it does not."""
        if self.pages != second.pages:
            owners = sorted({*self.pages, *second.pages})
            differing = [owner for owner in owners if self.pages.get(owner) != second.pages.get(owner)]
            shown = ", ".join(map(str, differing[:SHOWN_PAGES_MAX])) + (
                " and others" if len(differing) > SHOWN_PAGES_MAX else ""
            )
            return f"the state differs from that of a second execution: pages of {shown}"
        if self.common != second.common:
            return "the state differs from that of a second execution: session, configuration or requests"
        if self.root != second.root:  # the second one has no hashes of pages yet
            return "the state root is not the one over all pages: the change of a page was not noted"
        return None

    def encode(self) -> bytes:
        out = Writer()
        out.bytes(self.common)
        out.bytes(self.root)
        out.compact(len(self.pages))
        for owner, page in sorted(self.pages.items()):
            out.u64(owner)
            out.bytes(page)
        return bytes(out.buffer)

    @classmethod
    def decode(cls, data: bytes) -> Prints:
        """Return what `encode` made bytes of. Raises `core.scale.DecodeError`."""
        reader = Reader(data)
        common, root = reader.bytes(), reader.bytes()
        prints = cls(dict(reader.items(lambda: (reader.u64(), reader.bytes()))), common, root)
        reader.end()
        return prints


def prints_of(rules: LaneRules[Any]) -> Prints:
    pages = {owner: _print(page) for owner in rules.owners() if (page := rules.page(owner)) is not None}
    return Prints(pages, _print(rules.common_page()), rules.state_root())


def _print(page: bytes) -> bytes:
    return blake2b(page, digest_size=16).digest()


def pages_before(rules: LaneRules[Any], number: BlockNumber) -> Before:
    """Return the state before a block in pages, or why there are none."""
    try:
        with checking(number, "pages", "encoding the state before the block"):
            return _pages(rules)
    except (Incomplete, Raised) as error:
        return error.with_traceback(None)


def check_invariants(definition: LaneDefinition, rules: LaneRules[Any], number: BlockNumber) -> None:
    """Check the invariants of a lane's protocol after a block. Raises `Raised`, `Incomplete`."""
    if (invariants := definition.protocol.invariants) is None:
        return
    with checking(number, "invariants", "the check of the invariants"):
        try:
            invariants(rules.state, rules.env.profile)
        except InvariantBroken as error:
            raise Raised(AuditFault(number, "invariants", str(error))) from None


def execute_again(
    definition: LaneDefinition, before: Before, block: Block, intervals: Intervals
) -> tuple[list[OutputRecord], Prints]:
    """Execute a block on the state before it, and return what it emits with the prints of the state. Raises `Raised`, `Incomplete`."""
    if not isinstance(before, list):
        raise before
    number = block.record.block
    with checking(number, "execution", "a second execution"):
        second = definition.restore_rules(before)
        executed = execute(second, block, intervals)
    with checking(number, "execution", "the comparison of what both executions emit"):
        records = emitted(definition, executed)
    with checking(number, "pages", "the comparison of both states"):
        return records, prints_of(second)


def emitted(definition: LaneDefinition, executed: Executed) -> list[OutputRecord]:
    return Encoder(definition.name, definition.digest_at(executed.receipt.block)).executed(executed)


def difference(first: list[OutputRecord], second: list[OutputRecord]) -> str | None:
    """Return in words the first record in which two executions of a block differ, None if there is none."""
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
    datum = {"lane": lane, **fault._asdict(), "detail": shortened(fault.detail)}
    return OutputRecord("lanes", fault_key(lane), write(schemas()["validator.LaneAudit"], datum))


@contextmanager
def checking(number: BlockNumber, check: str, what: str) -> Iterator[None]:
    """Raise `Incomplete` or `Raised` in place of whatever a check raises."""
    try:
        yield
    except (Incomplete, Raised):
        raise
    except MemoryError as error:
        raise Incomplete from error
    except HandlerFault as error:
        if isinstance(error.__cause__, MemoryError):
            raise Incomplete from error
        raise Raised(AuditFault(number, check, f"{what} raised {_named(error)}")) from error
    except (Exception, SystemExit) as error:
        raise Raised(AuditFault(number, check, f"{what} raised {_named(error)}")) from error


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the exception of a plugin may have no words
        return type(error).__name__


def _pages(rules: LaneRules[Any]) -> list[bytes]:
    """Return a state in pages (`core.rules.pages`). Raises `Incomplete` if it has too many bytes."""
    found = rules.common_pages()
    size = sum(map(len, found))
    for owner in rules.owners():
        page = rules.page(owner)
        if page is not None:
            found.append(page)
            size += len(page)
        if size > AUDIT_STATE_BYTES_MAX:
            raise Incomplete
    return found
