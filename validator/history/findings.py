# SPDX-License-Identifier: Apache-2.0
"""What an audit finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validator.core.types import BlockNumber


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an audit has found: in which check, about what, and in which block if it is about one.

    A *fault* contradicts the protocol, or what this program would do. Anything else is a *note*: it follows the rules, but somebody may
    want to know it.
    """

    check: str
    subject: str
    detail: str
    fault: bool = True
    block: BlockNumber | None = None
