# SPDX-License-Identifier: Apache-2.0
"""A made-up chain with everything that a lane sees, and a follower of it without Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from validator_relay_chain import keys
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.config import ChainSource
from validator_relay_chain.convert import Step
from validator_relay_chain.follow import Follower
from validator_relay_chain.header import to_hex
from validator_relay_chain.limits import COMPARE_EVERY_BLOCKS, IN_FLIGHT
from validator_relay_chain.metadata import MetadataCache, Runtime
from validator_relay_chain.pool import NodePool
from validator_relay_chain.position import Position
from validator_relay_chain.seeding import Seed, make_seed, take_snapshot
from validator_relay_chain.source import Chain
from validator_simulators.relay_chain import Recording
from validator_simulators.relay_chain.made import PARACHAIN, MadeCandidate, MadeChain, MadeState
from validator_simulators.relay_chain.recording import SHIPPED

LANE = "polkadot"
GENESIS = bytes.fromhex("91b171bb158e2d3848fa23a9f1c25182fb8e20313b2c1eb49219da7a70ce90c3")
"""The one that the mock node says."""
FIRST = 100
"""The block after which the lane joins."""
SESSION, UPGRADE = 110, 115
LAST = 130
SPEC = 9430


@cache
def shipped() -> Recording:
    """Return the recording that is shipped."""
    return Recording.load(SHIPPED)


@cache
def metadata() -> bytes:
    """Return the shipped metadata, which decodes made-up blocks."""
    found = shipped().metadata_of(SPEC)
    assert found is not None
    return found


@cache
def runtime() -> Runtime:
    """Return the runtime of made-up blocks."""
    return load("polkadot", SPEC, metadata())


load = cache(Runtime)
"""Decodes each metadata once for all tests."""


def configuration() -> bytes:
    """Return a value of `Configuration.ActiveConfig`."""
    recording = shipped()
    block = recording.at(recording.canonical[recording.first])
    assert block is not None
    value = recording.value(block, to_hex(keys.ACTIVE_CONFIG))
    assert value is not None
    return bytes.fromhex(value[2:])


def empty_chain(first: int = FIRST) -> MadeChain:
    """Return a chain of which only block 0 is known, and that continues with block ``first``."""
    state = MadeState(
        lifecycles=dict.fromkeys((1000, 2000, 2004), PARACHAIN), other={keys.ACTIVE_CONFIG: configuration()}
    )
    state.open_channel(2000, 2004)
    recording = Recording()
    recording.put_metadata(str(SPEC), metadata())
    recording.set_runtime(0, SPEC)
    return MadeChain(recording, state, first - 1, bytes(32))


def busy_chain(last: int = LAST) -> MadeChain:
    """Return a chain in which everything happens that a lane sees, from block `FIRST` on."""
    chain = empty_chain()
    chain.add(downward=[(2004, b"early")])
    while chain.number < last:
        number = chain.number + 1
        session, upgrade = number == SESSION, number == UPGRADE
        pending = sorted(chain._pending)
        timed_out = pending[:1] if number % 7 == 0 else []
        included = [para for para in pending if para not in timed_out]
        backed = [] if session else [_candidate(chain, number, para) for para in (1000, 2000, 2004)[number % 3 :]]
        if chain.number == SESSION:
            included, timed_out = [], []
            chain._pending.clear()
        requests = {103: [("open", 1000, 2000)], 104: [("accept", 1000, 2000)], 120: [("close", 2000, 2004)]}.get(
            number, []
        )
        downward = [(2000, b"to 2000 %d" % number), (2004, b"a"), (2004, b"b")] if number % 5 == 0 else []
        chain.add(
            backed=backed, included=included, timed_out=timed_out, requests=requests, downward=downward,
            new_session=session, upgrade_to=SPEC + 1 if upgrade else None,
        )  # fmt: skip
    chain.recording.put_metadata(str(SPEC + 1), metadata())
    return chain


@cache
def chain() -> MadeChain:
    """Return the busy chain that tests share; nobody changes it."""
    return busy_chain()


def runtime_notice() -> str:
    """Return the line about the upgrade in the busy chain."""
    return f"block {UPGRADE + 1}: runtime polkadot 9431 instead of polkadot 9430"


LATE = ((1000, 2004, True), (2004, 1000, True), (2000, 2004, False))
"""Channels of `late_chain` that no event shows: sender, recipient, and whether each opens."""


def late_chain() -> MadeChain:
    """Return a chain in which channels change without an event: a message shows the first of `LATE`, the session's end the second.

    The third goes, and a request for it shows that.
    """
    first, second, cleaned = (each[:2] for each in LATE)
    chain = empty_chain()
    chain.add()
    while chain.number < FIRST + 14:
        number = chain.number + 1
        hidden: dict[int, Callable[[MadeState], None]] = {
            FIRST + 3: lambda state: state.open_channel(*first),
            FIRST + 5: lambda state: state.open_channel(*second),
            FIRST + 6: lambda state: state.channels.pop(cleaned) and None,
        }
        session = number in (FIRST + 8, FIRST + 14)
        if chain.number == FIRST + 8:
            chain._pending.clear()
        sends = {first[0]: (first, FIRST + 4), second[0]: (second, FIRST + 9), cleaned[0]: (cleaned, FIRST + 9)}
        backed = [
            MadeCandidate(
                para, chain.parent, number - 1, (), ((channel[1], b"%d" % number),) if number >= since else ()
            )
            for para, (channel, since) in sorted(sends.items())
        ]
        chain.add(
            backed=[] if session else backed, included=sorted(chain._pending), new_session=session,
            requests=[("open", *cleaned), ("accept", *cleaned)] if number == FIRST + 6 else [],
            hidden=hidden.get(number, lambda _: None),
        )  # fmt: skip
    return chain


def _candidate(chain: MadeChain, number: int, para: int) -> MadeCandidate:
    horizontal = ((2004, b"across %d" % number),) if para == 2000 else ()
    return MadeCandidate(para, chain.parent, number - 1, (b"up",), horizontal, 0, b"head %d" % number)


class SkippingTime:
    """A clock whose pauses take no time. It asks to stop after ``pauses_max`` of them, so that a test ends."""

    def __init__(self, pauses_max: int = 10_000) -> None:
        self.pauses: list[float] = []
        self.stop = threading.Event()
        self._skipped, self._pauses_max = 0.0, pauses_max

    def now(self) -> float:
        """Return seconds, pauses included."""
        return time.monotonic() + self._skipped

    def pause(self, seconds: float) -> bool:
        """Skip a pause."""
        self._skipped += seconds
        self.pauses.append(seconds)
        return self.stop.is_set() or len(self.pauses) > self._pauses_max

    def share(self) -> float:
        """Return no jitter."""
        return 0.0


def source(*rpc: str, **named: Any) -> ChainSource:
    """Return where a lane's blocks come from."""
    return ChainSource(rpc=rpc, genesis=to_hex(GENESIS), folder=LANE, **named)


@dataclass
class Collected:
    """The records of a lane, and its position, as if on Kafka. ``before`` is called before each commit takes effect."""

    records: list[tuple[str, JsonRecord]] = field(default_factory=list)
    cursor: bytes | None = None
    before: Callable[[Position], None] = lambda _: None
    steps: list[Step] = field(default_factory=list)

    def commit(self, records: Sequence[tuple[str, JsonRecord]], position: Position) -> None:
        """Take records and position, both or neither."""
        self.before(position)
        self.records += records
        self.cursor = position.encode()

    def show(self, step: Step, target: int, head: int) -> None:
        """Note a block."""
        self.steps.append(step)

    def blocks(self) -> list[int]:
        """Return the numbers of the blocks in the order of their records."""
        return [record["block"] for topic, record in self.records if topic == "blocks"]

    def block(self, number: int) -> JsonRecord:
        """Return a block's record."""
        (found,) = [record for topic, record in self.records if topic == "blocks" and record["block"] == number]
        return found

    def of(self, topic: str, number: int) -> list[JsonRecord]:
        """Return the records of a block in a topic."""
        return [record for each, record in self.records if each == topic and record["block"] == number]


@dataclass
class World:
    """Nodes that a lane follows, with what it reported."""

    urls: Sequence[str]
    folder: Path
    to_block: int | None = LAST
    time: SkippingTime = field(default_factory=SkippingTime)
    told: list[str] = field(default_factory=list)
    stall_s_max: float = 120.0
    answer_s_max: float = 60.0
    compare_every_blocks: int = COMPARE_EVERY_BLOCKS
    features: Sequence[str] = ()
    """Of the lane's rules."""
    in_flight: int = IN_FLIGHT
    """One, for a test that adds up pauses: `SkippingTime` passes with those of every thread."""

    def tell(self, line: str) -> None:
        """Take a line that somebody should know."""
        self.told.append(line)

    def chain(self) -> Chain:
        """Return the chain, with a new connection."""
        pool = NodePool(self.urls, self.time, genesis=GENESIS, tell=self.tell, answer_s_max=self.answer_s_max)
        return Chain(pool, MetadataCache(self.folder / "metadata"), load)

    def seed(self, number: int = FIRST) -> Seed:
        """Return what a lane begins with after a block."""
        chain = self.chain()
        header = chain.header(chain.hash_at(number))
        found = chain.runtime(header.hash)
        snapshot = take_snapshot(chain, header, found, lambda *_: None)
        chain.pool.close()
        return make_seed(LANE, snapshot, found, GENESIS)

    def follow(self, out: Collected, seed: Seed) -> None:
        """Follow the chain from where ``out`` is, as a process does after its start."""
        if out.cursor is None:
            out.commit(seed.records, seed.position)
        assert out.cursor is not None
        chain = self.chain()
        where = source(
            *self.urls, to_block=self.to_block, in_flight=self.in_flight, compare_every_blocks=self.compare_every_blocks
        )
        try:
            Follower(
                LANE,
                where,
                chain,
                self.time,
                Position.decode(out.cursor),
                out,
                self.tell,
                features_at=lambda _: self.features,
                stall_s_max=self.stall_s_max,
            ).run()
        finally:
            chain.pool.close()
