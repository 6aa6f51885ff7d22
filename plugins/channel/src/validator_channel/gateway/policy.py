# SPDX-License-Identifier: Apache-2.0
"""Who a peer is and what it may do: lanes, paras, topics, rates. Source: channel_rules 3.1 "Trust boundary", 5.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from validator_channel.application import SUBMIT_TOPICS, WATCH_TOPICS, Welcome, shown
from validator_channel.crypto import NO_PSK
from validator_channel.hello import Peering
from validator_channel.ids import channel_of
from validator_channel.net.peers import Peer


class Grant(StrEnum):
    """What a peer may do only if its entry says so explicitly."""

    RELAY_CHAIN = "relay-chain"
    """Submit `blocks` and `downward-messages`, which the relay chain itself makes."""
    ROOT_REQUESTS = "root-requests"
    """Submit channel requests that are made on behalf of no para."""


GRANT_OF_TOPIC: Final[Mapping[str, Grant]] = {
    "blocks": Grant.RELAY_CHAIN,
    "downward-messages": Grant.RELAY_CHAIN,
}
"""The grant that a submit topic needs; the others need none."""

REQUESTS_OF_PARAS: Final = frozenset({
    "init_open_channel", "accept_open_channel", "accept_open_channel_from", "close_channel", "close_channel_to", "cancel_open_request",
    "establish_channel_with_system",
})  # fmt: skip
"""Kinds of channel requests that the para in their field ``origin`` makes; every other kind needs `Grant.ROOT_REQUESTS`."""

PARA_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "verdicts": ("para_id",),
    "dispatches": ("para_id",),
    "channel-events": ("sender", "recipient"),
    "ingress-events": ("sender", "recipient"),
    "headroom": ("para_id", "sender", "recipient"),
    "receipts": (),
    "lanes": (),
    "dead-letters": (),
}
"""The fields of a watched record that name its paras; a record without any belongs to everybody in its lane.

Dead letters have their own rules (`validator_channel.gateway.dead_letters`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPolicy:
    """One peer as the registry has it.

    ``lanes`` holds the paras of each lane that it speaks for, None for all of them. ``pins`` are SHA-256 digests of its keys.
    ``records_per_s`` and ``burst`` are records of all its sessions together.
    """

    name: str
    peer: int
    gateway: int
    lanes: Mapping[str, frozenset[int] | None]
    submit: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    grants: frozenset[Grant] = frozenset()
    pins: frozenset[bytes] = frozenset()
    needs_uri: bool = True
    psk: bytes = field(default=NO_PSK, repr=False)
    records_per_s: float = 100.0
    burst: int = 200
    sessions_max: int = 4
    is_enabled: bool = True

    @property
    def channel(self) -> int:
        """Return the channel ID."""
        return channel_of(self.peer)

    def topics(self) -> dict[int, str]:
        """Return the topics that the peer may register, by ID."""
        ids = {
            **{SUBMIT_TOPICS[name]: name for name in self.submit},
            **{WATCH_TOPICS[name]: name for name in self.watch},
        }
        return dict(sorted(ids.items()))

    def for_transport(self) -> Peer:
        """Return what the transport has to know of the peer."""
        topics = frozenset(self.topics())
        return Peer(
            peering=Peering(self.gateway, self.peer, self.psk, self.is_enabled),
            pins=self.pins,
            needs_uri=self.needs_uri,
            sessions_max=self.sessions_max,
            topics=topics.__contains__,
        )

    def welcome(self) -> Welcome:
        """Return the first message to a session of the peer."""
        return Welcome(
            {name: SUBMIT_TOPICS[name] for name in self.submit},
            {name: WATCH_TOPICS[name] for name in self.watch},
            {lane: None if paras is None else tuple(sorted(paras)) for lane, paras in self.lanes.items()},
        )

    def owns(self, lane: str, para: object) -> bool:
        """Return whether the peer speaks for a para of a lane."""
        if type(para) is not int or lane not in self.lanes:
            return False
        paras = self.lanes[lane]
        return paras is None or para in paras


def para_field(topic: str, record: Mapping[str, Any]) -> str | None:
    """Return which field of a submitted record names its para; None for a block, and for a request that no para makes."""
    if topic == "channel-requests":
        return "origin" if record.get("kind") in REQUESTS_OF_PARAS else None
    return None if topic == "blocks" else "para_id"


def para_of(topic: str, record: Mapping[str, Any]) -> int | None:
    """Return the para of a decoded record of a submit topic, or None if it has none."""
    name = para_field(topic, record)
    para = None if name is None else record.get(name)
    return para if type(para) is int else None


class Unauthorised(Exception):
    """A record that its peer may not submit; the text is for the peer."""


def check_authorised(policy: PeerPolicy, topic: str, record: Mapping[str, Any]) -> None:
    """Check a submitted record against the registry, which decides, whatever the record says of itself.

    Raises `Unauthorised`: for a topic that the peer may not submit, a lane that is not its own, a request of a kind that needs a grant,
    then a para that is not its own.
    """
    if not policy.is_enabled or topic not in policy.submit:
        raise Unauthorised(f"{topic}: not granted to this peer")
    needed = GRANT_OF_TOPIC.get(topic)
    if needed is not None and needed not in policy.grants:
        raise Unauthorised(f"{topic}: needs the grant {needed}")
    lane = record.get("lane")
    if not isinstance(lane, str) or lane not in policy.lanes:
        raise Unauthorised(f"{topic}: lane: expected one of this peer's lanes, found {shown(lane)}")
    name = para_field(topic, record)
    if name is None:
        if topic == "channel-requests" and Grant.ROOT_REQUESTS not in policy.grants:
            raise Unauthorised(f"{topic}: kind: {shown(record.get('kind'))} needs the grant {Grant.ROOT_REQUESTS}")
        return
    if not policy.owns(lane, record.get(name)):
        raise Unauthorised(
            f"{topic}: {name}: expected one of this peer's paras in {lane}, found {shown(record.get(name))}"
        )
