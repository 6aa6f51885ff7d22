# SPDX-License-Identifier: Apache-2.0
"""What the transport knows of a peer; the registry of the application provides it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from validator_channel.hello import Peering
from validator_channel.ids import channel_of, format_id
from validator_channel.net.identity import Identity
from validator_channel.net.limits import SHOWN_PEERS_MAX


def every_topic(topic: int) -> bool:  # noqa: ARG001
    """Allow every topic."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The remote peer of one channel, as the registry of this side has it.

    ``pins`` are SHA-256 digests of SubjectPublicKeyInfo, usually the current and the next key. ``needs_uri`` requires the URI of the peer
    in its certificate. If both are configured, both must hold. ``topics`` says whether the peer may register a topic. Raises
    ``ValueError`` if the certificate would not be checked at all, for a pin that has not 32 bytes, or for a limit below 1.
    """

    peering: Peering
    pins: frozenset[bytes] = frozenset()
    needs_uri: bool = True
    sessions_max: int = 8
    topics: Callable[[int], bool] = field(default=every_topic, repr=False)

    def __post_init__(self) -> None:
        if not self.pins and not self.needs_uri:
            raise ValueError("pins: expected at least one if the certificate need not name the peer")
        if any(len(pin) != 32 for pin in self.pins):
            raise ValueError("pins: expected SHA-256 digests of 32 bytes")
        if self.sessions_max < 1:
            raise ValueError(f"sessions_max: expected at least 1, found {self.sessions_max}")

    @property
    def channel(self) -> int:
        """Return the channel that the peer shares with this side."""
        return channel_of(self.peering.remote_peer)

    def accepts(self, identity: Identity) -> bool:
        """Return whether a certificate belongs to this peer. Source: channel_rules 1.2.6 step 1."""
        return self.objection(identity) is None

    def objection(self, identity: Identity) -> str | None:
        """Return why a certificate does not belong to this peer, or None."""
        expected = self.peering.remote_peer
        if self.needs_uri and expected not in identity.peers:
            found = ", ".join(sorted(map(format_id, identity.peers))[:SHOWN_PEERS_MAX]) or "none"
            return f"expected the peer {format_id(expected)} in it, found {found}"
        if self.pins and identity.pin not in self.pins:
            return f"its key {identity.pin.hex()} is none of the pins"
        return None


Registry = Callable[[], Mapping[int, Peer]]
"""Returns the peers of now, by channel ID."""


class PeeringsOf(Mapping[int, Peering]):
    """The peerings of the peers of now, by channel ID: the view of a registry that the hello exchange takes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getitem__(self, channel: int) -> Peering:
        return self._registry()[channel].peering

    def __iter__(self) -> Iterator[int]:
        return iter(self._registry())

    def __len__(self) -> int:
        return len(self._registry())


class CertifiedBy:
    """The peer IDs that a certificate proves under the registry of now."""

    def __init__(self, registry: Registry, identity: Identity) -> None:
        self._registry = registry
        self._identity = identity

    def __contains__(self, peer_id: object) -> bool:
        if not isinstance(peer_id, int):
            return False
        peer = self._registry().get(channel_of(peer_id))
        return peer is not None and peer.peering.remote_peer == peer_id and peer.accepts(self._identity)
