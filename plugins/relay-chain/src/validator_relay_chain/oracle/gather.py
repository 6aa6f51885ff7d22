# SPDX-License-Identifier: Apache-2.0
"""Gathers the facts of a block: what the converter knows, and at chosen heights what the chain's storage holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from validator.plugin.api import DecodeError
from validator_relay_chain import keys
from validator_relay_chain.convert import Step
from validator_relay_chain.errors import BadAnswer
from validator_relay_chain.header import Header
from validator_relay_chain.oracle.facts import (
    BlockFacts,
    CandidateFact,
    ChannelFact,
    ChannelId,
    DownwardFact,
    WatermarkFact,
)
from validator_relay_chain.storage import decode_channel, decode_queue, decode_u32

T = TypeVar("T")
Value = bytes | None


class Storage(Protocol):
    """Reads storage (`validator_relay_chain.source.Chain`). Methods raise `NodeError`."""

    def keys_of(self, prefix: bytes, block_hash: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a storage item after a block, a page at a time."""

    def values(self, wanted: Sequence[bytes], block_hash: bytes) -> dict[bytes, Value]:
        """Return values after a block, by key."""


def facts_of(lane: str, step: Step, storage: Storage, compare_every: int) -> BlockFacts:
    """Return the facts of a converted block.

    Storage is read at every block whose number ``compare_every`` divides, and where a session ends; with 0 never. The heads of downward
    queues that the block moved are always among the facts. Raises `NodeError`.
    """
    block, header = step.block, step.block.header
    is_sampled = compare_every > 0 and (block.new_session or header.number % compare_every == 0)
    paras = sorted(step.position.lifecycles)
    opened, closed = _session(step, storage) if block.new_session and is_sampled else (None, None)
    return BlockFacts(
        lane,
        header.number,
        header.hash,
        len(block.candidates),
        tuple(CandidateFact(*each) for each in step.included_known),
        _timed_out(step),
        block.new_session,
        opened,
        closed,
        _channels(storage, header.hash) if is_sampled else (),
        _downward(step.position.heads, paras, header.hash, storage) if is_sampled else _moved(step),
        _watermarks(paras, header.hash, storage) if is_sampled else (),
    )


def facts_of_seed(lane: str, header: Header, backed: int, paras: Iterable[int], storage: Storage) -> BlockFacts:
    """Return the facts of the block after which a lane joins; ``backed`` of its candidates are pending. Raises `NodeError`."""
    known = sorted(paras)
    found = storage.values([keys.para_key(keys.DMP_HEADS, para) for para in known], header.hash)
    heads = {para: found[keys.para_key(keys.DMP_HEADS, para)] for para in known}
    return BlockFacts(
        lane,
        header.number,
        header.hash,
        backed,
        channels=_channels(storage, header.hash),
        downward=_downward(heads, known, header.hash, storage),
        watermarks=_watermarks(known, header.hash, storage),
    )


def _timed_out(step: Step) -> tuple[CandidateFact, ...]:
    """Return what timed out: what the block's record says, which may be more than events do, and candidates that the lane never had."""
    record = next(record for topic, record in step.records if topic == "blocks")
    unknown = (CandidateFact(para, known=False) for para, known in step.timed_out_known if not known)
    return (*(CandidateFact(each["para_id"], known=True) for each in record["timed_out"]), *unknown)


def _session(step: Step, storage: Storage) -> tuple[tuple[ChannelId, ...], tuple[ChannelId, ...]]:
    """Return the channels that the block opened and removed."""
    header = step.block.header
    before, after = (_channel_keys(storage, each) for each in (header.parent_hash, header.hash))
    return tuple(_ids(after - before)), tuple(_ids(before - after))


def _channel_keys(storage: Storage, block_hash: bytes) -> set[bytes]:
    return {key for page in storage.keys_of(keys.HRMP_CHANNELS, block_hash) for key in page}


def _ids(found: Iterable[bytes]) -> list[ChannelId]:
    return sorted(_read(keys.channel_of, key) for key in found)


def _channels(storage: Storage, block_hash: bytes) -> tuple[ChannelFact, ...]:
    found = []
    values = storage.values(sorted(_channel_keys(storage, block_hash)), block_hash)
    for key, raw in values.items():
        if raw is None:
            raise BadAnswer(f"storage 0x{key.hex()}: expected a channel, found none")
        channel = _read(decode_channel, raw)
        found.append(
            ChannelFact(
                *_read(keys.channel_of, key),
                max(0, channel.max_capacity - channel.msg_count),
                max(0, channel.max_total_size - channel.total_size),
                channel.mqc_head,
            )
        )
    return tuple(sorted(found, key=lambda each: each[:2]))


def _moved(step: Step) -> tuple[DownwardFact, ...]:
    """Return the heads that messages of the block have moved."""
    paras = sorted({each.para_id for each in step.downward})
    return tuple(DownwardFact(para, None, step.position.heads.get(para)) for para in paras)


def _downward(
    heads: Mapping[int, Value], paras: Iterable[int], block_hash: bytes, storage: Storage
) -> tuple[DownwardFact, ...]:
    queues = _values(storage, keys.DMP_QUEUES, paras, block_hash)
    return tuple(
        DownwardFact(para, 0 if raw is None else len(_read(decode_queue, raw)), heads.get(para)) for para, raw in queues
    )


def _watermarks(paras: Iterable[int], block_hash: bytes, storage: Storage) -> tuple[WatermarkFact, ...]:
    found = _values(storage, keys.HRMP_WATERMARKS, paras, block_hash)
    return tuple(WatermarkFact(para, _read(decode_u32, raw)) for para, raw in found if raw is not None)


def _values(storage: Storage, item: bytes, paras: Iterable[int], block_hash: bytes) -> Iterator[tuple[int, Value]]:
    by_key = {keys.para_key(item, para): para for para in paras}
    values = storage.values(list(by_key), block_hash)
    yield from ((para, values[key]) for key, para in by_key.items())


def _read(decode: Callable[[bytes], T], raw: bytes) -> T:
    try:
        return decode(raw)
    except (DecodeError, ValueError) as error:
        raise BadAnswer(f"storage: {error}") from error
