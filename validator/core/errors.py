# SPDX-License-Identifier: Apache-2.0
"""The two ways in which execution ends other than well: a declared violation, which is a verdict, and everything else, which is a bug."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias

FieldValue: TypeAlias = int | str | Sequence[int] | Sequence[Sequence[int]] | Mapping[str, int]
"""A number, a name, a tuple of numbers or of such tuples, or numbers by name."""


@dataclass(eq=False)
class Violation(Exception):
    """A rule of the protocol that an input breaks: the input is rejected and changes nothing.

    Subclasses are dataclasses whose fields are typed; the text is derived from them. ``kind`` is the same string in the verdict, the
    conformance traces and the documentation; ``clause`` names the text that the rule stands in.
    """

    kind: ClassVar[str] = ""
    clause: ClassVar[str] = ""
    normative: ClassVar[bool] = True
    """Whether the conformance format compares the fields; where not, they only explain."""

    def details(self) -> dict[str, FieldValue]:
        """Return every field by name, in order of declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.details().items())})"


class LimitError(Exception):
    """A decoded value outside its range: the record is a dead letter."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")


class InvariantBroken(Exception):
    """The state contradicts itself: a bug, or a state that was seeded wrongly. Never a verdict."""
