# SPDX-License-Identifier: Apache-2.0
"""One peer's table in the registry: each key has a type, and every problem becomes a line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from validator_channel.application import ALL_PARAS, SUBMIT_TOPICS, WATCH_TOPICS
from validator_channel.crypto import NO_PSK
from validator_channel.gateway.limits import NAME_CHARACTERS_MAX, PARA_MAX, PARAS_MAX, RATE_MAX, SESSIONS_MAX
from validator_channel.gateway.policy import GRANT_OF_TOPIC, Grant, PeerPolicy
from validator_channel.ids import channel_of, format_id, parse_id

KEYS: Final = (
    "peer", "gateway", "pins", "needs_uri", "psk_file", "lanes", "submit", "watch", "grants", "records_per_s", "burst", "sessions_max",
    "enabled",
)  # fmt: skip
"""The keys of a peer, in the order in which problems are reported."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_PIN: Final = re.compile(r"[0-9a-f]{64}")


class Entry:
    """A peer's table; ``problems`` grows with each value that is not as expected. ``read_psk`` returns the key in a file."""

    def __init__(self, place: str, table: Mapping[str, Any], read_psk: Callable[[str], bytes]) -> None:
        self.problems = [
            f"{place}.{key}: no such key, expected one of {', '.join(KEYS)}" for key in table if key not in KEYS
        ]
        self.place = place
        self._table = table
        self._read_psk = read_psk

    def problem(self, key: str, expected: str) -> None:
        """Note that a key's value is not what was expected."""
        found = _shown(self._table[key]) if key in self._table else "nothing"
        self.problems.append(f"{self.place}.{key}: expected {expected}, found {found}")

    def peer(self, key: str) -> int | None:
        """Return a required peer ID."""
        try:
            return parse_id(str(self._table.get(key)))
        except ValueError:
            self.problem(key, "32 lower-case hex digits")
            return None

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self._table.get(key, default)
        if not isinstance(value, bool):
            self.problem(key, "true or false")
            return default
        return value

    def count(self, key: str, default: int, maximum: int) -> int:
        """Return an integer from 1."""
        value = self._table.get(key, default)
        if type(value) is not int or not 1 <= value <= maximum:
            self.problem(key, f"an integer from 1 to {maximum}")
            return default
        return value

    def rate(self, key: str, default: float, maximum: int) -> float:
        """Return a number above 0."""
        value = self._table.get(key, default)
        if type(value) not in (int, float) or not 0 < value <= maximum:
            self.problem(key, f"a number above 0, at most {maximum}")
            return default
        return float(value)

    def choices(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        """Return some of the known names, each once, in their order."""
        value = self._table.get(key, [])
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
        value = self._table.get("pins", {})
        names = {"current", "next"}
        if not isinstance(value, dict) or not value.keys() <= names or ("next" in value and "current" not in value):
            self.problem("pins", "a table with current, and next if the key is about to change")
            return frozenset()
        for name, pin in value.items():
            if not isinstance(pin, str) or _PIN.fullmatch(pin) is None:
                self.problems.append(
                    f"{self.place}.pins.{name}: expected 64 lower-case hex digits, found {_shown(pin)}"
                )
                return frozenset()
        return frozenset(bytes.fromhex(pin) for pin in value.values())

    def psk(self) -> bytes:
        """Return the pre-shared key, or what stands for none."""
        value = self._table.get("psk_file")
        if value is None:
            return NO_PSK
        if not isinstance(value, str):
            self.problem("psk_file", "a path")
            return NO_PSK
        try:
            return self._read_psk(value)
        except ValueError as error:
            self.problems.append(f"{self.place}.psk_file: {error}")
            return NO_PSK

    def lanes(self) -> dict[str, frozenset[int] | None]:
        """Return the paras of each lane; None stands for all."""
        value = self._table.get("lanes")
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
                    f"{self.place}.lanes.{lane}: expected '{ALL_PARAS}' or at most {PARAS_MAX} integers from 0 to {PARA_MAX},"
                    f" found {_shown(paras)}"
                )
        return lanes


def read_entry(name: str, entry: Entry) -> PeerPolicy | None:
    """Return a peer's policy, or None if its table has problems, which are then in ``entry.problems``."""
    if len(name) > NAME_CHARACTERS_MAX or _NAME.fullmatch(name) is None:
        entry.problems.append(f"{entry.place}: expected a name of 1 to {NAME_CHARACTERS_MAX} of a-z 0-9 . _ -")
    peer, gateway = entry.peer("peer"), entry.peer("gateway")
    if peer is not None and gateway is not None and (peer == gateway or channel_of(peer) != channel_of(gateway)):
        entry.problem("gateway", f"another peer ID than {format_id(peer)} with the same first 16 digits")
    policy = PeerPolicy(
        name=name,
        peer=peer or 0,
        gateway=gateway or 0,
        pins=entry.pins(),
        needs_uri=entry.flag("needs_uri", default=True),
        psk=entry.psk(),
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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
