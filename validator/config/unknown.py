# SPDX-License-Identifier: Apache-2.0
"""Says in words that a lane is not configured, and which one may have been meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.config.explain import closest

if TYPE_CHECKING:
    from collections.abc import Collection


def no_chain(lane: str, configured: Collection[str]) -> str:
    """Return the words for a lane that is not one of the configured ones."""
    close = closest(lane, configured)
    hint = f"did you mean {close!r}?" if close else f"configured are {', '.join(sorted(configured)) or 'none'}"
    return f"no chain {lane!r} is configured; {hint}"
