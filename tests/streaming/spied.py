# SPDX-License-Identifier: Apache-2.0
"""A lane definition that logs what a worker does with it. It is pickled by value, so workers do not need to find this module."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from validator.core.lane import Lane
from validator.lanes.definition import LaneDefinition


@dataclass(frozen=True, slots=True)
class SpiedDefinition(LaneDefinition):
    """Logs to a file when a worker creates or rebuilds the lane, with process id and hash seed."""

    log: str = ""

    def create(self) -> Lane:
        """Return the lane before its first block."""
        self.note("created")
        return LaneDefinition.create(self)

    def restore(self, snapshot: list[bytes]) -> Lane:
        """Return the lane of a snapshot."""
        self.note("rebuilt")
        return LaneDefinition.restore(self, snapshot)

    def note(self, what: str) -> None:
        """Write one short line; appending it is atomic."""
        with Path(self.log).open("a", encoding="ascii") as log:
            log.write(f"{what} {self.name} {os.getpid()} {os.environ.get('PYTHONHASHSEED')}\n")


def spied(definition: LaneDefinition, log: Path) -> SpiedDefinition:
    """Return a definition that logs its use."""
    return SpiedDefinition(
        **{field.name: getattr(definition, field.name) for field in fields(definition)}, log=str(log)
    )


def noted(log: Path) -> list[str]:
    """Return what happened to which lane, in order."""
    lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    return [" ".join(line.split()[:2]) for line in lines]
