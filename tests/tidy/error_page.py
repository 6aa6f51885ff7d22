# SPDX-License-Identifier: Apache-2.0
"""`docs/errors.md`, made from the violations themselves: ``python -m tests.tidy.error_page`` writes it, a test holds it to them."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

from validator.core.errors import Violation
from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.protocols.router import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"

_HEAD = """\
# Why an input is rejected

The `error.kind` of a verdict, its fields, when it arises and the clause that says so. The order of rows is the order in which the checks of
a group are made; the first that fails is told. Groups of a candidate are checked in the order downward, upward, watermark, outbound.

| kind | fields | when | clause |
|---|---|---|---|
"""


def violations() -> list[type[Violation]]:
    """Return every violation of the Router, in the order of their module, then those that all protocols have."""
    found = (member for _, member in inspect.getmembers(errors, inspect.isclass))
    kinds = [member for member in found if issubclass(member, Violation) and member.kind]
    own = sorted(kinds, key=lambda member: inspect.getsourcelines(member)[1])
    return [*own, InclusionCandidateNotPending, TimeoutCandidateNotPending]


def render() -> str:
    """Return the page."""
    rows = [
        f"| `{member.kind}` | {', '.join(field.name for field in fields(member))} | {(member.__doc__ or '').strip()} | {member.clause} |"
        for member in violations()
    ]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
