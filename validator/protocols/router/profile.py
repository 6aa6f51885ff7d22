# SPDX-License-Identifier: Apache-2.0
"""What holds in a block: the functions of router.txt, each replaced where a feature in force puts another in its place.

This is the one module that knows both. `SEED_RULES` names a function for each rule that a feature changes; `CHANGES` lists, by feature,
what takes its place. A block's rules are `rules_of` its features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

from validator.core.errors import Report
from validator.core.events import EventLog
from validator.core.handlers.context import Host
from validator.core.handlers.upward import UpwardDispatcher
from validator.core.limits import HEADROOM_WATERMARKS_MAX
from validator.core.outcomes import Dispatch, MessageRange
from validator.core.rules import Effects, Environment
from validator.core.types import Balance, BlockNumber, ChannelId, ParaId, SessionIndex
from validator.protocols.router import acceptance, enactment, requests, session
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features import as_the_chain, channels, downward, message_queue, signals, watermark
from validator.protocols.router.features.table import FEATURES
from validator.protocols.router.records import (
    AcceptOpenChannel,
    CancelOpenRequest,
    CloseChannel,
    EstablishChannelWithSystem,
    EstablishSystemChannel,
    ForceClean,
    ForceOpenChannel,
    ForceProcessClose,
    ForceProcessOpen,
    InitOpenChannel,
    PokeChannelDeposits,
    ScheduleParaCleanup,
    ServiceOverweight,
)
from validator.protocols.router.state import HrmpOpenChannelRequest, RouterState


class UpwardRules(NamedTuple):
    """How upward messages are checked, queued and served.

    ``check`` judges a candidate's messages, ``enact`` queues them and returns those that it drops, ``serve`` runs a block's round and
    appends to the list that it is given, ``may_offboard`` refuses the offboarding of a para.
    """

    check: Callable[[RouterState, ParaId, Sequence[bytes], Report], None]
    enact: Callable[[RouterState, ParaId, Sequence[bytes]], tuple[MessageRange, ...]]
    serve: Callable[[RouterState, UpwardDispatcher, Host, BlockNumber, list[Dispatch]], None]
    may_offboard: Callable[[RouterState, ParaId], None]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Profile:
    """The rules that features change, as functions; each has its signature's documentation where router.txt's own one stands.

    ``downward_checks`` come after the size of a downward message. ``notification`` wraps what requests send to the other party; None
    sends nothing. ``valid_watermarks`` returns what a para's headroom lists. ``init_checks`` are what comes before limits and funds of a
    request to open. ``repeat_senders`` lists a sender once for each of its candidates in a block's digest. ``requests`` has a function for
    each kind of request in force. ``signals`` is None where every upward message is a message.
    """

    features: frozenset[str]
    check_processed_downward_messages: Callable[[RouterState, ParaId, int, BlockNumber, Report], None]
    check_hrmp_watermark: Callable[[RouterState, ParaId, BlockNumber, BlockNumber, Report], None]
    valid_watermarks: Callable[[RouterState, ParaId], tuple[BlockNumber, ...]]
    upward: UpwardRules
    notification: Callable[[HostConfiguration, bytes], bytes] | None
    age_request: Callable[[HrmpOpenChannelRequest, HostConfiguration], bool]
    expiry: Callable[[RouterState], SessionIndex | None]
    clean_requests: Callable[[RouterState, Profile, EventLog, list[ParaId]], None]
    forget_cleaned_request: Callable[[RouterState, ChannelId], None]
    drop_confirmed_request: Callable[[RouterState, EventLog, ChannelId, HrmpOpenChannelRequest], None]
    drop_upward_messages: Callable[[RouterState, ParaId], None]
    forget_received: Callable[[RouterState, ParaId], None]
    is_valid_para: Callable[[RouterState, ParaId], bool]
    init_checks: tuple[Callable[[RouterState, Profile, InitOpenChannel, Report], None], ...]
    outbound_limit: Callable[[RouterState, ParaId], int]
    inbound_limit: Callable[[RouterState, ParaId], int]
    deposits: Callable[[HostConfiguration, ChannelId], tuple[Balance, Balance]]
    downward_checks: tuple[Callable[[RouterState, ParaId], None], ...] = ()
    signals: signals.SignalRules | None = None
    repeat_senders: bool = False
    forced_clean_forgets_counts: bool = False
    requests: Mapping[type[Any], Callable[[RouterState, Environment, Any], Effects]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Profile({', '.join(feature.name for feature in FEATURES if feature.name in self.features)})"


def blocks_with_messages(state: RouterState, para: ParaId) -> tuple[BlockNumber, ...]:
    """Return the blocks with messages for a para, oldest first."""
    return tuple(islice(state.hrmp_channel_digests.get(para, ()), HEADROOM_WATERMARKS_MAX))


SEED_RULES: Final = Profile(
    features=frozenset(),
    check_processed_downward_messages=acceptance.check_processed_downward_messages,
    check_hrmp_watermark=acceptance.check_hrmp_watermark,
    valid_watermarks=blocks_with_messages,
    upward=UpwardRules(
        check=acceptance.check_upward_messages,
        enact=enactment.enact_upward_messages,
        serve=enactment.process_pending_upward_messages,
        may_offboard=requests.may_always_offboard,
    ),
    notification=None,
    age_request=session.age_request,
    expiry=requests.expiry,
    clean_requests=session.keep_requests,
    forget_cleaned_request=session.forget_request,
    drop_confirmed_request=session.return_deposits,
    drop_upward_messages=enactment.drop_upward_messages,
    forget_received=session.forget_received,
    is_valid_para=session.is_valid,
    init_checks=requests.INIT_CHECKS,
    outbound_limit=requests.outbound_limit,
    inbound_limit=requests.inbound_limit,
    deposits=requests.deposits,
    requests={
        InitOpenChannel: requests.init_open_channel,
        AcceptOpenChannel: requests.accept_open_channel,
        CloseChannel: requests.close_channel,
        ScheduleParaCleanup: requests.schedule_cleanup,
    },
)
"""The rules of router.txt."""

CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "hrmp_notifications": {"notification": requests.plain_notification},
    "versioned_notifications": {"notification": downward.versioned_notification},
    "no_ttl": {"age_request": channels.never_expires, "expiry": channels.no_expiry},
    "cancel_open_request": {"requests": {CancelOpenRequest: channels.cancel_open_request}},
    "clean_open_channel_requests": {"clean_requests": channels.clean_requests},
    "force_open_channel_plain": {"requests": {ForceOpenChannel: channels.force_open_channel_plain}},
    "force_open_channel": {"requests": {ForceOpenChannel: channels.force_open_channel}},
    "dmq_length_limit": {"downward_checks": (downward.check_queue_length,)},
    "relaxed_watermark": {
        "check_hrmp_watermark": watermark.check_relaxed_watermark,
        "valid_watermarks": watermark.watermarks_after_the_last,
    },
    "watermark_may_stay": {
        "check_hrmp_watermark": watermark.check_watermark_that_may_stay,
        "valid_watermarks": watermark.last_watermark_or_later,
    },
    "message_queue": {
        "upward": UpwardRules(
            check=message_queue.check_upward_messages,
            enact=message_queue.enact_upward_messages,
            serve=message_queue.serve_message_queue,
            may_offboard=message_queue.check_unprocessed,
        ),
        "drop_upward_messages": message_queue.drop_upward_messages,
        "requests": {ServiceOverweight: message_queue.service_overweight},
    },
    "dmp_by_relay_parent": {"check_processed_downward_messages": watermark.check_processed_by_relay_parent},
    "single_channel_limit": {
        "outbound_limit": channels.parachain_outbound_limit,
        "inbound_limit": channels.parachain_inbound_limit,
    },
    "system_channels_without_deposits": {"deposits": channels.no_deposits_with_system},
    "establish_system_channel": {"requests": {EstablishSystemChannel: channels.establish_system_channel}},
    "poke_channel_deposits": {"requests": {PokeChannelDeposits: channels.poke_channel_deposits}},
    "establish_channel_with_system": {"requests": {EstablishChannelWithSystem: channels.establish_channel_with_system}},
    "downward_needs_head": {"downward_checks": (downward.check_head_exists,)},
    "ump_signals": {"signals": signals.SignalRules(signals.check_one, signals.read_one)},
    "approved_peer_signal": {"signals": signals.SignalRules(signals.check_one_of_each, signals.read_one_of_each)},
    "forced_requests": {
        "requests": {
            ForceProcessOpen: channels.force_process_open,
            ForceProcessClose: channels.force_process_close,
            ForceClean: channels.force_clean,
        }
    },
    "as_the_chain": {
        "forget_cleaned_request": as_the_chain.lose_place,
        "drop_confirmed_request": as_the_chain.strand_deposits,
        "drop_upward_messages": as_the_chain.sweep_upward_messages,
        "forget_received": as_the_chain.keep_received,
        "is_valid_para": as_the_chain.is_valid_and_stays,
        "init_checks": as_the_chain.INIT_CHECKS,
        "repeat_senders": True,
        "forced_clean_forgets_counts": True,
        "requests": {ScheduleParaCleanup: as_the_chain.schedule_cleanup},
    },
}
"""By feature, what takes the place of a rule of router.txt. Checks and requests are added; for the rest, the later feature counts."""


@cache
def rules_of(features: frozenset[str]) -> Profile:
    """Return the rules with these features; those that they imply are among them (`table.with_implied`)."""
    rules = replace(SEED_RULES, features=features)
    for feature in FEATURES:
        if feature.name in features:
            changes = dict(CHANGES[feature.name])
            changes["requests"] = {**rules.requests, **changes.get("requests", {})}
            changes["downward_checks"] = (*rules.downward_checks, *changes.get("downward_checks", ()))
            rules = replace(rules, **changes)
    return rules
