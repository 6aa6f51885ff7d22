# SPDX-License-Identifier: Apache-2.0
"""What a simulated relay chain is made from, and the blocks that it yields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from validator.errors import UserError

RecordKind = Literal["blocks", "channel-requests", "downward-messages", "candidates"]
Record = tuple[RecordKind, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """One simulated chain; the same settings give the same bytes.

    Rates are whole numbers per hundred. `violation_share` is the share, 0 to 1, of candidates, channel requests and
    downward messages (and, where the chain enacts on inclusion, of blocks) that set out to break a rule.
    """

    seed: int = 1
    blocks: int = 100
    lane: str = "polkadot"
    first_block: int = 1
    preset: str | None = None  # limits, by a name that the protocol's simulation knows; None: its default
    topology: str | None = None  # channels, likewise; a simulation without such names takes no notice of either
    paras: int | None = None  # all of the topology, or as many as the candidates of a block need
    candidates_per_block: int = 12
    horizontal_per_100_candidates: int = 80
    upward_per_100_candidates: int = 40
    downward_per_100_blocks: int = 150
    requests_per_100_blocks: int = 250
    channels_per_para: int = 0  # at least so many recipients each; the recorded topology has hubs and edges
    messages_per_round: int = 20  # ordinary upward messages that fit into the weight of a dispatch round
    violation_share: float = 0.1
    session_length_blocks: int = 10
    configuration_changes_per_100_sessions: int = 40
    enactment: Literal["immediate", "on-inclusion"] = "immediate"
    notifications: bool = False
    unlimited_balances: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.violation_share <= 1:
            raise UserError(f"violation_share: expected 0 to 1, found {self.violation_share}")
        if self.enactment not in ("immediate", "on-inclusion"):
            raise UserError(f"enactment: expected immediate or on-inclusion, found {self.enactment!r}")
        for name in ("blocks", "candidates_per_block"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}: expected 0 or more, found {getattr(self, name)}")
        for name in ("first_block", "messages_per_round", "session_length_blocks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        if self.paras is not None and self.paras < 3:
            raise UserError(f"paras: expected 3 or more, found {self.paras}")


# The load of real chains: 3.4 candidates a second at blocks of 6 s with a message in a hundred candidates, 100 cores
# full, and 100 cores full of as many messages as the configuration lets a candidate send. Sessions are Kusama's.
PROFILES: Final[dict[str, dict[str, int]]] = {
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
}


def settings_of_profile(profile: str, **numbers: Any) -> SimulationSettings:
    """Return the settings of a profile, with explicit numbers in place of its own; None leaves a number as it is."""
    if profile not in PROFILES:
        raise UserError(f"profile: expected one of {', '.join(PROFILES)}, found {profile!r}")
    given = {name: value for name, value in numbers.items() if value is not None}
    return SimulationSettings(**{**PROFILES[profile], **given})


@dataclass(frozen=True, slots=True)
class SimulatedBlock:
    """One block: its records in canonical order, what must come out of them, and the rules set out to be broken.

    `records` starts with the record of the block itself. `expected` has the verdicts of inclusions, timeouts,
    requests, downward messages and candidates, in this order. `dispatched` is [[para, payload hex], ...].
    `intended` names, by index of the candidate, the error kinds it was made to break (at times more than one).
    """

    block: int
    records: list[Record]
    expected: list[dict[str, Any]]
    dispatched: list[list[Any]] = field(default_factory=list)
    intended: dict[int, tuple[str, ...]] = field(default_factory=dict)


class Simulation(Protocol):
    """A seeded chain with the verdicts that a model of its own, which shares no code with the rules, gives on its traffic."""

    settings: SimulationSettings

    def chain(self) -> dict[str, Any]:
        """Return the chain's configuration: ``lane``, ``protocol``, ``config`` (its limits), and the other keys of ``[chains.<lane>]``."""

    def blocks(self) -> Iterator[SimulatedBlock]:
        """Play the chain; records are as `validator submit` takes them, expected verdicts as the conformance format writes them."""
