# SPDX-License-Identifier: Apache-2.0
"""The transport `relay-chain`: follows relay chains through their nodes and writes the records of their lanes.

One process follows all chains of `[transports.relay-chain]`, a thread each. Records of a block and the position after it are one commit,
so a process that is killed at any moment leaves neither a gap nor a record twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from validator.plugin.api import LeaseLost, Manifest, Record, Transport, TransportContext, hookimpl
from validator.plugin.job_api import UserError
from validator_relay_chain import __version__
from validator_relay_chain.archive import Archive, KeptChain
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.config import ChainSource, Configuration
from validator_relay_chain.convert import Step
from validator_relay_chain.display import LOG, Display, Followed, LaneDisplay, LogLines
from validator_relay_chain.errors import FollowError
from validator_relay_chain.figures import FOLLOWED, JUDGED, ChainFigures, Figures
from validator_relay_chain.follow import Follower
from validator_relay_chain.header import from_hex
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.oracle.records import News, own_topics
from validator_relay_chain.oracle.transport import run as judge
from validator_relay_chain.pool import Clock, NodePool, Stopped
from validator_relay_chain.position import Position
from validator_relay_chain.rules import RulesGuard

NAME: Final = "relay-chain"
JUDGE: Final = "judge"


@hookimpl
def validator_manifest() -> Manifest:
    """Return the identity of this plugin."""
    return Manifest(NAME, __version__, (2, 0), Configuration)


@hookimpl
def validator_transports(config: Configuration | None) -> Iterator[Transport]:
    """Yield the transport that follows chains, which only writes, and the judge that compares lanes with them."""
    own = own_topics()
    sources = {} if config is None else config.chains
    feeds = (
        {}
        if config is None
        else {lane: config.silent_after for lane, source in sources.items() if source.to_block is None}
    )
    yield Transport(NAME, run, cursors=True, own=own, metrics=FOLLOWED, feeds=feeds)
    chains = tuple(sources)
    yield Transport(JUDGE, partial(judge, chains), cursors=True, own=own, metrics=JUDGED)


def run(context: TransportContext) -> None:
    """Follow all configured chains until the context asks to stop, or each has reached its last block. Raises `FollowError`."""
    config: Configuration = context.config
    if not config.chains:
        raise FollowError("[transports.relay-chain.chains]: expected at least one chain, found none")
    with LogLines(), Display(Console(stderr=True)) as display:
        _Lanes(context, config.chains, display).run()


class _Lanes:
    """The lanes of one process. One that cannot continue says so, and the others continue."""

    def __init__(self, context: TransportContext, chains: Mapping[str, ChainSource], display: Display) -> None:
        self._context, self._chains, self._display = context, chains, display
        self._news = News(context)
        self._figures = Figures()
        context.measure(self._figures.measures)
        self._failures: list[tuple[str, BaseException]] = []

    def run(self) -> None:
        """Follow all chains. Raises what ended the first lane that failed, once every lane has ended."""
        threads = [
            threading.Thread(target=self._follow, args=item, name=item[0], daemon=True) for item in self._chains.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _, error in self._failures:
            if isinstance(error, LeaseLost):
                raise error
        for _, error in self._failures:
            raise error

    def _follow(self, lane: str, source: ChainSource) -> None:
        try:
            follow(self._context, lane, source, self._display, self._news, self._figures)
        except Stopped:
            return
        except BaseException as error:  # noqa: BLE001 - raised again once all lanes have ended
            self._failures.append((lane, error))
            if len(self._chains) > 1:
                LOG.error("lane %s stops: %s", lane, error)


def follow(
    context: TransportContext, lane: str, source: ChainSource, display: Display, news: News, measured: Figures
) -> None:
    """Follow one chain: from its cursor, or from what `validator follow` has written. Raises `FollowError`, `Stopped`."""
    position = _begin(context, lane, source)
    if source.to_block is not None and position.number >= source.to_block:
        LOG.info(
            "lane %s: nothing to follow: block %d is the last one wanted, and block %d is followed already",
            lane,
            source.to_block,
            position.number,
        )
        return
    clock = Clock(lambda: context.stopping)

    figures = ChainFigures(measured, lane, position.number)

    def tell(text: str) -> None:
        LOG.warning("lane %s: %s", lane, text)
        figures.failed(pool.failures)

    pool = NodePool(source.rpc, clock, genesis=from_hex(source.genesis, "genesis", 32), tell=tell)
    shown = display.lane(lane, position.number, partial(news.of, lane))
    try:
        blocks = Archive(source.blocks_folder, from_hex(source.genesis, "genesis", 32))
        chain = KeptChain(pool, MetadataCache(source.metadata_folder), blocks=blocks)
        out = _Output(context, lane, shown, figures, pool)
        guard = RulesGuard(lane, Path(source.folder))
        Follower(lane, source, chain, clock, position, out, tell, guard.check, guard.features_at).run()
        LOG.info("lane %s: block %d is followed, the last one wanted", lane, source.to_block)
    finally:
        pool.close()
        with suppress(UserError):  # Kafka is away, or this process is not the active one: what ended the lane says so
            shown.end()


def _begin(context: TransportContext, lane: str, source: ChainSource) -> Position:
    """Return the position of a lane; one that has none yet gets its first records. Raises `FollowError`."""
    cursor = context.cursor(lane)
    if cursor is not None:
        position = _decoded(f"lane {lane}", cursor)
        _check_genesis(lane, source, position)
        LOG.info("lane %s: continues after block %d", lane, position.number)
        return position
    records, cursor = read_start(source.start_path)
    position = _decoded(str(source.start_path), cursor)
    _check_genesis(lane, source, position)
    context.commit(_encoded(context, records), {lane: cursor})
    LOG.info("lane %s: begins after block %d", lane, position.number)
    return position


def read_start(path: Path) -> tuple[list[tuple[str, JsonRecord]], bytes]:
    """Return the first records of a lane and the cursor after them. Raises `FollowError` if the file is missing or is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [(topic, record) for topic, record in document["records"]], bytes.fromhex(document["cursor"])
    except FileNotFoundError:
        raise FollowError(
            f"{path}: expected what a lane begins with, found no file: `validator follow` writes it"
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FollowError(f"{path}: expected what a lane begins with, found {error}") from error


def _decoded(where: str, cursor: bytes) -> Position:
    try:
        return Position.decode(cursor)
    except ValueError as error:
        raise FollowError(f"{where}: {error}") from error


def _check_genesis(lane: str, source: ChainSource, position: Position) -> None:
    if position.genesis.hex() != source.genesis[2:]:
        raise FollowError(
            f"lane {lane}: expected genesis 0x{position.genesis.hex()}, which it has followed, found {source.genesis}"
        )


class _Output:
    """Writes the records of a lane."""

    def __init__(
        self, context: TransportContext, lane: str, display: LaneDisplay, figures: ChainFigures, pool: NodePool
    ) -> None:
        self._context, self._lane, self._display, self._figures, self._pool = context, lane, display, figures, pool

    def commit(self, records: Sequence[tuple[str, JsonRecord]], position: Position) -> None:
        """Write records and the position after them."""
        self._context.commit(_encoded(self._context, records), {self._lane: position.encode()})
        self._figures.followed(position.number, self._pool.answers)

    def show(self, step: Step, target: int, head: int) -> None:
        """Show how far the lane is."""
        block = step.block
        self._figures.heard(head)
        self._display.show(Followed(block.number, len(block.candidates), len(block.included), target, head))


def _encoded(context: TransportContext, records: Sequence[tuple[str, JsonRecord]]) -> list[Record]:
    encode: Callable[[str, Any], tuple[bytes, bytes]] = context.encode
    return [(topic, *encode(topic, record)) for topic, record in records]
