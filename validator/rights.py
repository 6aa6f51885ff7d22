# SPDX-License-Identifier: Apache-2.0
"""The rights on Kafka that suffice for each user, in one table: docs/access.md shows it, and manifests are made from it.

Names are exact unless they end with `*`, which stands for a prefixed resource. The job believes what is on `markers`: nobody else may
write there, nor to what it emits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from validator.topics import (
    CURSORS,
    DEAD_LETTER_REPLAYS,
    DRY_RUN_ANSWERS,
    DRY_RUN_REQUESTS,
    INPUT_TOPICS,
    METRICS,
    OUTPUT_TOPICS,
)


@dataclass(frozen=True, slots=True)
class Right:
    """Operations on resources of one kind; ``names`` are without the prefix."""

    operations: tuple[str, ...]
    kind: Literal["topics", "groups", "transactional ids"]
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The right as docs/access.md has it."""
        names = ", ".join(f"`{name}`" for name in self.names)
        return f"{', '.join(self.operations)} on {self.kind} {names}"


EVERYTHING: Final = ("*",)
INPUTS: Final = tuple(INPUT_TOPICS)
EMITTED: Final = tuple(topic for topic in OUTPUT_TOPICS if topic != DEAD_LETTER_REPLAYS)
"""What the job writes."""
CONSUMED: Final = tuple(topic for topic in EMITTED if topic != "markers")
"""What the job writes for others."""

_READ, _WRITE = ("Read", "Describe"), ("Write", "Describe")

RIGHTS: Final[dict[str, tuple[Right, ...]]] = {
    "the job": (
        Right(_READ, "topics", EVERYTHING),
        Right(("Write",), "topics", (*EMITTED, METRICS)),
        Right(_READ, "groups", EVERYTHING),
        Right(_WRITE, "transactional ids", ("lane.*",)),
    ),
    "a transport": (
        Right(_READ, "topics", EVERYTHING),
        Right(("Write",), "topics", (*INPUTS, CURSORS, METRICS, DRY_RUN_REQUESTS, DRY_RUN_ANSWERS)),
        Right(_READ, "groups", ("transport.*",)),
        Right(_WRITE, "transactional ids", ("transport.*",)),
    ),
    "producers": (Right(_WRITE, "topics", INPUTS),),
    "consumers": (Right(_READ, "topics", CONSUMED),),
    "readers": (Right(_READ, "topics", EVERYTHING), Right(("Describe",), "groups", ("transport.*",))),
    "who asks dry runs": (
        Right(_WRITE, "topics", (DRY_RUN_REQUESTS,)),
        Right(_READ, "topics", (DRY_RUN_ANSWERS,)),
    ),
    "who replays dead letters": (
        Right(_READ, "topics", EVERYTHING),
        Right(("Write",), "topics", (*INPUTS, DEAD_LETTER_REPLAYS)),
        Right(_WRITE, "transactional ids", ("dead-letter-replay",)),
    ),
    "topics create": (Right(("Create", "Describe"), "topics", EVERYTHING),),
}
"""By user, as docs/access.md names it. Consumers choose the names of their groups."""


def listed() -> str:
    """Return the list in docs/access.md."""
    return "".join(
        f"- **{user}**\n" + "".join(f"    - {right.text}\n" for right in rights) for user, rights in RIGHTS.items()
    )
