# SPDX-License-Identifier: Apache-2.0
"""The records that go into a lane.

Records of the hot path are named tuples rather than frozen dataclasses: both are immutable and typed, but a named tuple of seven fields is
built in a third of the time, and a candidate costs a handful of them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple, TypeAlias

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


class ParaKind(StrEnum):
    """What a para pays for its slot with; it decides which channel limits apply."""

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

    Source: router_rules 1.6 ("valid para"), traces FORMAT ``genesis_paras``.
    """

    para_id: ParaId
    kind: ParaKind = ParaKind.PARACHAIN
    balance: Balance = 0


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """The relay chain's limits for messages and channels, by the names of router.txt.

    Sizes are bytes of payload, counts are messages or channels, deposits are balances, the ttl is a number of session boundaries, the step
    weight is a weight. The default of every field is zero: nothing is allowed. Source: router.txt, router_rules 1.9.
    """

    max_upward_message_num_per_candidate: int = 0
    max_upward_message_size: int = 0
    max_upward_queue_count: int = 0
    max_upward_queue_size: int = 0
    preferred_dispatchable_upward_messages_step_weight: Weight = 0
    max_downward_message_size: int = 0
    hrmp_max_message_num_per_candidate: int = 0
    hrmp_channel_max_places: int = 0
    hrmp_channel_max_message_size: int = 0
    hrmp_channel_max_size: int = 0
    hrmp_max_parachain_outbound_channels: int = 0
    hrmp_max_parathread_outbound_channels: int = 0
    hrmp_max_parachain_inbound_channels: int = 0
    hrmp_max_parathread_inbound_channels: int = 0
    hrmp_sender_deposit: Balance = 0
    hrmp_recipient_deposit: Balance = 0
    hrmp_open_request_ttl: SessionIndex = 0


CONFIGURATION_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(HostConfiguration))


@dataclass(frozen=True, slots=True)
class SessionChange:
    """What happens to paras and configuration at the end of a block that ends a session.

    ``new_config`` holds only the fields that change, by name. Source: router.txt "Session Change".
    """

    outgoing: tuple[ParaId, ...] = ()
    onboarding: tuple[Para, ...] = ()
    new_config: tuple[tuple[str, int], ...] = ()


class PendingRef(NamedTuple):
    """Names a candidate that waits for availability: the one of ``para_id`` accepted at ``backed_at``, or its oldest where that is None."""

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


class HorizontalMessage(NamedTuple):
    """One HRMP message of a candidate.

    ``data_hash`` is ``message_hash(data)`` where the decode stage has computed it already, else None; it is derived, never an input.
    """

    recipient: ParaId
    data: bytes
    data_hash: Hash | None = None


class Candidate(NamedTuple):
    """A backed candidate's commitments, as far as messages are concerned.

    Source: router.txt "Candidate Acceptance Function", router_rules 1.2.
    """

    para_id: ParaId
    relay_parent_number: BlockNumber
    hrmp_watermark: BlockNumber
    upward_messages: tuple[bytes, ...] = ()
    processed_downward_messages: int = 0
    horizontal_messages: tuple[HorizontalMessage, ...] = ()
    candidate_hash: bytes | None = None


class DownwardMessage(NamedTuple):
    """A message of the relay chain to a para; ``data_hash`` as in `HorizontalMessage`."""

    para_id: ParaId
    msg: bytes
    data_hash: Hash | None = None


class InitOpenChannel(NamedTuple):
    """``hrmp_init_open_channel(recipient, max_places, max_message_size)`` called by ``origin``."""

    origin: ParaId
    recipient: ParaId
    max_places: int
    max_message_size: int


class AcceptOpenChannel(NamedTuple):
    """``hrmp_accept_open_channel(sender)`` called by ``origin``."""

    origin: ParaId
    sender: ParaId


class CloseChannel(NamedTuple):
    """``hrmp_close_channel(ch)`` called by ``origin``."""

    origin: ParaId
    channel: ChannelId


class ScheduleParaCleanup(NamedTuple):
    """``schedule_para_cleanup(para_id)``."""

    para_id: ParaId


ChannelRequest: TypeAlias = InitOpenChannel | AcceptOpenChannel | CloseChannel | ScheduleParaCleanup


@dataclass(frozen=True, slots=True)
class Block:
    """A complete block: its record and, by index, everything that belongs to it."""

    record: BlockRecord
    requests: tuple[ChannelRequest, ...] = ()
    downward: tuple[DownwardMessage, ...] = ()
    candidates: tuple[Candidate, ...] = ()
