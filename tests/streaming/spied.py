# SPDX-License-Identifier: Apache-2.0
"""A lane definition that writes down what a worker does with it; it is pickled by value, so that a worker need not find this module."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from validator.core.lane import Lane
from validator.lanes.definition import LaneDefinition


@dataclass(frozen=True, slots=True)
class SpiedDefinition(LaneDefinition):
    """Says in a file when the lane is made anew and when it is rebuilt, in which process, and with which seed of hashes."""

    log: str = ""

    def create(self) -> Lane:
        """Return the lane as it stands before its first block."""
        self.note("created")
        return LaneDefinition.create(self)

    def restore(self, snapshot: list[bytes]) -> Lane:
        """Return the lane of a snapshot."""
        self.note("rebuilt")
        return LaneDefinition.restore(self, snapshot)

    def note(self, what: str) -> None:
        """Write a line; appending a short one is atomic."""
        with Path(self.log).open("a", encoding="ascii") as log:
            log.write(f"{what} {self.name} {os.getpid()} {os.environ.get('PYTHONHASHSEED')}\n")


def spied(definition: LaneDefinition, log: Path) -> SpiedDefinition:
    """Return a definition that writes down what becomes of it."""
    return SpiedDefinition(
        **{field.name: getattr(definition, field.name) for field in fields(definition)}, log=str(log)
    )


def noted(log: Path) -> list[str]:
    """Return what happened to which lane, in order."""
    lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    return [" ".join(line.split()[:2]) for line in lines]
