# SPDX-License-Identifier: Apache-2.0
"""What a relay chain did in a block, as the transport writes it and the judge reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from validator_relay_chain.storage import ChannelId


class CandidateFact(NamedTuple):
    """A candidate that was pending; ``known`` says whether the lane has a record of it."""

    para_id: int
    known: bool


class ChannelFact(NamedTuple):
    """A channel in storage: what is left of its capacity in messages and bytes, and its head."""

    sender: int
    recipient: int
    places_left: int
    bytes_left: int
    mqc_head: bytes | None


class DownwardFact(NamedTuple):
    """A downward queue in storage; ``messages`` is None if it was not read."""

    para_id: int
    messages: int | None
    mqc_head: bytes | None


class WatermarkFact(NamedTuple):
    """A watermark in storage."""

    para_id: int
    watermark: int


class WithoutEvent(NamedTuple):
    """A channel that opened or closed without an event; ``source`` says where that was found."""

    sender: int
    recipient: int
    opened: bool
    source: str = "storage"


class DownwardReset(NamedTuple):
    """A downward queue whose proven head does not follow from its messages; None if the head is gone."""

    para_id: int
    mqc_head: bytes | None


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """The facts of one block. Empty lists were not read; ``opened`` and ``closed`` are None if they were not."""

    lane: str
    block: int
    block_hash: bytes
    backed: int
    included: tuple[CandidateFact, ...] = ()
    timed_out: tuple[CandidateFact, ...] = ()
    session_ends: bool = False
    opened: tuple[ChannelId, ...] | None = None
    closed: tuple[ChannelId, ...] | None = None
    channels: tuple[ChannelFact, ...] = ()
    downward: tuple[DownwardFact, ...] = ()
    watermarks: tuple[WatermarkFact, ...] = ()
    unread: tuple[str, ...] = ()
    """What nobody could decode: storage items, events, extrinsics. Nothing is compared with them."""
    without_event: tuple[WithoutEvent, ...] = ()
    downward_resets: tuple[DownwardReset, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the record of topic `relay-chain.facts` in JSON form, for `TransportContext.encode`."""
        return {
            "lane": self.lane,
            "block": self.block,
            "block_hash": self.block_hash.hex(),
            "backed": self.backed,
            "included": [each._asdict() for each in self.included],
            "timed_out": [each._asdict() for each in self.timed_out],
            "session_ends": self.session_ends,
            "opened": _channels_json(self.opened),
            "closed": _channels_json(self.closed),
            "channels": [_with_head(each) for each in self.channels],
            "downward": [_with_head(each) for each in self.downward],
            "watermarks": [each._asdict() for each in self.watermarks],
            "unread": list(self.unread),
            "without_event": [each._asdict() for each in self.without_event],
            "downward_resets": [_with_head(each) for each in self.downward_resets],
        }

    @classmethod
    def from_datum(cls, datum: Mapping[str, Any]) -> BlockFacts:
        """Return the facts of a decoded record."""
        return cls(
            datum["lane"],
            datum["block"],
            datum["block_hash"],
            datum["backed"],
            tuple(CandidateFact(**each) for each in datum["included"]),
            tuple(CandidateFact(**each) for each in datum["timed_out"]),
            datum["session_ends"],
            _channels(datum["opened"]),
            _channels(datum["closed"]),
            tuple(ChannelFact(**each) for each in datum["channels"]),
            tuple(DownwardFact(**each) for each in datum["downward"]),
            tuple(WatermarkFact(**each) for each in datum["watermarks"]),
            tuple(datum["unread"]),
            tuple(WithoutEvent(**each) for each in datum["without_event"]),
            tuple(DownwardReset(**each) for each in datum["downward_resets"]),
        )


def _channels_json(channels: tuple[ChannelId, ...] | None) -> list[dict[str, int]] | None:
    return None if channels is None else [{"sender": sender, "recipient": to} for sender, to in channels]


def _channels(found: list[dict[str, int]] | None) -> tuple[ChannelId, ...] | None:
    return None if found is None else tuple((each["sender"], each["recipient"]) for each in found)


def _with_head(fact: ChannelFact | DownwardFact | DownwardReset) -> dict[str, Any]:
    return {**fact._asdict(), "mqc_head": None if fact.mqc_head is None else fact.mqc_head.hex()}
