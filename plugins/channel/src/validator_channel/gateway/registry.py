# SPDX-License-Identifier: Apache-2.0
"""The registry of peers, `peers.toml`: who a peer is and what it may do. Source: channel_rules 3.1 "Trust boundary", 3.4, 5.2."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from validator_channel.application import ALL_PARAS, SUBMIT_TOPICS, WATCH_TOPICS, Welcome, shown
from validator_channel.crypto import NO_PSK
from validator_channel.errors import cut
from validator_channel.hello import Peering
from validator_channel.limits import (
    NAME_CHARACTERS_MAX,
    PARA_MAX,
    PARAS_MAX,
    PEERS_MAX,
    RATE_MAX,
    REGISTRY_BYTES_MAX,
    SESSIONS_MAX,
)
from validator_channel.net.certificates import read_psk
from validator_channel.net.peers import Peer
from validator_channel.tables import PIN_EXPECTED, ConfigError, Table, is_pin, read_toml
from validator_channel.wire import channel_of, format_channel, format_id


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

Dead letters have their own rules (`validator_channel.gateway.records`).
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


KEYS: Final = (
    "peer", "gateway", "pins", "needs_uri", "psk_file", "lanes", "submit", "watch", "grants", "records_per_s", "burst", "sessions_max",
    "enabled",
)  # fmt: skip
"""The keys of a peer, in the order in which problems are reported."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")


class RegistryEntry(Table):
    """A peer's table."""

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self.problem(key, "true or false")
            return default
        return value

    def count(self, key: str, default: int, maximum: int) -> int:
        """Return an integer from 1."""
        value = self.values.get(key, default)
        if type(value) is not int or not 1 <= value <= maximum:
            self.problem(key, f"an integer from 1 to {maximum}")
            return default
        return value

    def rate(self, key: str, default: float, maximum: int) -> float:
        """Return a number above 0."""
        value = self.values.get(key, default)
        if type(value) not in (int, float) or not 0 < value <= maximum:
            self.problem(key, f"a number above 0, at most {maximum}")
            return default
        return float(value)

    def choices(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        """Return some of the known names, each once, in their order."""
        value = self.values.get(key, [])
        if (
            not isinstance(value, list)
            or len({*map(str, value)}) != len(value)
            or any(each not in known for each in value)
        ):
            self.problem(key, f"a list of {', '.join(known)}, each at most once")
            return ()
        return tuple(each for each in known if each in value)

    def pins(self) -> frozenset[bytes]:
        """Return the digests under ``pins``: ``current`` and ``next``."""
        value = self.values.get("pins", {})
        names = {"current", "next"}
        if not isinstance(value, dict) or not value.keys() <= names or ("next" in value and "current" not in value):
            self.problem("pins", "a table with current, and next if the key is about to change")
            return frozenset()
        for name, pin in value.items():
            if not is_pin(pin):
                self.problems.append(f"{self.begins}pins.{name}: expected {PIN_EXPECTED}, found {cut(pin, 60)}")
                return frozenset()
        return frozenset(bytes.fromhex(pin) for pin in value.values())

    def lanes(self) -> dict[str, frozenset[int] | None]:
        """Return the paras of each lane; None stands for all."""
        value = self.values.get("lanes")
        if not isinstance(value, dict) or not value:
            self.problem("lanes", "a table of paras by lane, with at least one lane")
            return {}
        lanes: dict[str, frozenset[int] | None] = {}
        for lane, paras in value.items():
            if paras == ALL_PARAS:
                lanes[lane] = None
            elif isinstance(paras, list) and len(paras) <= PARAS_MAX and all(_is_para(each) for each in paras):
                lanes[lane] = frozenset(paras)
            else:
                self.problems.append(
                    f"{self.begins}lanes.{lane}: expected '{ALL_PARAS}' or at most {PARAS_MAX} integers from 0 to {PARA_MAX},"
                    f" found {cut(paras, 60)}"
                )
        return lanes


def read_entry(name: str, entry: RegistryEntry, read_key: Callable[[Path], bytes]) -> PeerPolicy | None:
    """Return a peer's policy, or None if its table has problems, which are then in ``entry.problems``."""
    if len(name) > NAME_CHARACTERS_MAX or _NAME.fullmatch(name) is None:
        place = entry.begins.removesuffix(".")
        entry.problems.append(f"{place}: expected a name of 1 to {NAME_CHARACTERS_MAX} of a-z 0-9 . _ -")
    peer, gateway = entry.peer("peer"), entry.peer("gateway")
    if peer is not None and gateway is not None and (peer == gateway or channel_of(peer) != channel_of(gateway)):
        entry.problem("gateway", f"another peer ID than {format_id(peer)} with the same first 16 digits")
    policy = PeerPolicy(
        name=name,
        peer=peer or 0,
        gateway=gateway or 0,
        pins=entry.pins(),
        needs_uri=entry.flag("needs_uri", default=True),
        psk=entry.psk(read_key, "a path"),
        lanes=entry.lanes(),
        submit=entry.choices("submit", tuple(SUBMIT_TOPICS)),
        watch=entry.choices("watch", tuple(WATCH_TOPICS)),
        grants=frozenset(map(Grant, entry.choices("grants", tuple(map(str, Grant))))),
        records_per_s=entry.rate("records_per_s", 100.0, RATE_MAX),
        burst=entry.count("burst", 200, RATE_MAX),
        sessions_max=entry.count("sessions_max", 4, SESSIONS_MAX),
        is_enabled=entry.flag("enabled", default=True),
    )
    for topic in policy.submit:
        if topic in GRANT_OF_TOPIC and GRANT_OF_TOPIC[topic] not in policy.grants:
            entry.problem("submit", f"{topic} only with {GRANT_OF_TOPIC[topic]} in grants")
    if not policy.needs_uri and not policy.pins:
        entry.problem("needs_uri", "true, or pins")
    return None if entry.problems else policy


def _is_para(value: object) -> bool:
    return type(value) is int and 0 <= value <= PARA_MAX


FIELD_OF_KEY: Final[Mapping[str, str]] = {"enabled": "is_enabled", "psk_file": "psk"}
"""The fields of `PeerPolicy` that have other names than their keys."""
_SHOWN_WITH_VALUES: Final = frozenset({"needs_uri", "records_per_s", "burst", "sessions_max", "enabled"})


def changes(before: Mapping[int, PeerPolicy], after: Mapping[int, PeerPolicy]) -> list[str]:
    """Return a line for each peer that was added, removed or changed; only numbers and flags are shown with their values."""
    lines = [f"{before[channel].name}: removed" for channel in before.keys() - after.keys()]
    lines += [f"{after[channel].name}: added" for channel in after.keys() - before.keys()]
    for channel in before.keys() & after.keys():
        old, new = before[channel], after[channel]
        if old != new:
            lines.append(f"{new.name}: {', '.join(_differences(old, new)) or f'was {old.name}'}")
    return sorted(lines)


def _differences(old: PeerPolicy, new: PeerPolicy) -> Iterator[str]:
    for key in KEYS:
        was, is_now = (getattr(each, FIELD_OF_KEY.get(key, key)) for each in (old, new))
        if was != is_now:
            yield f"{key} {was} -> {is_now}".lower() if key in _SHOWN_WITH_VALUES else key


Stamp: TypeAlias = tuple[int | None, ...]
"""What changes with a file."""


def read_registry(path: Path, read_key: Callable[[Path], bytes] = read_psk) -> dict[int, PeerPolicy]:
    """Return the peers of a registry by channel ID; files that it names are relative to its folder.

    ``read_key`` returns the pre-shared key in a file; it raises ``ValueError``.

    Raises `ConfigError`: for a file that cannot be read, is too long or is not TOML; otherwise with all problems of all peers, also
    channels that two of them share.
    """
    document = read_toml(path, REGISTRY_BYTES_MAX)
    problems = [
        f"{path}: {key}: no such key, expected tables [peers.NAME]" for key in sorted(document) if key != "peers"
    ]
    tables = document.get("peers", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(*problems, f"{path}: peers: expected tables [peers.NAME]")
    if len(tables) > PEERS_MAX:
        raise ConfigError(*problems, f"{path}: peers: expected at most {PEERS_MAX}, found {len(tables)}")
    policies = []
    for name, table in tables.items():
        entry = RegistryEntry(f"{path}: peers.{name}.", table, KEYS)
        policy = read_entry(name, entry, lambda file: read_key(path.parent / file))
        problems += entry.problems
        policies += [policy] if policy is not None else []
    problems += _shared(path, policies)
    if problems:
        raise ConfigError(*problems)
    return {policy.channel: policy for policy in policies}


class RegistryFile:
    """The registry and the pre-shared keys that it names, as files that may change; those that cannot be used change nothing."""

    def __init__(self, path: Path) -> None:
        """Read the files. Raises `ConfigError`."""
        self._path = path
        self._seen: dict[Path, Stamp] = {}
        self.peers: Mapping[int, PeerPolicy] = self._read()
        self.problems: tuple[str, ...] = ()
        """What is wrong with the file as it is now, while older peers hold."""

    def poll(self) -> bool:
        """Read the files if one has changed since the last call, and return whether one has; `problems` says if they are broken."""
        if all(_stamp(path) == stamp for path, stamp in self._seen.items()):
            return False
        try:
            self.peers = self._read()
            self.problems = ()
        except ConfigError as error:
            self.problems = error.problems
        return True

    def _read(self) -> dict[int, PeerPolicy]:
        """Read all files, each after a look at its stamp, so that no later change is missed."""
        self._seen = {self._path: _stamp(self._path)}
        return read_registry(self._path, self._read_key)

    def _read_key(self, path: Path) -> bytes:
        self._seen[path] = _stamp(path)
        return read_psk(path)


def _stamp(path: Path) -> Stamp:
    """Return what changes with a file: its mode, too, since others must not be able to read a key."""
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode


def _shared(path: Path, policies: list[PeerPolicy]) -> list[str]:
    """Return a problem for each channel that several peers name."""
    counts = Counter(policy.channel for policy in policies)
    problems = []
    for channel in (channel for channel, count in counts.items() if count > 1):
        names = ", ".join(f"peers.{each.name}" for each in policies if each.channel == channel)
        problems.append(
            f"{path}: {names}: expected a channel for each, found {format_channel(channel)} for all of them"
        )
    return problems
