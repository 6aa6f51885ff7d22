# SPDX-License-Identifier: Apache-2.0
"""Why a record of `xcmp.bodies` is refused: stable kinds with their fields, the first four those of reports to the chain (N-31).

Source: xcmp_rules 1.4 bodies.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

Field: TypeAlias = int | str
Fields: TypeAlias = tuple[tuple[str, Field], ...]


class Refusal(NamedTuple):
    """A kind with its fields, in the order of the specification."""

    kind: str
    fields: Fields

    @property
    def message(self) -> str:
        """Return the refusal in words."""
        return f"{_WORDS[self.kind]}: " + ", ".join(f"{name} {value}" for name, value in self.fields)


NOT_EXPECTED: Final = "Body/NotExpected"
SIZE_MISMATCH: Final = "Body/SizeMismatch"
ROOT_MISMATCH: Final = "Body/RootMismatch"
DUPLICATE: Final = "Body/Duplicate"
MALFORMED: Final = "Body/Malformed"
"""The record itself is wrong, so it can be a part of no body."""

_WORDS: Final = {
    NOT_EXPECTED: "no such message is listed in the recipient's ingress queue",
    SIZE_MISMATCH: "the body has another size than the relay chain lists",
    ROOT_MISMATCH: "the body has another root than the relay chain lists",
    DUPLICATE: "the body or this part of it is already held",
    MALFORMED: "the record is no part of a body",
}
KINDS: Final = tuple(_WORDS)


def not_expected(sender: int, recipient: int, sent_at: int) -> Refusal:
    """Return the refusal of a body that the recipient's ingress queue does not list."""
    return Refusal(NOT_EXPECTED, (("sender", sender), ("recipient", recipient), ("sent_at", sent_at)))


def size_mismatch(declared: int, actual: int) -> Refusal:
    """Return the refusal of a body whose size in bytes is not the listed one."""
    return Refusal(SIZE_MISMATCH, (("declared", declared), ("actual", actual)))


def root_mismatch(expected: bytes) -> Refusal:
    """Return the refusal of a body whose root is not the listed one."""
    return Refusal(ROOT_MISMATCH, (("expected", expected.hex()),))


def duplicate(sender: int, recipient: int, sent_at: int) -> Refusal:
    """Return the refusal of a body, or of a part, that has arrived before."""
    return Refusal(DUPLICATE, (("sender", sender), ("recipient", recipient), ("sent_at", sent_at)))


def malformed(detail: str) -> Refusal:
    """Return the refusal of a record that is no part of a body."""
    return Refusal(MALFORMED, (("detail", detail),))
