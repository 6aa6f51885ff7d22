# SPDX-License-Identifier: Apache-2.0
"""Runs one lane's batch; if the lane cannot continue, it is parked, and no other lane notices.

A batch that fails leaves the lane's state as it was before. What the batch emitted until then stays emitted: the blocks before the fault
are the same when they are executed again, and the marker leaves them out. Its dead letters are not emitted, and none of its inputs count as
consumed.

A parked lane keeps no inputs. It remembers per partition the first one that it has not taken and the last one that it has seen, and takes
them from Kafka again when an order (`codec.orders`) lets it continue. So it costs nothing, however long it is parked; the price is that
retention may remove what it holds, which parks it again instead of losing it silently. A lane whose state is damaged may be ordered to
start over: it gives its state up, and takes all its inputs from Kafka again; the marker leaves out what it has emitted.

A batch of a resuming lane takes a bounded share of what is held, from each partition in proportion, so that it delays the batch's other
lanes by a bounded time.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from validator.codec.encode import BlockOutput, fitted
from validator.codec.inflight import Arrival
from validator.codec.orders import LaneOrder
from validator.core.handlers.errors import HandlerFault, place_of
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source, Unreadable, Withheld
from validator.core.lane import WaitingOverflow
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber, ParaId
from validator.errors import UserError
from validator.lanes.arrived import Chunk, DoesNotFit, Inputs, arrived
from validator.lanes.auditing import Again, AuditFailed, Auditor, AuditSettings
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import ForeignMarker, consumed_by
from validator.lanes.meter import LaneMeter, MeterSettings
from validator.lanes.parked import Fault, Parked, Partition, Span, point_of, running, shortened, stored_parts
from validator.lanes.processor import Observer, of_new_blocks
from validator.lanes.store import SKIPPED_DETAIL, LaneCache, Skipped, StateBackend, StateUnusable, process_batch
from validator.plugin.watchdog import handlers_were_called

RESUMED_OFFSETS_MAX: Final = 50_000
"""Offsets, of any lane, that a resuming lane reads again in one batch."""
RESUMED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of values, of all partitions together, after which the rest is left for the next batch."""


class CannotDecode(Exception):
    """A record for the lane cannot be decoded, through a bug."""


class Suspect(NamedTuple):
    """A lane that is to be parked if it is at one point (`parked.point_of`): there, its process or worker has failed.

    ``place`` is the block and the para of the message that was being processed, if one was.
    """

    point: str
    reason: str
    fault: Fault = Fault.WORKER
    place: tuple[BlockNumber, ParaId | None] | None = None


class InputsGone(Exception):
    """Kafka no longer has a held input."""


class HeldInputs(Protocol):
    """Reads inputs again."""

    def __call__(self, lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        """Return a lane's inputs within a span, and the offset up to which they are complete: ``span.end`` unless there are more bytes.

        The same arguments give the same result, as long as Kafka has the inputs. Raises `InputsGone`; other exceptions mean that Kafka
        cannot be read now.
        """


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What is known of one batch of one lane besides its inputs.

    The fields mean the same as in `LaneBatch`, ``skipped`` what ``known_skips`` does there. ``head`` is what the store has of the lane,
    ``bytes_max`` bounds its inputs.
    """

    definition: LaneDefinition
    head: bytes | None
    bytes_max: int
    suspects: dict[str, Suspect]
    skipped: frozenset[Source] = frozenset()
    checkpoint: str = ""
    was_parked: bool = False
    meter: MeterSettings | None = None
    audit: AuditSettings | None = None


@dataclass(slots=True)
class LaneBatch:
    """One batch of one lane.

    ``suspects`` is by lane. ``begins`` gets the lane's point when it is known, ``noted`` the lane and its point before anything runs that
    may end the process, ``on_bug`` the exception of a bug, ``observe`` each executed block, which ``audit`` may check. ``confirms`` checks
    the lane's marker before the batch is processed, or corrects it. ``known_skips`` are records that the lane skipped before it was started
    over. ``left`` and ``too_large`` are of `validator.lanes.arrived.Arrived`. ``checkpoint`` is the id of the job's checkpoint.
    ``was_parked`` is true if the lane was parked before it was started over, which it says if it runs.
    """

    definition: LaneDefinition
    backend: StateBackend
    cache: LaneCache
    items: Inputs
    held_inputs: HeldInputs
    suspects: Mapping[str, Suspect] = field(default_factory=dict)
    known_skips: Collection[Source] = ()
    left: Mapping[Partition, Span] = field(default_factory=dict)
    was_parked: bool = False
    too_large: str = ""
    checkpoint: str = ""
    begins: Callable[[str], None] = lambda _point: None
    noted: Callable[[str, str], None] = lambda _lane, _point: None
    confirms: Callable[[bool], None] = lambda _corrects: None
    observe: Observer | None = None
    audit: Auditor | None = None
    meter: LaneMeter | None = None
    on_bug: Callable[[BaseException], None] = lambda error: traceback.print_exception(error, file=sys.stderr)
    consumed: dict[Partition, int] = field(default_factory=dict)
    """By topic and partition, the offset after the last input taken; complete when the output is exhausted."""
    left_at: str = ""
    """The point at which the batch leaves the lane; known when the output is exhausted."""

    @classmethod
    def of(
        cls,
        request: BatchRequest,
        chunks: Iterable[Chunk],
        backend: StateBackend,
        cache: LaneCache,
        held_inputs: HeldInputs,
        meter: LaneMeter | None = None,
        again: Again | None = None,
        **calls: Any,
    ) -> LaneBatch:
        """Return the batch of a request; ``again`` is of `Auditor`, ``calls`` are further fields."""
        definition, audit = request.definition, request.audit
        items, left, too_large = arrived(chunks, request.bytes_max)
        note = None if meter is None else meter.audited
        return cls(
            definition,
            backend,
            cache,
            items,
            held_inputs,
            request.suspects,
            request.skipped,
            left,
            request.was_parked,
            too_large,
            request.checkpoint,
            observe=None if meter is None else meter.executed,
            audit=None if audit is None else Auditor(definition, audit, note, again=again),
            meter=meter,
            **calls,
        )

    @property
    def lane(self) -> str:
        return self.definition.name

    def measured(self) -> Iterator[BlockOutput]:
        """Yield the batch's output, with the report of its meter if it has one."""
        if self.meter is None:
            return self.run()
        return self.meter.measured(self.run(), lambda: self.cache.look(self.lane))

    def run(self) -> Iterator[BlockOutput]:
        """Yield the batch's output. Raises only what the store or Kafka raise."""
        stored = self.backend.load_head()
        try:
            parked, head = stored_parts(stored)
            orders = self._orders(parked, head)
        except DecodeError as error:
            reason = shortened(f"lane {self.lane}: it is parked, and why is damaged: {error}")
            parked, head = Parked(Fault.STATE, reason, None), None
            orders = self._orders(None, None)
        if any(order.inputs for order in orders):
            head = None
        suspect = self.suspects.get(self.lane)
        point = self.left_at = point_of(stored)
        self.begins(point)
        if suspect is not None and suspect.point == point:
            held = self._holding(parked or Parked(suspect.fault, "", None)).obeying(orders)
            reason = suspect.reason + ("" if suspect.place is None else self._placed(*suspect.place))
            yield from self._park(replace(held, fault=suspect.fault, reason=shortened(reason), resuming=False), head)
            return
        self.noted(self.lane, point)
        yield from self._go_on(head, orders) if parked is None else self._stay(parked, head, orders)

    def _placed(self, block: BlockNumber, para: ParaId | None) -> str:
        """Return where a message is, as text to append: its block, and those of the para's candidates in it that this batch brings."""
        found = [
            ":".join(map(str, item.source))
            for item in self.items
            if isinstance(item, Input)
            and (item.kind, item.block, item.fields[:1]) == (RecordKind.CANDIDATE, block, (para,))
        ]
        return place_of(block, para, found or None)

    def _go_on(self, head: bytes | None, orders: list[LaneOrder]) -> Iterator[BlockOutput]:
        """Process what the batch brings."""
        at_fault = Parked(Fault.BUG, "", None, skips=frozenset(self.known_skips)).obeying(orders)
        if self.too_large:
            reason = shortened(f"lane {self.lane}: {self.too_large}")
            # the lane itself is not at fault: whatever arrives next lets it take a share
            parked = self._holding(replace(at_fault, fault=Fault.MEMORY, reason=reason, resuming=True))
            yield from self._park(parked, head)
            return
        if (yield from self._attempt(head, self.items, at_fault)) and self.was_parked and head is None:
            yield running(self.lane)

    def _stay(self, before: Parked, head: bytes | None, orders: list[LaneOrder]) -> Iterator[BlockOutput]:
        """Hold what the batch brings, and take a share of what is held if an order says so."""
        parked = self._holding(before).obeying(orders)
        if orders and _knows_nothing(before, head) and not any(order.inputs for order in orders):
            yield from self._park(parked, None)
            return
        if orders:
            parked = replace(parked, resuming=True)
        if not parked.resuming:
            if parked != before:
                self._save_head(parked.encode(head))
            return
        try:
            items, left = self._take(parked.held)
        except (InputsGone, MemoryError) as error:
            gone = isinstance(error, InputsGone)
            fault, reason = (
                (Fault.INPUTS, f"lane {self.lane}: {error}") if gone else (Fault.MEMORY, _no_memory(self.lane))
            )
            _release(error)
            yield from self._park(replace(parked, fault=fault, reason=shortened(reason), resuming=False), head)
            return
        after = replace(parked, held=left) if left else None
        if (yield from self._attempt(head, Inputs(items), parked, after)):
            yield running(self.lane) if after is None else after.record(self.lane)

    def _holding(self, parked: Parked) -> Parked:
        return parked.holding(self.items, self.left)

    def _orders(self, parked: Parked | None, head: bytes | None) -> list[LaneOrder]:
        """Return the batch's orders; one to start over is one to continue where it must not count.

        It counts only for a lane that is parked: one that runs has taken what the order names, and one that takes inputs again since an
        earlier order may have taken more, which would be lost. And only with the checkpoint that has consumed this: another one may not
        have come as far when it meets the order, and would bring the rest again. A lane whose parked state was damaged has forgotten what
        it held, so an order from before that does not name everything.
        """

        def counts(order: LaneOrder) -> bool:
            if parked is None or parked.resuming or order.checkpoint != self.checkpoint:
                return False
            return not _knows_nothing(parked, head) or _reaches(order, parked.held)

        return [each if counts(each) else each._replace(inputs=()) for each in self.items.orders]

    def _take(self, held: dict[Partition, Span]) -> tuple[list[Arrival], dict[Partition, Span]]:
        """Return the next share of what is held, and the rest.

        If one partition's share has too many bytes, all shares become smaller: blocks without their candidates would only wait.
        """
        total = sum(span.end - span.first for span in held.values())
        found: list[tuple[Partition, Span, list[Arrival], int]] = []
        for place, span in sorted(held.items()):
            share = -(-(span.end - span.first) * min(total, RESUMED_OFFSETS_MAX) // total)
            wanted = Span(span.first, min(span.end, span.first + share))
            found.append((place, wanted, *self.held_inputs(self.lane, place, wanted, RESUMED_BYTES_MAX // len(held))))
        taken = min((Fraction(end - wanted.first, wanted.end - wanted.first) for _, wanted, _, end in found), default=1)
        items: list[Arrival] = []
        left: dict[Partition, Span] = {}
        for place, wanted, inputs, _ in found:
            end = wanted.first + ceil((wanted.end - wanted.first) * taken)
            items += (item for item in inputs if item.source.offset < end)
            if end < held[place].end:
                left[place] = Span(end, held[place].end)
        return items, left

    def _attempt(
        self, head: bytes | None, items: Inputs, at_fault: Parked, after: Parked | None = None
    ) -> Generator[BlockOutput, None, bool]:
        """Process inputs and return whether that was possible; otherwise the lane is parked as ``at_fault``, and holds the batch.

        With ``after`` the lane has more to take afterwards.
        """
        state = CollectedWrites(self.backend, head)
        if head is None:  # a lane that starts over may have left pages
            state.remove_slots()
        skipped = Skipped(at_fault.skips, at_fault.since_block)
        others: list[BlockOutput] = []
        since = at_fault.since_block
        consumed: dict[Partition, int] = {}
        observe = of_new_blocks(self.observe, since)

        def parts() -> Iterator[list[Input | DeadLetter]]:
            nonlocal consumed
            for part in items.parts():
                consumed = consumed_by(part, consumed)
                yield list(_inputs(part, at_fault.skips))

        try:
            with state.noting(ForeignMarker):
                self.confirms(at_fault.resuming and at_fault.fault is Fault.MARKER)
            for output in process_batch(self.definition, state, self.cache, parts(), skipped, observe, self.audit):
                if output.block is None:  # if the batch fails, its dead letters come again
                    others.append(output)
                else:
                    since = output.block
                    yield output
        except (Exception, SystemExit) as error:
            if state.failed:
                raise
            fault = fault_of(error)
            if fault is Fault.BUG:
                self.on_bug(error)
            reason = _reason(self.lane, fault, error)
            if fault in (Fault.BUG, Fault.MEMORY) or handlers_were_called():
                reason = with_handlers(reason, self.definition)
            reason = shortened(reason)
            takes_shares = isinstance(error, DoesNotFit)  # only a whole batch raises it
            _release(error)
            parked = replace(at_fault, fault=fault, reason=reason, since_block=since, resuming=takes_shares)
            yield from self._park(self._holding(parked), head)
            return False
        self.left_at = point_of(state.write(after))
        self.consumed = consumed
        yield from others
        return True

    def _park(self, parked: Parked, head: bytes | None) -> Iterator[BlockOutput]:
        self.cache.take(self.lane)
        self._save_head(parked.encode(head))
        yield parked.record(self.lane)

    def _save_head(self, head: bytes) -> None:
        self.backend.save_head(head)
        self.left_at = point_of(head)


def _knows_nothing(parked: Parked, head: bytes | None) -> bool:
    """Return whether nothing is known of a lane's state: only an order to start over helps."""
    return head is None and parked.fault is Fault.STATE and not parked.resuming


def _reaches(order: LaneOrder, held: Mapping[Partition, Span]) -> bool:
    """Return whether an order to start over names an input that the lane holds: the job had read it when the order was written."""
    return any(span.end > held[place].first for span in order.inputs if (place := (span.topic, span.partition)) in held)


def _inputs(items: Iterable[Arrival], skips: frozenset[Source]) -> Iterator[Input | DeadLetter]:
    """Yield what a lane takes. Orders have had their effect when they arrived. Raises `CannotDecode`."""
    for item in items:
        if isinstance(item, Input):
            yield item
        elif isinstance(item, Unreadable):
            if item.source not in skips:
                topic, partition, offset = item.source
                raise CannotDecode(f"the record at {topic}:{partition}:{offset}: {item.detail}")
            yield fitted(
                DeadLetter(item.lane, DeadReason.SKIPPED, f"{SKIPPED_DETAIL}: {item.detail}", item.source, item.raw)
            )
        elif not isinstance(item, LaneOrder):
            assert not isinstance(item, Withheld)  # `arrived` has found such a batch too large
            yield item


def fault_of(error: BaseException) -> Fault:
    """Return what kind of fault an exception of a lane is."""
    for kinds, fault in (
        (WaitingOverflow, Fault.WAITING),
        (HandlerFault, Fault.HANDLER),
        (MemoryError, Fault.MEMORY),
        (StateUnusable, Fault.STATE),
        (AuditFailed, Fault.AUDIT),
        (ForeignMarker, Fault.MARKER),
        (UserError, Fault.CONFIGURATION),
    ):
        if isinstance(error, kinds):
            return fault
    return Fault.BUG


def _reason(lane: str, fault: Fault, error: BaseException) -> str:
    if isinstance(error, CannotDecode | DoesNotFit):
        return f"lane {lane}: {error}"
    if fault is Fault.MEMORY:
        return _no_memory(lane)
    if fault is Fault.BUG:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"lane {lane}: {type(error).__name__} at {where}: {error}; the worker's log has the traceback"
    text = str(error)
    return text if text.startswith(f"lane {lane}") else f"lane {lane}: {text}"


def with_handlers(reason: str, definition: LaneDefinition) -> str:
    """Return why a lane is parked with the lane's handlers, which may have caused whatever went wrong there, unless it names one."""
    handlers = definition.all_handlers
    if not handlers or any(each in reason for each in handlers):
        return reason
    return f"{reason}; its handlers are {', '.join(handlers)}"


def _no_memory(lane: str) -> str:
    return f"lane {lane}: its worker ran out of memory: raise [job] worker_memory"


def _release(error: BaseException) -> None:
    """Free what the failed call had in its variables: the worker lives on, and does not look for cycles itself."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    gc.collect()


class CollectedWrites:
    """A lane's store (`StateBackend`) whose writes wait for `write`; ``failed`` once the store itself, or the log, has raised."""

    def __init__(self, backend: StateBackend, head: bytes | None) -> None:
        self._backend = backend
        self._head = head
        self._writes: list[Callable[[], None]] = []
        self.failed = False

    def load_head(self) -> bytes | None:
        """Return the head as it is in this batch."""
        return self._head

    def save_head(self, head: bytes) -> None:
        self._head = head

    def load_slots(self) -> dict[int, bytes]:
        with self.noting():
            return self._backend.load_slots()

    def load_journal(self) -> Iterator[bytes]:
        with self.noting():
            entries = iter(self._backend.load_journal())
        while True:
            with self.noting():
                entry = next(entries, None)
            if entry is None:
                return
            yield entry

    def save_slot(self, number: int, data: bytes) -> None:
        self._writes.append(partial(self._backend.save_slot, number, data))

    def remove_slot(self, number: int) -> None:
        self._writes.append(partial(self._backend.remove_slot, number))

    def remove_slots(self) -> None:
        for number in sorted(self.load_slots()):
            self.remove_slot(number)

    def append_journal(self, entry: bytes) -> None:
        self._writes.append(partial(self._backend.append_journal, entry))

    def clear_journal(self) -> None:
        self._writes.append(self._backend.clear_journal)

    def write(self, parked: Parked | None) -> bytes:
        """Write everything, the head last, and return it; ``parked`` goes around the head."""
        for each in self._writes:
            each()
        assert self._head is not None
        head = self._head if parked is None else parked.encode(self._head)
        self._backend.save_head(head)
        return head

    @contextmanager
    def noting(self, *of_the_lane: type[Exception]) -> Iterator[None]:
        """Note that a call outside of the lane has raised; some exceptions are the lane's own."""
        try:
            yield
        except BaseException as error:
            self.failed = not isinstance(error, of_the_lane)
            raise
