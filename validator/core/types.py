# SPDX-License-Identifier: Apache-2.0
"""The records that go into a lane.

Records of the hot path are named tuples rather than frozen dataclasses. Both are immutable and typed, but a named tuple of seven fields
takes a third of the time to build, and a candidate needs several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])

ParaId: TypeAlias = int
"""u32."""
BlockNumber: TypeAlias = int
"""u32, a relay-chain block."""
SessionIndex: TypeAlias = int
"""u32."""
Balance: TypeAlias = int
"""u128, in the smallest unit of the relay chain's token."""
Weight: TypeAlias = int
"""u64."""
Hash: TypeAlias = bytes
"""32 bytes."""
ChannelId: TypeAlias = tuple[ParaId, ParaId]
"""``(sender, recipient)``: orders by sender, then recipient, as ``HrmpChannelId`` does."""

ZERO_HASH: Hash = bytes(32)


def maker(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that makes a named tuple from a plain tuple of all its fields.

    Nothing checks their number. It takes half the time of calling the class, which counts where each candidate needs one.
    """
    return partial(tuple.__new__, kind)


class ParaKind(StrEnum):
    """How a para pays for its slot; it decides which channel limits apply."""

    PARACHAIN = "parachain"
    PARATHREAD = "parathread"


class Enactment(StrEnum):
    """When an accepted candidate takes effect."""

    IMMEDIATE = "immediate"
    ON_INCLUSION = "on-inclusion"


class Balances(StrEnum):
    """Whether deposits are checked against free balances."""

    LEDGER = "ledger"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Para:
    """A para that becomes valid, with the balance its account receives.

    See `docs/trace-format.md`, "Para".
    """

    para_id: ParaId
    kind: ParaKind = ParaKind.PARACHAIN
    balance: Balance = 0


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What happens to paras and configuration at the end of a session's last block.

    ``new_config`` holds only the limits that change, by name.
    """

    outgoing: tuple[ParaId, ...] = ()
    onboarding: tuple[Para, ...] = ()
    new_config: tuple[tuple[str, int], ...] = ()


class PendingRef(NamedTuple):
    """Names a candidate waiting for availability: the one of ``para_id`` accepted at ``backed_at``, or its oldest if that is None."""

    para_id: ParaId
    backed_at: BlockNumber | None = None


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """Closes a block: says how many records of each kind belong to it and what else happens in it."""

    block: BlockNumber
    parent_number: BlockNumber
    candidates: int = 0
    requests: int = 0
    downward: int = 0
    included: tuple[PendingRef, ...] = ()
    timed_out: tuple[PendingRef, ...] = ()
    session_change: SessionChange | None = None
    block_hash: bytes | None = None


class DownwardMessage(NamedTuple):
    """A message from the relay chain to a para.

    ``data_hash`` is ``message_hash(msg)`` if the decode stage has computed it, else None; it is derived, never an input.
    """

    para_id: ParaId
    msg: bytes
    data_hash: Hash | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A complete block: its record and, by index, everything that belongs to it.

    Requests and candidates have the protocol's own types.
    """

    record: BlockRecord
    requests: tuple[Any, ...] = ()
    downward: tuple[DownwardMessage, ...] = ()
    candidates: tuple[Any, ...] = ()
