# SPDX-License-Identifier: Apache-2.0
"""How execution fails: a declared violation is a verdict, anything else is a bug."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Final, NoReturn, TypeAlias, dataclass_transform

FieldValue: TypeAlias = int | str | Sequence[int] | Sequence[Sequence[int]] | Mapping[str, int]
"""A number, a name, a tuple of numbers or of such tuples, or numbers by name."""


RESERVED_FIELDS: Final = ("kind", "clause", "rule")
"""Keys of an error in JSON besides its own fields."""


@dataclass_transform(eq_default=False)
@dataclass(eq=False)
class Violation(Exception):
    """A broken rule of the protocol: the input is rejected and changes nothing.

    A subclass has its ``kind``, ``clause`` and ``rule`` as class keywords, says in its docstring what is broken, and annotates its typed
    fields; the text is derived from them. ``kind`` is the same string in verdicts, conformance traces and documentation. ``clause`` names
    the clause of the specification that states the rule, ``rule`` the codes of the protocol's own page of rules. The entry of an error on
    that page is written from its class. ``normative`` says whether the conformance format compares the fields; if not, they only
    explain. A class without keywords is a base of others. Raises ``TypeError`` for a field of a reserved name.

    ``says`` is one sentence for a person, why the input was rejected, and ``then`` what to do. Both have fields in braces: the error's own,
    ``para`` of the verdict, ``sender`` and ``recipient`` of the error's channel, and ``at``, its ``idx``; a number of bytes
    is written as a size, and ``{sent:message}`` is a count of messages. ``numbers`` are the fields with the two numbers that disagree.
    """

    kind: ClassVar[str] = ""
    clause: ClassVar[str] = ""
    rule: ClassVar[str] = ""
    says: ClassVar[str] = ""
    then: ClassVar[str] = ""
    numbers: ClassVar[tuple[str, str] | None] = None
    normative: ClassVar[bool] = True

    def __init_subclass__(
        cls,
        *,
        kind: str = "",
        clause: str = "",
        rule: str = "",
        says: str = "",
        then: str = "",
        numbers: tuple[str, str] | None = None,
        normative: bool | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.kind, cls.clause, cls.rule = kind, clause, rule
        cls.says, cls.then, cls.numbers = says, then, numbers
        if normative is not None:
            cls.normative = normative
        dataclass(eq=False)(cls)
        for field in fields(cls):
            if field.name in RESERVED_FIELDS:
                raise TypeError(
                    f"violation {cls.__name__}: field {field.name}: expected another name than {', '.join(RESERVED_FIELDS)}"
                )

    def details(self) -> dict[str, FieldValue]:
        """Return all fields by name, in declaration order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{name}={value}' for name, value in self.details().items())})"


Report: TypeAlias = Callable[[Violation], object]
"""What a check calls for each violation that it finds, in order: `refuse` ends it at the first, a list's ``append`` collects all of them.

A check that continues leaves out what the violation makes meaningless.
"""


def refuse(violation: Violation) -> NoReturn:
    """Raise a violation: the `Report` of a lane, where the first violation decides."""
    raise violation


class LimitError(Exception):
    """A decoded value is out of range: the record becomes a dead letter."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")


class InvariantBroken(Exception):
    """The state contradicts itself: a bug or a wrongly seeded state, never a verdict."""
