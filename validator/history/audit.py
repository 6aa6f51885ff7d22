# SPDX-License-Identifier: Apache-2.0
"""Audits a lane: executes its whole recorded history again and compares it with what was emitted and stored."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.ask.plain_view import view_of
from validator.core.errors import InvariantBroken
from validator.core.handlers.state import FIRST_OWNER
from validator.core.levels import LevelChoice, Levels
from validator.core.limits import U32_MAX
from validator.core.outcomes import ChannelEventKind, InputKind
from validator.history.emitted import COMPARED, Emitted, EmittedDiffers, EmittedInFile, OtherRuntime
from validator.history.engine import Engine, NotExecuted, Replica, stopped
from validator.history.verification import compare_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from validator.ask.state import RestoredState
    from validator.core.inputs import DeadLetter, Input
    from validator.core.outcomes import Executed, MessageRange
    from validator.core.types import Balance, BlockNumber, ChannelId, ParaId
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

FINDINGS_MAX: Final = 1_000
"""Findings of one audit that are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an audit has found: in which check, about what, and in which block if it is about one.

    A *fault* contradicts the protocol, or what this program would do. Anything else is a *note*: it follows the rules, but somebody may
    want to know it.
    """

    check: str
    subject: str
    detail: str
    fault: bool = True
    block: BlockNumber | None = None


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
    stopped: str = ""
    """Why the history ends early, if it does: what its next block lacks, and how many records no block has used."""
    unused: int = 0
    """Records that are there and belong to no executed block."""
    refused: int = 0
    """Records that no block takes."""
    other_runtime: OtherRuntime | None = None
    """Where the emitted records name another runtime than the definition's."""
    failed: str = ""
    """Why the block after the last one cannot be executed, if that is why the audit ended."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Checks that were not made, with the reason."""

    def made(self, check: str, times: int = 1) -> None:
        self.checks[check] = self.checks.get(check, 0) + times

    def add(self, finding: Finding) -> None:
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
    documents: Mapping[str, Iterator[dict[str, Any]]] = MappingProxyType({}),
) -> Audit:
    """Execute a lane's inputs from its first block, and return what is wrong.

    Invariants are checked after every block whose number is a multiple of ``every``, at session changes and at the end. Without ``topics``
    the inputs are of files, which must be complete, and what was emitted is in ``documents``, by topic; ``stored`` None leaves out the
    checkpoint. Ends before a block in which a handler fails (`Observer.failed`). Raises `UserError` if a record cannot be read.
    """
    observer = Observer(definition, stored, every, live=topics is not None)
    with ExitStack() as stack:
        if topics is None:
            for name in COMPARED:
                if name in documents:
                    observer.emitted.append(EmittedInFile(documents[name], name, definition.name))
                else:
                    observer.result.skipped[name] = f"the folder has no {name}.jsonl to compare with"
        else:
            for name in COMPARED:
                observer.emitted.append(
                    stack.enter_context(closing(Emitted(topics.kafka, topics.prefix, name, definition.name)))
                )
        engine = Engine(inputs, [observer.replica])
        try:
            engine.run(observer.observe)
        except NotExecuted as failed:
            observer.failed(failed)
    observer.result.records = engine.records + engine.dead
    observer.refused(engine.refused, engine.refused_count)
    observer.end()
    return observer.result


class Observer:
    """Checks each block that a lane executes again."""

    def __init__(
        self, definition: LaneDefinition, stored: RestoredState | None = None, every: int = 1, *, live: bool = False
    ) -> None:
        self._live = live
        failing = f"lane {definition.name}: its inputs cannot be executed again"
        self.replica = Replica.create(definition, failing)
        self.lane = self.replica.lane
        self.protocol = definition.protocol
        self._stored = stored
        self._every = every
        self.ledger = ChannelLedger()
        self.queues = QueueLedger()
        self._session_before: int | None = None
        self.emitted: list[Emitted] = []
        self._differing: list[Emitted] = []
        """Those of ``emitted`` whose records differ."""
        self.result = Audit(definition.name)
        if self.protocol.invariants is None:
            self.result.skipped["invariants"] = f"protocol {self.protocol.name} has none that a program could check"
        if stored is None:
            self.result.skipped["stored pages"] = "no checkpoint"

    def end(self) -> None:
        """Make the checks of the state at the end; one in the middle of a block that failed says nothing."""
        result, lane = self.result, self.lane
        result.other_runtime = min(
            (each.other_runtime for each in (*self.emitted, *self._differing) if each.other_runtime), default=None
        )
        if result.failed:
            result.skipped["orphans, channels"] = "the block after the last one failed halfway"
            for finding in self.ledger.findings(()):
                result.add(finding)
            return
        result.waits_for = lane.waits_for()
        self._history()
        if result.last_block is not None and result.last_block % self._every:
            self._invariants(result.last_block)
        if self._stored is not None and "stored pages" not in result.checks:
            found = self._stored.processor.lane.executed_block
            result.skipped["stored pages"] = (
                f"the checkpoint is after block {found}, the inputs lead to block {lane.executed_block}"
            )
        for finding in (*self._orphans(), *self.ledger.findings(self._open_channels())):
            result.add(finding)
        result.made("channels", len(self.ledger.channels))
        if result.last_block is not None:
            for finding in self.queues.findings(lane.rules.levels(result.last_block, ALL)):
                result.add(finding)
        result.made("queues", len(self.queues.gone))

    def refused(self, letters: Iterable[DeadLetter], number: int) -> None:
        """Note the records that no block takes: in files a fault, on topics what the job has written to `dead-letters`, too."""
        self.result.refused = number
        for letter in letters:
            topic, partition, offset = letter.source
            place = f"{topic}[{partition}]@{offset}" if self._live else f"{topic}.jsonl, line {offset}"
            detail = f"{letter.reason.name.lower()}: {letter.detail}"
            self.result.add(Finding("inputs", place, detail, fault=not self._live, block=letter.block))

    def _history(self) -> None:
        """Note a history that ends before all its records are used, or before what the lane has emitted or stored."""
        result, lane = self.result, self.lane
        result.unused, last = lane.counters.waiting, lane.executed_block
        result.stopped = stopped(lane, live=self._live)
        beyond = [f"{each.name} have later blocks" for each in self.emitted if each.has_since(last + 1)]
        if self._stored is not None and (stored := self._stored.processor.lane.executed_block) > last:
            beyond.append(f"the checkpoint is after block {stored}")
        if beyond:
            result.stopped = result.stopped or f"stopped after block {last}: {result.waits_for}"
            result.stopped += f"; {', '.join(beyond)}"
        if result.stopped:
            result.add(Finding("history", "inputs", result.stopped, block=last))
        for each in self.emitted:
            if each.ended_before is not None:
                detail = f"they end before block {each.ended_before}, so nothing was compared from there on"
                result.add(Finding(each.name, "end", detail, fault=not self._live, block=each.ended_before))

    def observe(self, given: Sequence[Executed]) -> None:
        (executed,) = given
        block = executed.receipt.block
        self.result.blocks += 1
        self.result.last_block = block
        self.ledger.observe(executed)
        self.queues.observe(executed)
        session_ends = executed.receipt.session != self._session_before
        if block % self._every == 0 or session_ends:
            self._invariants(block)
        self._session_before = executed.receipt.session
        if self._stored is not None and block == self._stored.processor.lane.executed_block:
            self._pages(block, self._stored)
        output = self.replica.processor.encoded(executed)
        for emitted in list(self.emitted):
            self._compare(emitted, block, output)

    def failed(self, error: NotExecuted) -> None:
        """Note the block that cannot be executed: a fault if the lane has executed it before, else what the lane is parked at."""
        self.result.failed = str(error)
        executed_before = any(emitted.has_since(error.block) for emitted in self.emitted)
        self.result.add(Finding("execution", "handler", str(error), executed_before, error.block))

    def _invariants(self, block: BlockNumber) -> None:
        if self.protocol.invariants is None:
            return
        self.result.made("invariants")
        try:
            if left_out := self.protocol.invariants(self.lane.rules.state, self.lane.rules.env.profile):
                self.result.skipped.setdefault("some invariants", f"since block {block}: {left_out}")
        except InvariantBroken as error:
            self.result.add(Finding("invariants", "state", str(error), block=block))

    def _compare(self, emitted: Emitted, block: BlockNumber, output: list[Any]) -> None:
        try:
            emitted.compare(block, [record for record in output if record.topic == emitted.name])
        except EmittedDiffers as error:
            detail = f"emitted {error.there}, executed again {error.here}"
            self.result.add(Finding(emitted.name, "topic", detail, block=error.block))
            self.emitted.remove(emitted)  # whatever follows differs because of this
            self._differing.append(emitted)
        if emitted.ended_before is None:
            self.result.made(emitted.name)

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
        view = view_of(self.protocol)
        for owner in rules.owners():
            if owner >= FIRST_OWNER:
                continue
            headroom = rules.para_headroom(owner)
            if headroom is None or headroom.valid or rules.page(owner) is None:
                continue
            kept = (view.para_document(rules.state, owner) or {}).get("state", {})
            keys = ", ".join(key for key, value in kept.items() if value)
            yield Finding(
                "orphans", f"para {owner}", f"it is no valid para, but the state holds {keys or 'a page'}", fault=False
            )
        self.result.made("orphans")

    def _open_channels(self) -> list[tuple[int, int]]:
        rules = self.lane.rules
        view = view_of(self.protocol)
        found = []
        for channel in view.channels(rules.state):
            headroom = rules.channel_headroom(channel)
            if headroom is None or headroom.open:
                found.append(channel)
        return found


_ENDS: Final = (ChannelEventKind.CLOSED, ChannelEventKind.REQUEST_EXPIRED, ChannelEventKind.REQUEST_DROPPED)


@dataclass(slots=True)
class Followed:
    """A channel since it was requested: deposits that are reserved now, and the last block with a message over it."""

    since: BlockNumber
    sender_deposit: Balance = 0
    recipient_deposit: Balance = 0
    ended: BlockNumber | None = None
    opened: BlockNumber | None = None
    used: BlockNumber | None = None


class ChannelLedger:
    """Adds up what the events of every channel reserve and return. Channels of the first state are unknown until they end."""

    def __init__(self) -> None:
        self.channels: dict[ChannelId, Followed] = {}
        self._wrong: list[Finding] = []
        self._messages = False

    def observe(self, executed: Executed) -> None:
        block = executed.receipt.block
        for verdict in executed.verdicts:
            if verdict.messages and verdict.kind in (InputKind.CANDIDATE, InputKind.INCLUSION):
                self._messages = True
                for message in verdict.messages:
                    self._use((verdict.para_id, message.recipient), block)
        for entry in executed.ingress_events:
            self._messages = True
            self._use((entry.sender, entry.recipient), block)
        for event in executed.channel_events:
            channel_id = event.sender, event.recipient
            if event.event is ChannelEventKind.REQUESTED:
                self.channels[channel_id] = Followed(block)
            followed = self.channels.get(channel_id)
            if followed is None:
                continue  # the first state has it
            followed.sender_deposit += event.sender_deposit
            followed.recipient_deposit += event.recipient_deposit
            if event.event is ChannelEventKind.OPENED:
                followed.opened = block
            self._check(channel_id, followed, block, ended=event.event in _ENDS)

    def findings(self, open_channels: Iterable[ChannelId]) -> Iterator[Finding]:
        """Yield deposits that do not add up, and open channels over which nothing was ever sent."""
        yield from self._wrong
        if not self._messages:
            return  # the protocol does not say over which channels messages go, or there were none
        for channel_id in open_channels:
            followed = self.channels.get(channel_id)
            if followed is not None and followed.used is None:
                since = followed.since if followed.opened is None else followed.opened
                yield Finding(
                    "unused channels", _name(channel_id), f"nothing was sent over it since block {since}", fault=False
                )

    def _use(self, channel_id: ChannelId, block: BlockNumber) -> None:
        followed = self.channels.get(channel_id)
        if followed is not None:
            followed.used = block

    def _check(self, channel_id: ChannelId, followed: Followed, block: BlockNumber, *, ended: bool) -> None:
        sums = {"sender": followed.sender_deposit, "recipient": followed.recipient_deposit}
        for side, deposit in sums.items():
            if deposit < 0:
                detail = f"{-deposit} more was returned to the {side} than it had reserved"
                self._wrong.append(Finding("deposits", _name(channel_id), detail, block=block))
        if not ended:
            return
        del self.channels[channel_id]
        for side, deposit in sums.items():
            if deposit > 0:
                detail = f"it ended, and {deposit} of the {side} is still reserved"
                self._wrong.append(Finding("deposits", _name(channel_id), detail, fault=False, block=block))


CLOSED: Final = -(2**63)
"""In place of a number: the queue is gone, so nothing leaves it until it is opened again."""

Queue: TypeAlias = tuple["ParaId | None", "ParaId"]
"""Sender and recipient; the sender of a para's downward queue is None."""


class QueueLedger:
    """Follows the numbers of the messages that leave each queue: each message leaves once, received or dropped, in order, or still waits.

    Queues of the first state are followed from the first message that leaves them. Upward messages have no numbers.
    """

    def __init__(self) -> None:
        self.gone: dict[Queue, int] = {}
        """By queue, the number of the last message that has left it."""
        self._wrong: list[Finding] = []

    def observe(self, executed: Executed) -> None:
        block = executed.receipt.block
        received: dict[Queue, deque[MessageRange]] = {}
        for verdict in executed.verdicts:
            for taken in verdict.received:
                received.setdefault((taken.sender, verdict.para_id), deque()).append(taken)
        for event in executed.channel_events:
            queue = None if event.sender == event.recipient else event.sender, event.recipient
            if event.event in (ChannelEventKind.OPENED, ChannelEventKind.CLOSED) or event.reason == "offboarded":
                self._take(queue, received, block)
                for dropped in event.dropped:
                    if dropped.sender == queue[0]:
                        self._leave(queue, dropped, block)
                self.gone[queue] = CLOSED if event.event is ChannelEventKind.CLOSED else 0
        for queue in received:
            self._take(queue, received, block, all_of_them=True)

    def findings(self, levels: Levels) -> Iterator[Finding]:
        """Yield queues whose messages have not left one after the other, and those in which not all others wait."""
        yield from self._wrong
        waiting: dict[Queue, tuple[int | None, int | None]] = {
            (None, each.para_id): (each.downward_sent, each.downward_messages) for each in levels.paras
        }
        waiting |= {(each.sender, each.recipient): (each.messages_sent, each.messages) for each in levels.channels}
        for queue, gone in self.gone.items():
            sent, messages = waiting.get(queue, (None, None))
            if gone != CLOSED and sent is not None and messages is not None and sent - messages != gone:
                detail = f"{sent} messages were sent and {messages} wait, but {gone} is the last that has left"
                yield Finding("queues", _queue_name(queue), detail)

    def _take(
        self, queue: Queue, received: dict[Queue, deque[MessageRange]], block: BlockNumber, *, all_of_them: bool = False
    ) -> None:
        """Take what a block's candidates have received; before an event that ends the queue, only what follows on what has left it."""
        waiting = received.get(queue, ())
        while waiting and (all_of_them or waiting[0].first == self.gone.get(queue, waiting[0].first - 1) + 1):
            self._leave(queue, waiting.popleft(), block)

    def _leave(self, queue: Queue, taken: MessageRange, block: BlockNumber) -> None:
        gone = self.gone.get(queue, taken.first - 1)
        if taken.first != gone + 1 or taken.last < taken.first:
            before = "it was closed" if gone == CLOSED else f"message {gone}"
            detail = f"messages {taken.first} to {taken.last} left it after {before}"
            self._wrong.append(Finding("queues", _queue_name(queue), detail, block=block))
        self.gone[queue] = taken.last


ALL: Final = LevelChoice(None, U32_MAX, U32_MAX)
"""Every para and channel."""


def _queue_name(queue: Queue) -> str:
    sender, recipient = queue
    return f"downward queue of {recipient}" if sender is None else _name((sender, recipient))


def _name(channel_id: ChannelId) -> str:
    return f"channel {channel_id[0]}→{channel_id[1]}"
