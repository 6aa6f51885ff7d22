# SPDX-License-Identifier: Apache-2.0
"""The runs of consecutive Polkadot blocks, and a lane that follows them in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.realdata.convert import PLACEHOLDER, Conversion, Records, convert, definition, encoded, seed
from tests.realdata.recorded import Json
from tests.unit.lanes.chains import inputs_of
from validator.core.outcomes import Executed, InputKind, Verdict
from validator.lanes.definition import LaneDefinition
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import RouterState


@dataclass(frozen=True)
class Run:
    """A run, and messages for a para that waited but were not recorded."""

    blocks: range
    candidates: int
    pending: int
    seeded_downward: tuple[int, int] | None = None
    """(para, sent_at) of a message that waits from the start."""
    sent_downward: dict[int, int] = field(default_factory=dict)
    """By block, the para that receives a message during the run."""

    def state(self, **keys: Any) -> Json:
        """Return the STATE.json that the run starts from."""
        if self.seeded_downward is not None:
            para, sent_at = self.seeded_downward
            keys = {"dmq": {str(para): [{"sent_at": sent_at, "msg": PLACEHOLDER}]}, **keys}
        return seed("polkadot", self.blocks.start, **keys)

    def conversion(self) -> Conversion:
        """Return the run's records."""
        return convert("polkadot", self.blocks, self.sent_downward)

    def definition(self, directory: Path) -> LaneDefinition:
        """Return the lane that follows the run."""
        return definition("polkadot", self.state(), directory)


LONG = Run(range(17_844_552, 17_844_572), candidates=360, pending=19, seeded_downward=(2000, 17_844_551))
# para 2004 processed nothing in its candidate of 15950022, so the message of the next candidate arrived in between
SHORT = Run(range(15_950_017, 15_950_027), candidates=150, pending=1, sent_downward={15_950_023: 2004})
SHIPPED = Run(range(17_844_552, 17_844_558), candidates=108, pending=22, seeded_downward=(2000, 17_844_551))
"""The beginning of the long run; a plain clone has it."""
RUNS = (LONG, SHORT)


@dataclass
class Followed:
    """The outcomes of a run in a lane, and the lane's state."""

    outcomes: list[Executed]
    state: RouterState

    def verdicts(self, kind: InputKind) -> list[Verdict]:
        """Return the verdicts of one kind."""
        return [verdict for executed in self.outcomes for verdict in executed.verdicts if verdict.kind is kind]

    def rejected(self) -> list[tuple[str, int, int, str]]:
        """Return (what, block, para, error) of each rejection."""
        return [
            (str(verdict.kind), verdict.block, verdict.para_id, verdict.violation.kind)
            for executed in self.outcomes
            for verdict in executed.verdicts
            if verdict.violation is not None
        ]


def follow(lane_definition: LaneDefinition, records: Records) -> Followed:
    """Feed a lane its records one by one, and check the invariants of its state after each block."""
    lane = lane_definition.create()
    router = lane.rules
    assert router.rule_set is ROUTER
    check_invariants(router.state)
    outcomes = []
    for item in inputs_of(encoded(records)):
        assert lane.add(item) == []  # type: ignore[arg-type]
        for executed, passed in lane.execute_ready():
            assert passed == []
            check_invariants(router.state)
            outcomes.append(executed)
    assert lane.counters.waiting == 0
    return Followed(outcomes, router.state)
