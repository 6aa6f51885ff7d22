# SPDX-License-Identifier: Apache-2.0
"""The settings of a simulated relay chain, and the blocks that it yields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from validator.errors import UserError

RecordKind = Literal["blocks", "channel-requests", "downward-messages", "candidates"]
Record = tuple[RecordKind, dict[str, Any]]


BLOCK_MAX: Final = 2**32 - 1
"""Greatest number of a block."""

PARAS_MIN: Final = 3
"""Fewest paras: session changes take one away, and a channel needs two."""

CANDIDATES_PER_BLOCK_MAX: Final = 65_536
"""Greatest number of candidates of a block: a lane takes no more."""

PARAS_MAX: Final = 100_000
"""Greatest number of paras: each has its place in memory before the first block."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """One simulated chain; the same settings give the same bytes.

    Rates are whole numbers per hundred. `violation_share` is the share, 0 to 1, of candidates, channel requests and
    downward messages that are made to break a rule. On a chain that enacts on inclusion, it is also a share of the blocks.
    Raises `UserError` for a value out of range.
    """

    seed: int = 1
    blocks: int = 100
    lane: str = "polkadot"
    first_block: int = 1
    preset: str | None = None  # limits, by a name that the protocol's simulation knows; None: its default
    topology: str | None = None  # channels, likewise; a simulation without such names ignores both
    paras: int | None = None  # None: all of the topology, or as many as a block's candidates need
    candidates_per_block: int = 12
    horizontal_per_100_candidates: int = 80
    upward_per_100_candidates: int = 40
    downward_per_100_blocks: int = 150
    requests_per_100_blocks: int = 250
    channels_per_para: int = 0  # minimum number of recipients each; the recorded topology has hubs and edges
    messages_per_round: int = 20  # ordinary upward messages that fit into the weight of a dispatch round
    violation_share: float = 0.1
    session_length_blocks: int = 10
    configuration_changes_per_100_sessions: int = 40
    enactment: Literal["immediate", "on-inclusion"] = "immediate"
    notifications: bool = False
    history: bool = (
        False  # live through the protocol's named rules, the oldest first; a protocol with one set of rules ignores it
    )
    unlimited_balances: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.violation_share <= 1:
            raise UserError(f"violation_share: expected 0 to 1, found {self.violation_share}")
        if self.enactment not in ("immediate", "on-inclusion"):
            raise UserError(f"enactment: expected immediate or on-inclusion, found {self.enactment!r}")
        if self.blocks < 0:
            raise UserError(f"blocks: expected 0 or more, found {self.blocks}")
        if not 0 <= self.candidates_per_block <= CANDIDATES_PER_BLOCK_MAX:
            raise UserError(
                f"candidates_per_block: expected 0 to {CANDIDATES_PER_BLOCK_MAX}, found {self.candidates_per_block}"
            )
        for name in ("first_block", "messages_per_round", "session_length_blocks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        if self.first_block + self.blocks - 1 > BLOCK_MAX:
            raise UserError(f"first_block: expected {self.blocks} blocks up to {BLOCK_MAX}, found {self.first_block}")
        if self.paras is not None and not PARAS_MIN <= self.paras <= PARAS_MAX:
            raise UserError(f"paras: expected {PARAS_MIN} to {PARAS_MAX}, found {self.paras}")


# "real" is the load of real chains: 3.4 candidates a second at blocks of 6 s, with one message per hundred candidates. "full"
# is 100 fully used cores. "ceiling" adds as many messages as the configuration lets a candidate send. Sessions are Kusama's.
# "history" is a small chain that lives through all named rules of its protocol, with limits that it reaches.
PROFILES: Final[dict[str, dict[str, Any]]] = {
    "demo": {},
    "real": {
        "candidates_per_block": 20,
        "horizontal_per_100_candidates": 1,
        "upward_per_100_candidates": 1,
        "downward_per_100_blocks": 10,
        "requests_per_100_blocks": 5,
        "session_length_blocks": 600,
        "configuration_changes_per_100_sessions": 5,
    },
    "full": {
        "candidates_per_block": 100,
        "horizontal_per_100_candidates": 1,
        "upward_per_100_candidates": 1,
        "downward_per_100_blocks": 50,
        "requests_per_100_blocks": 20,
        "session_length_blocks": 600,
        "configuration_changes_per_100_sessions": 5,
    },
    "ceiling": {
        "candidates_per_block": 100,
        "horizontal_per_100_candidates": 1000,
        "upward_per_100_candidates": 1000,
        "downward_per_100_blocks": 500,
        "requests_per_100_blocks": 50,
        "channels_per_para": 10,
        "messages_per_round": 1200,
        "session_length_blocks": 100,
        "configuration_changes_per_100_sessions": 5,
    },
    "history": {
        "history": True,
        "blocks": 430,
        "preset": "tight",
        "paras": 26,
        "candidates_per_block": 10,
        "requests_per_100_blocks": 400,
        "configuration_changes_per_100_sessions": 60,
    },
}


def settings_of_profile(profile: str, **numbers: Any) -> SimulationSettings:
    """Return the settings of a profile; ``numbers`` override the profile's values unless they are None. Raises `UserError`."""
    if profile not in PROFILES:
        raise UserError(f"profile: expected one of {', '.join(PROFILES)}, found {profile!r}")
    given = {name: value for name, value in numbers.items() if value is not None}
    return SimulationSettings(**{**PROFILES[profile], **given})


@dataclass(frozen=True, slots=True)
class SimulatedBlock:
    """One block: its records in canonical order, their expected results, and the violations built into them.

    `records` starts with the record of the block itself. `expected` has the verdicts of inclusions, timeouts,
    requests, downward messages and candidates, in this order. `dispatched` is [[para, payload hex], ...].
    `intended` gives, by index of the candidate, the error kinds that it was made to cause, at times more than one.
    """

    block: int
    records: list[Record]
    expected: list[dict[str, Any]]
    dispatched: list[list[Any]] = field(default_factory=list)
    intended: dict[int, tuple[str, ...]] = field(default_factory=dict)


class Simulation(Protocol):
    """A seeded chain with the verdicts that its model, which shares no code with the rules, gives on its traffic."""

    settings: SimulationSettings

    def chain(self) -> dict[str, Any]:
        """Return the chain's configuration: ``lane``, ``protocol``, ``config`` (its limits), and the other keys of ``[chains.<lane>]``."""

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain. Records are in the form of `validator submit`, expected verdicts in the conformance format."""
