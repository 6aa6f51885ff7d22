# SPDX-License-Identifier: Apache-2.0
"""Gathers the facts of a block: what the converter knows, and at chosen heights what the chain's storage holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from validator.plugin.api import DecodeError
from validator_relay_chain import keys
from validator_relay_chain.convert import Step
from validator_relay_chain.errors import BadAnswer
from validator_relay_chain.header import Header
from validator_relay_chain.oracle.facts import (
    BlockFacts,
    CandidateFact,
    ChannelFact,
    DownwardFact,
    DownwardReset,
    WatermarkFact,
    WithoutEvent,
)
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import ChannelId, Value, decode_channel, decode_u32, waiting_messages

T = TypeVar("T")

CHANNELS: Final = "Hrmp.HrmpChannels"
WATERMARKS: Final = "Hrmp.HrmpWatermarks"
QUEUES: Final = "Dmp.DownwardMessageQueues"


def facts_of(
    lane: str, step: Step, chain: Chain, compare_every: int, unread: Iterable[str] = (), *, is_last: bool = False
) -> BlockFacts:
    """Return the facts of a converted block.

    Storage is read at every block whose number ``compare_every`` divides, where a session ends, and at the last block that is followed;
    with 0 never. The heads of downward queues that the block moved are always among the facts. ``unread`` names storage items that have
    another shape than this plugin reads; these, and values that do not decode, are left out and named. Raises `NodeError`.
    """
    block, header = step.block, step.block.header
    is_sampled = compare_every > 0 and (is_last or block.new_session or header.number % compare_every == 0)
    paras = sorted(step.position.lifecycles) if is_sampled else []
    opened, closed = _session(step, chain) if block.new_session and is_sampled else (None, None)
    sample = _Sample(chain, header.hash, unread)
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
        sample.channels() if is_sampled else (),
        sample.downward(step.position.heads, paras) if is_sampled else _moved(step),
        sample.watermarks(paras) if is_sampled else (),
        (*step.unread, *sorted(sample.unread)),
        tuple(WithoutEvent(*channel, opened) for channel, opened in step.without_event),
        tuple(DownwardReset(para, step.position.heads.get(para)) for para in step.downward_resets),
    )


def read_sample(
    chain: Chain, header: Header, paras: Sequence[int], unread: Iterable[str], *, ends_session: bool
) -> None:
    """Read what the facts of a block need of storage, where a chain keeps what was read. Raises `NodeError`."""
    sample = _Sample(chain, header.hash, unread)
    sample.channels()
    sample.downward({}, paras)
    sample.watermarks(paras)
    if ends_session:
        _channel_keys(chain, header.parent_hash)


def facts_of_seed(
    lane: str, header: Header, backed: int, paras: Iterable[int], chain: Chain, unread: Iterable[str] = ()
) -> BlockFacts:
    """Return the facts of the block after which a lane joins; ``backed`` of its candidates are pending.

    ``unread`` is what of the state could not be decoded. Raises `NodeError`.
    """
    known = sorted(paras)
    sample = _Sample(chain, header.hash)
    found = chain.values([keys.para_key(keys.DMP_HEADS, para) for para in known], header.hash)
    heads = {para: found[keys.para_key(keys.DMP_HEADS, para)] for para in known}
    return BlockFacts(
        lane,
        header.number,
        header.hash,
        backed,
        channels=sample.channels(),
        downward=sample.downward(heads, known),
        watermarks=sample.watermarks(known),
        unread=(*unread, *sorted(sample.unread)),
    )


def _timed_out(step: Step) -> tuple[CandidateFact, ...]:
    """Return what timed out: what the block's record says, which may be more than events do, and candidates that the lane never had."""
    record = next(record for topic, record in step.records if topic == "blocks")
    unknown = (CandidateFact(para, known=False) for para, known in step.timed_out_known if not known)
    return (*(CandidateFact(each["para_id"], known=True) for each in record["timed_out"]), *unknown)


def _session(step: Step, chain: Chain) -> tuple[tuple[ChannelId, ...], tuple[ChannelId, ...]]:
    """Return the channels that the block opened and removed, and those that a lane opens and removes with it for lack of an event."""
    header = step.block.header
    before, after = (set(_ids(_channel_keys(chain, each))) for each in (header.parent_hash, header.hash))
    opened, closed = (
        {channel for channel, has_opened in step.without_event if has_opened is each} for each in (True, False)
    )
    opened |= after - (before - closed)  # one that closed may be there again
    return tuple(sorted(opened)), tuple(sorted(closed | (before - after)))


def _channel_keys(chain: Chain, block_hash: bytes) -> set[bytes]:
    return {key for page in chain.keys_of(keys.HRMP_CHANNELS, block_hash) for key in page}


def _ids(found: Iterable[bytes]) -> list[ChannelId]:
    return sorted(_read(keys.channel_of, key) for key in found)


def _moved(step: Step) -> tuple[DownwardFact, ...]:
    """Return the heads that messages of the block have moved."""
    paras = sorted({each.para_id for each in step.downward})
    return tuple(DownwardFact(para, None, step.position.heads.get(para)) for para in paras)


class _Sample:
    """What storage holds after a block, to compare a lane with. ``unread`` grows by the items that do not decode: they are left out."""

    def __init__(self, chain: Chain, block_hash: bytes, unread: Iterable[str] = ()) -> None:
        self._chain, self._hash = chain, block_hash
        self._shapeless = frozenset(unread)
        self.unread: set[str] = set()

    def channels(self) -> tuple[ChannelFact, ...]:
        """Return the channels."""
        if not self._is_read(CHANNELS):
            return ()
        found = []
        values = self._chain.values(sorted(_channel_keys(self._chain, self._hash)), self._hash)
        for key, raw in values.items():
            channel = self._decoded(CHANNELS, decode_channel, raw)
            if channel is not None:
                found.append(
                    ChannelFact(
                        *_read(keys.channel_of, key),
                        max(0, channel.max_capacity - channel.msg_count),
                        max(0, channel.max_total_size - channel.total_size),
                        channel.mqc_head,
                    )
                )
        return tuple(sorted(found, key=lambda each: each[:2]))

    def downward(self, heads: Mapping[int, Value], paras: Iterable[int]) -> tuple[DownwardFact, ...]:
        """Return the downward queues of paras."""
        known = list(paras)
        found = []
        metas = dict(self._values(keys.DMP_META, known))  # empty before queues have pages
        for para, raw in self._values(keys.DMP_QUEUES, known):
            try:
                messages: int | None = waiting_messages(metas[para], raw)
            except (DecodeError, ValueError):
                self.unread.add(QUEUES)
                messages = None
            found.append(DownwardFact(para, messages, heads.get(para)))
        return tuple(found)

    def watermarks(self, paras: Iterable[int]) -> tuple[WatermarkFact, ...]:
        """Return the watermarks of paras that have one."""
        if not self._is_read(WATERMARKS):
            return ()
        stored = ((para, raw) for para, raw in self._values(keys.HRMP_WATERMARKS, paras) if raw is not None)
        found = ((para, self._decoded(WATERMARKS, decode_u32, raw)) for para, raw in stored)
        return tuple(WatermarkFact(para, watermark) for para, watermark in found if watermark is not None)

    def _is_read(self, item: str) -> bool:
        if item in self._shapeless:
            self.unread.add(item)
        return item not in self._shapeless

    def _decoded(self, item: str, decode: Callable[[bytes], T], raw: bytes | None) -> T | None:
        try:
            return None if raw is None else decode(raw)
        except (DecodeError, ValueError):
            self.unread.add(item)
            return None

    def _values(self, item: bytes, paras: Iterable[int]) -> Iterator[tuple[int, Value]]:
        by_key = {keys.para_key(item, para): para for para in paras}
        values = self._chain.values(list(by_key), self._hash)
        yield from ((para, values[key]) for key, para in by_key.items())


def _read(decode: Callable[[bytes], T], raw: bytes) -> T:
    try:
        return decode(raw)
    except (DecodeError, ValueError) as error:
        raise BadAnswer(f"storage: {error}") from error
