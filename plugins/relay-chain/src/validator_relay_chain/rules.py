# SPDX-License-Identifier: Apache-2.0
"""What of the Router's configuration a runtime decides: limits, and rules as features.

Features are found in the runtime's metadata where it shows them and else by its version.

Versions are numbers of the Fellowship's runtimes (Polkadot, Kusama and their test net Paseo), or of Westend and Rococo. Other chains run
other builds, with their own numbers: each is taken for the Fellowship's version that first had the youngest thing that its metadata shows.

Notifications of requests are never among the features: on a lane that follows a chain they arrive as downward messages like any other.
Source: chain_2026 section 5.

A lane judges each block by the rules of its time, so no block may reach it before its job has the rules of that block. The transport stops
before the first block under rules that ``rules.json`` of the lane's folder does not name, and writes there what is wanted.
`validator follow` adds it to the configuration, and continues once the job has started with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from validator_relay_chain.errors import FollowError, RulesWanted, UndecodableBlock
from validator_relay_chain.metadata import Runtime

RENAMED: Final = {
    "hrmp_channel_max_capacity": "hrmp_channel_max_places",
    "hrmp_channel_max_total_size": "hrmp_channel_max_size",
}
"""Names that the chain uses today for limits of the Router."""

SAME_NAMES: Final = (
    "max_upward_queue_count",
    "max_upward_queue_size",
    "max_upward_message_size",
    "max_upward_message_num_per_candidate",
    "hrmp_max_message_num_per_candidate",
    "max_downward_message_size",
    "hrmp_max_parachain_outbound_channels",
    "hrmp_max_parachain_inbound_channels",
    "hrmp_max_parathread_outbound_channels",
    "hrmp_max_parathread_inbound_channels",
    "hrmp_sender_deposit",
    "hrmp_recipient_deposit",
    "hrmp_channel_max_message_size",
)
"""Names that both have."""

PLACE: Final = ("Configuration", "ActiveConfig")
CONFIGURATION: Final = ".".join(PLACE)

PRESET: Final = "polkadot-2023"
"""Supplies the limits that chains have no more, and all of them while the chain's do not decode."""

U32_MAX: Final = 2**32 - 1

WITH_SYSTEM: Final = ("Hrmp", "DefaultChannelSizeAndCapacityWithSystem")
"""The constant with size and places of a channel that ``establish_channel_with_system`` opens; older metadata does not show it."""


def decode_configuration(raw: bytes | None, runtime: Runtime) -> dict[str, int]:
    """Return the Router's limits of a value of ``ActiveConfig`` and of constants.

    Raises `UndecodableBlock` for no value, and for one that does not decode.
    """
    if raw is None:
        raise UndecodableBlock(f"runtime {runtime}: expected {CONFIGURATION}, found none")
    active = runtime.value(*PLACE, raw)
    if not isinstance(active, dict):
        raise UndecodableBlock(f"runtime {runtime}: {CONFIGURATION}: expected named fields, found none")
    return router_configuration(active) | _with_system(runtime.constant(*WITH_SYSTEM))


def _with_system(constant: bytes | None) -> dict[str, int]:
    """Return what the constant `WITH_SYSTEM` says; nothing if it is not there, or another one."""
    if constant is None or len(constant) != 8:
        return {}
    size, places = (int.from_bytes(constant[at : at + 4], "little") for at in (0, 4))
    return {"hrmp_system_channel_max_places": places, "hrmp_system_channel_max_message_size": size}


def router_configuration(active: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a decoded ``ActiveConfig`` by the Router's names; a u32 of old runtimes may have been larger elsewhere."""
    found = {}
    for name, value in active.items():
        known = RENAMED.get(name, name if name in SAME_NAMES else None)
        if known is not None and isinstance(value, int):
            found[known] = value if known.endswith("deposit") else min(value, U32_MAX)
    return found


def changed_limits(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of a configuration that differ from those before."""
    return {name: value for name, value in after.items() if before.get(name) != value}


FELLOWSHIP: Final = frozenset({"polkadot", "kusama", "paseo", "paseo-testnet"})
TEST_NETS: Final = frozenset({"westend", "rococo"})

SIGNALS: Final = "ump_signals"


class Since(NamedTuple):
    """The first version of the runtime with a rule that metadata does not show."""

    fellowship: int
    test_nets: int


UNSEEN: Final = {
    "relaxed_watermark": Since(9_430, 9_430),
    "force_open_channel": Since(1_000_000, 1_000_000),
    "dmp_by_relay_parent": Since(1_000_000, 1_000_000),
    "downward_needs_head": Since(1_004_000, 1_017_000),
    "approved_peer_signal": Since(2_000_000, 1_019_000),
    "watermark_may_stay": Since(2_000_000, 1_020_000),
}
"""Rules that metadata does not show. Two need something that it does show, besides: ``force_open_channel`` the call, where
``force_open_channel_plain`` holds before it, and ``approved_peer_signal`` signals."""

Shows = Callable[[Runtime], bool]


def _call(name: str) -> Shows:
    return lambda runtime: runtime.has_call("Hrmp", name)


_FORCES_OPEN: Final = _call("force_open_hrmp_channel")


def _has_signals(runtime: Runtime) -> bool:
    return runtime.has_signals


def _has_one_limit(runtime: Runtime) -> bool:
    return "hrmp_max_parathread_inbound_channels" not in runtime.configuration_fields


_SEEN: Final[dict[str, Shows]] = {
    "no_ttl": _call("hrmp_cancel_open_request"),
    "cancel_open_request": _call("hrmp_cancel_open_request"),
    "clean_open_channel_requests": _call("hrmp_cancel_open_request"),
    "force_open_channel_plain": _FORCES_OPEN,
    "dmq_length_limit": lambda runtime: runtime.has("Dmp", "DeliveryFeeFactor"),
    "message_queue": lambda runtime: runtime.has("MessageQueue", "BookStateFor"),
    "single_channel_limit": _has_one_limit,
    "system_channels_without_deposits": _call("establish_system_channel"),
    "establish_system_channel": _call("establish_system_channel"),
    "poke_channel_deposits": _call("poke_channel_deposits"),
    "establish_channel_with_system": _call("establish_channel_with_system"),
    SIGNALS: _has_signals,
    "forced_requests": _call("force_clean_hrmp"),
    "as_the_chain": _has_signals,
}

_ORDER: Final = (
    "no_ttl", "cancel_open_request", "clean_open_channel_requests", "force_open_channel_plain", "force_open_channel",
    "dmq_length_limit", "relaxed_watermark", "message_queue", "dmp_by_relay_parent", "single_channel_limit",
    "system_channels_without_deposits", "establish_system_channel", "poke_channel_deposits", "establish_channel_with_system",
    "downward_needs_head", "watermark_may_stay", SIGNALS, "approved_peer_signal", "forced_requests", "as_the_chain",
)  # fmt: skip
"""That of the table of profiles."""

_TAKEN_FOR: Final[tuple[tuple[int, str, Shows], ...]] = (
    (2_000_000, "pages of downward messages", lambda runtime: runtime.has_downward_pages),
    (2_000_000, "scheduling parents", lambda runtime: runtime.has_scheduling_parents),
    (1_004_000, "signals", _has_signals),
    (1_003_000, "the call establish_channel_with_system", _call("establish_channel_with_system")),
    (1_000_000, "minimum_backing_votes", lambda runtime: "minimum_backing_votes" in runtime.configuration_fields),
    (9_430, "one limit of channels for all paras", _has_one_limit),
)
"""The version that a runtime with other numbers is taken for, by the youngest thing that its metadata shows."""


def features_of(runtime: Runtime, before: Collection[str] = ()) -> list[str]:
    """Return the features of a runtime, in the order of the table of profiles.

    ``before`` are those that its lane had: of a chain whose versions are not known, what was there and metadata does not show stays.
    """
    held = {name for name, shows in _SEEN.items() if shows(runtime)} | _unseen(runtime, before)
    if "force_open_channel" in held:
        if "force_open_channel_plain" in held:
            held.remove("force_open_channel_plain")
        else:
            held.remove("force_open_channel")
    if SIGNALS not in held:
        held.discard("approved_peer_signal")
    return [name for name in _ORDER if name in held]


def guess_of(runtime: Runtime) -> str | None:
    """Say what the features of a runtime rest on if its versions are not known; None if they are."""
    if runtime.spec_name in FELLOWSHIP | TEST_NETS:
        return None
    version, youngest = _taken_for(runtime)
    return (
        f"no version of {runtime.spec_name} is known here: since its metadata shows {youngest}, what it does not show is guessed "
        f"from polkadot {version}"
    )


def _unseen(runtime: Runtime, before: Collection[str]) -> set[str]:
    if runtime.spec_name in FELLOWSHIP:
        return {name for name, since in UNSEEN.items() if since.fellowship <= runtime.spec_version}
    if runtime.spec_name in TEST_NETS:
        return {name for name, since in UNSEEN.items() if since.test_nets <= runtime.spec_version}
    version, _ = _taken_for(runtime)
    return {name for name, since in UNSEEN.items() if name in before or since.fellowship <= version}


def _taken_for(runtime: Runtime) -> tuple[int, str]:
    found = ((version, name) for version, name, shows in _TAKEN_FOR if shows(runtime))
    return next(found, (0, "nothing younger"))


FILE: Final = "rules.json"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RulesEntry:
    """Rules from a block on, as features."""

    from_block: int
    features: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as `validator.toml` lists it."""
        return {"from_block": self.from_block, "features": list(self.features)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> RulesEntry:
        """Return the entry again. Raises ``LookupError``, ``TypeError``, ``ValueError``."""
        return cls(int(plain["from_block"]), tuple(str(each) for each in plain["features"]))


@dataclass(frozen=True, slots=True)
class KnownRules:
    """The entries that the configuration has, ascending, and the one that it lacks."""

    entries: tuple[RulesEntry, ...] = ()
    wanted: RulesEntry | None = None

    def at(self, block: int) -> tuple[str, ...] | None:
        """Return the features that hold in a block, or None if no entry says it."""
        return next((each.features for each in reversed(self.entries) if each.from_block <= block), None)

    def with_wanted(self) -> KnownRules:
        """Return these rules once the configuration has what was wanted."""
        return self if self.wanted is None else KnownRules((*self.entries, self.wanted))


def read_rules(folder: Path) -> KnownRules:
    """Return the known rules of a lane's folder; none if there is no file. Raises `FollowError` for another file."""
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"version {document['version']!r}")
        wanted = document["wanted"]
        return KnownRules(
            tuple(RulesEntry.of(each) for each in document["entries"]),
            None if wanted is None else RulesEntry.of(wanted),
        )
    except FileNotFoundError:
        return KnownRules()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FollowError(f"{path}: expected rules by height, version {VERSION}, found {error}") from error


def write_rules(folder: Path, known: KnownRules) -> None:
    """Write the known rules of a lane, whole or not at all. Raises `FollowError`."""
    path = folder / FILE
    new = path.with_name(f"{FILE}.new")
    wanted = None if known.wanted is None else known.wanted.to_json()
    document = {"version": VERSION, "entries": [each.to_json() for each in known.entries], "wanted": wanted}
    try:
        new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise FollowError(f"{path}: cannot be written: {error.strerror}") from error


def entries_of(listed: Iterable[Mapping[str, Any]]) -> KnownRules:
    """Return the rules of entries as the configuration lists them."""
    return KnownRules(tuple(RulesEntry.of(each) for each in listed))


class RulesGuard:
    """Lets no block pass whose rules the lane's configuration lacks."""

    def __init__(self, lane: str, folder: Path) -> None:
        self._lane, self._folder = lane, folder

    def features_at(self, block: int) -> tuple[str, ...]:
        """Return the features that the configuration has for a block; none if no entry says it."""
        return read_rules(self._folder).at(block) or ()

    def check(self, block: int, runtime: Runtime) -> None:
        """Raise `RulesWanted`, once it is written what is wanted, unless the configuration has the rules of a block under a new runtime."""
        known = read_rules(self._folder)
        before = known.at(block)
        features = tuple(features_of(runtime, before or ()))
        if features == before:
            return
        write_rules(self._folder, replace(known, wanted=RulesEntry(block, features)))
        guess = guess_of(runtime)
        raise RulesWanted(
            f"lane {self._lane}: block {block} is the first one under runtime {runtime}, whose rules the configuration lacks: "
            f"{changes(before or (), features)}{'' if guess is None else f' ({guess})'}: `validator follow --lane {self._lane}` adds them; "
            "then start the job again"
        )


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Return which features come and go, in words."""
    gone = [f"- {each}" for each in before if each not in after]
    return ", ".join([*(f"+ {each}" for each in after if each not in before), *gone]) or "the same features"
