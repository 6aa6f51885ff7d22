# SPDX-License-Identifier: Apache-2.0
"""Says in words that a lane is not configured, and which one may have been meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from validator.config.explain import closest
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

T = TypeVar("T")


def chain_of(chains: Mapping[str, T], lane: str, begins: str = "--lane: ") -> T:
    """Return the chain of a lane. Raises `UserError`, whose line ``begins`` so, if it is not configured."""
    chain = chains.get(lane)
    if chain is None:
        raise UserError(f"{begins}{no_chain(lane, chains)}")
    return chain


def no_chain(lane: str, configured: Collection[str]) -> str:
    """Return the words for a lane that is not one of the configured ones."""
    close = closest(lane, configured)
    hint = f"did you mean {close!r}?" if close else f"configured are {', '.join(sorted(configured)) or 'none'}"
    return f"no chain {lane!r} is configured; {hint}"
