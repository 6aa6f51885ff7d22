# SPDX-License-Identifier: Apache-2.0
"""Follows a chain from a position: finalised blocks only, each once, in order, without a gap.

A node's finalised head may skip blocks, come late or twice, or be older than the position. Short gaps are walked back by parents from the
head to the position; long ones are filled by number. Either way a block counts only if it is the child of the one before, by the hash that
is computed from its header.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Final, Protocol

from validator_relay_chain import keys
from validator_relay_chain.block import decode_block
from validator_relay_chain.block_reads import BlockReads
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.config import ChainSource
from validator_relay_chain.convert import Step, convert
from validator_relay_chain.errors import (
    BadAnswer,
    ChainContradiction,
    FollowError,
    NodeError,
    NotKnownHere,
    Simulated,
    UndecodableBlock,
    Unreachable,
)
from validator_relay_chain.fetch import Ahead, Fetched, Fetcher, Wanted
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.limits import (
    BLAMES_MAX,
    BLOCKS_PER_COMMIT_MAX,
    COMMIT_S_MAX,
    HASHES_PER_CALL,
    HEAD_POLL_S,
    STALL_S_MAX,
    UNKNOWN_ROUNDS_MAX,
    WAIT_LINE_S,
    WALK_BLOCKS_MAX,
)
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.oracle.facts import BlockFacts
from validator_relay_chain.oracle.gather import facts_of
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.pool import Clock, Stopped
from validator_relay_chain.position import Position
from validator_relay_chain.source import Chain

RECORDS_PER_COMMIT_MAX: Final = 16_384
"""Records that are committed at once while catching up, after which no further block is added."""


class Lane(Protocol):
    """Where the records of a lane go."""

    def commit(self, records: Sequence[tuple[str, JsonRecord]], position: Position) -> None:
        """Write records and the position after them, both or neither."""

    def show(self, step: Step, target: int, head: int) -> None:
        """Note a converted block; ``target`` is the last one to follow by now, ``head`` the last finalised one."""


@dataclass
class _Batch:
    """Converted blocks that are committed together, each with its facts, which other threads gather."""

    position: Position
    began_s: float
    steps: list[tuple[Step, Future[BlockFacts]]] = field(default_factory=list)
    records: int = 0

    def add(self, step: Step, facts: Future[BlockFacts]) -> None:
        self.position = step.position
        self.steps.append((step, facts))
        self.records += len(step.records) + 1

    def is_full(self, now_s: float) -> bool:
        return (
            len(self.steps) >= BLOCKS_PER_COMMIT_MAX
            or self.records >= RECORDS_PER_COMMIT_MAX
            or now_s - self.began_s >= COMMIT_S_MAX
        )


class Follower:
    """Follows one chain. ``tell`` gets lines about what somebody should know.

    ``features_at`` returns the features of the lane's rules at a block. ``check_rules`` gets the first block under each runtime, with the
    runtime, before the block is converted. If it raises, every earlier
    block is committed, and this one is not.
    """

    def __init__(
        self,
        lane: str,
        source: ChainSource,
        chain: Chain,
        clock: Clock,
        position: Position,
        out: Lane,
        tell: Callable[[str], None] = lambda _: None,
        check_rules: Callable[[int, Runtime], None] = lambda *_: None,
        features_at: Callable[[int], Collection[str]] = lambda _: (),
        stall_s_max: float = STALL_S_MAX,
    ) -> None:
        self._check_rules, self._features_at = check_rules, features_at
        self._features: Collection[str] = ()
        """Of the lane's rules under the present runtime."""
        self._lane, self._source, self._chain, self._clock = lane, source, chain, clock
        self._out, self._tell, self._stall_s_max = out, tell, stall_s_max
        self.position = position
        """The last block that is committed."""
        self._runtime: Runtime | None = None
        self._blames = 0
        self._unknown = 0
        """Times in a row that no node knew a block that one of them had named."""
        self._undecoded = 0
        """Nodes in a row with which the next block did not decode."""
        self._afresh = False
        """Whether metadata is fetched although it is there."""
        self._head: Header | None = None

    def run(self) -> None:
        """Follow the chain to the last block, or until the pool's clock says stop, which raises `Stopped`.

        Raises `StatePruned` if no node has the state any more, `UndecodableBlock`, `ChainContradiction` if nodes insist on another chain,
        `WrongChain`.
        """
        with Fetcher(self._chain, self._source.in_flight) as fetcher:
            while not self._is_done():
                try:
                    target = self._next_head()
                    self._catch_up(fetcher, target)
                except BadAnswer as error:
                    self._blame(error)
                except UndecodableBlock as error:
                    self._leave(error)
                except NotKnownHere as error:
                    self._ask_again(error)

    def _is_done(self) -> bool:
        last = self._source.to_block
        return last is not None and self.position.number >= last

    def _check_stop(self) -> None:
        if self._clock.pause(0):
            raise Stopped("asked to stop")

    # --- heads ---

    def _next_head(self) -> Header:
        """Return the last block that is kept after the position, or wait for a finalised head after it.

        A notification far ahead is not believed: the node is asked for its head.
        """
        kept = self._chain.kept_after(self.position.number)
        if kept is not None:
            return kept
        began = said = self._clock.now()
        if self._head is None:
            self._head = self._finalised_head()
        while self._head.number <= self.position.number:
            self._check_stop()
            self._check_known(self._head)
            told = self._chain.pool.head(HEAD_POLL_S)
            if told is not None:
                self._head = Header.from_json(told)
            if self._head.number > self.position.number:
                break
            if self._clock.now() - said >= WAIT_LINE_S:
                said = self._clock.now()
                self._tell(f"no finalised block after {self.position.number} for {said - began:.0f} s: waiting for one")
            if self._clock.now() - began >= self._stall_s_max:
                began = said = self._clock.now()
                self._chain.pool.blame(
                    Unreachable(f"no finalised block after {self.position.number} for {self._stall_s_max:g} s")
                )
                self._head = self._finalised_head()
        if self._head.number - self.position.number > WALK_BLOCKS_MAX:
            self._head = self._finalised_head()
        return self._head

    def _finalised_head(self) -> Header:
        return self._chain.header(self._chain.finalised_head())

    def _check_known(self, head: Header | None) -> None:
        """Raise `BadAnswer` if a head at the position is another block. Older heads come from nodes that are behind."""
        if head is not None and head.number == self.position.number and head.hash != self.position.hash:
            raise BadAnswer(self._contradiction(head.hash))

    def _contradiction(self, found: bytes) -> str:
        position = self.position
        return f"finalised block {position.number}: expected {to_hex(position.hash)}, which was followed, found {to_hex(found)}"

    def _blame(self, error: NodeError) -> None:
        """Leave the node. Raises `ChainContradiction` if all of them have contradicted for `BLAMES_MAX` times in a row."""
        kept = self._chain.kept_in(self.position.number + 1)
        if kept is not None:
            raise ChainContradiction(f"{kept}: {error}: remove the file, and fetch its blocks again") from error
        self._blames += 1
        if self._blames >= BLAMES_MAX * self._chain.pool.size:
            raise ChainContradiction(f"{error}; every node says so, the lane does not continue") from error
        self._runtime = None  # that of a later block, if what led there is not committed
        self._chain.pool.blame(error)
        self._head = None

    def _leave(self, error: UndecodableBlock) -> None:
        """Try the metadata and the block of a spare. Raises the error once every node's was tried."""
        self._undecoded += 1
        if self._undecoded >= self._chain.pool.size:
            raise error
        self._runtime, self._afresh = None, True
        self._chain.pool.blame(BadAnswer(str(error)))
        self._head = None

    def _ask_again(self, error: NotKnownHere) -> None:
        """Ask for the finalised head again. Raises the error once that did not help for `UNKNOWN_ROUNDS_MAX` times in a row."""
        self._unknown += 1
        if self._unknown >= UNKNOWN_ROUNDS_MAX:
            raise error
        self._tell(f"{error}; the finalised head is asked for again")
        self._runtime, self._head = None, None

    # --- blocks ---

    def _catch_up(self, fetcher: Fetcher, head: Header) -> None:
        """Follow the chain up to a finalised head, or to the last block that is wanted."""
        if head.number <= self.position.number:
            return  # a notification was ahead of what the node has finalised
        last = head.number if self._source.to_block is None else min(head.number, self._source.to_block)
        ahead = Ahead(self.position.heads, _paras(self.position), has_pages=self._has_pages())
        with fetcher.blocks(self._wanted(head, last), ahead) as blocks:
            self._convert_all(fetcher, blocks, last, ahead)

    def _wanted(self, head: Header, last: int) -> Iterator[Wanted]:
        first = self.position.number + 1
        is_kept = self._chain.kept_in(head.number) is not None
        by_number = head.number if is_kept else head.number - WALK_BLOCKS_MAX
        if first <= by_number:
            numbers = range(first, min(last, by_number) + 1)
            for at in range(0, len(numbers), HASHES_PER_CALL):
                part = numbers[at : at + HASHES_PER_CALL]
                yield from map(Wanted, part, self._chain.hashes_at(part) or repeat(None))
            return
        path = [Wanted(head.number, head.hash)]
        while head.number > first:
            head = self._chain.header(head.parent_hash)
            path.append(Wanted(head.number, head.hash))
        if head.parent_hash != self.position.hash:
            raise BadAnswer(self._contradiction(head.parent_hash))
        yield from (each for each in reversed(path) if each.number <= last)

    def _has_pages(self) -> bool:
        return self._runtime is not None and self._runtime.has_downward_pages

    def _convert_all(self, fetcher: Fetcher, blocks: Iterator[Fetched], last: int, ahead: Ahead) -> None:
        """Convert and commit blocks. What was converted before one that fails is committed, too."""
        batch = _Batch(self.position, self._clock.now())
        try:
            for fetched in blocks:
                self._check_stop()
                step = self._add(fetcher, batch, fetched, last)
                if step.block.new_session:
                    ahead.para_ids = _paras(step.position)
                ahead.has_pages = self._has_pages()
                if batch.position.number >= last or batch.is_full(self._clock.now()):
                    self._commit(batch)
                    batch = _Batch(self.position, self._clock.now())
        except FollowError:
            self._commit(batch)
            raise
        self._commit(batch)

    def _add(self, fetcher: Fetcher, batch: _Batch, fetched: Fetched, last: int) -> Step:
        step = self._convert(batch.position, fetched)
        assert self._runtime is not None
        facts = fetcher.submit(
            facts_of,
            self._lane,
            step,
            self._chain,
            self._source.compare_every_blocks,
            self._runtime.unread,
            is_last=step.block.number == self._source.to_block,
        )
        batch.add(step, facts)
        for notice in step.notices:
            self._tell(notice)
        self._out.show(step, last, max(last, 0 if self._head is None else self._head.number))
        return step

    def _commit(self, batch: _Batch) -> None:
        """Commit the blocks up to the first whose facts cannot be gathered, and raise why they cannot. The batch is empty afterwards."""
        records: list[tuple[str, JsonRecord]] = []
        position, failure = self.position, None
        steps, batch.steps = batch.steps, []
        for step, facts in steps:
            try:
                gathered = facts.result()
            except FollowError as error:
                failure = error
                break
            records += (*step.records, (FACTS, gathered.to_json()))
            position = step.position
        if records:
            self._out.commit(records, position)
            self.position = position
            self._blames = self._undecoded = self._unknown = 0
        if failure is not None:
            raise failure

    def _convert(self, position: Position, fetched: Fetched) -> Step:
        header = fetched.raw.header
        if header.is_simulated and not self._source.simulator:
            raise Simulated(header.number)
        runtime = self._runtime_after(position)
        try:
            block = decode_block(fetched.raw, runtime)
        except UndecodableBlock as error:
            self._tell(f"{error}; the metadata is fetched once more")
            proven, _ = self._chain.checked({keys.SYSTEM_EVENTS: fetched.raw.events}, header)
            self._afresh = True
            runtime = self._load_runtime(position)
            block = decode_block(replace(fetched.raw, events=proven[keys.SYSTEM_EVENTS] or b""), runtime)
        reads = BlockReads(self._chain, header, fetched.heads, fetched.lists, fetched.queues, runtime)
        return convert(
            self._lane,
            position,
            block,
            runtime,
            reads,
            believes_heads=self._source.simulator,
            features=self._features,
        )

    def _runtime_after(self, position: Position) -> Runtime:
        """Return the runtime that executes the block after a position. Its parent's state has it."""
        if self._runtime is None or position.next_runtime:
            return self._load_runtime(position)
        return self._runtime

    def _load_runtime(self, position: Position) -> Runtime:
        runtime = self._chain.runtime(position.hash, afresh=self._afresh)
        self._afresh = False
        if (runtime.spec_name, runtime.spec_version) != (position.spec_name, position.spec_version):
            self._tell(
                f"block {position.number + 1}: runtime {runtime} instead of {position.spec_name} {position.spec_version}"
            )
            self._check_rules(position.number + 1, runtime)
        self._features = self._features_at(position.number + 1)
        self._runtime = runtime
        return runtime


def _paras(position: Position) -> list[int]:
    """Return the paras whose downward queues may change after a position."""
    return sorted({*position.lifecycles, *position.heads})
