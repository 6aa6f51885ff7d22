# SPDX-License-Identifier: Apache-2.0
"""The session change, which is the last step of its block (I-15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from validator.core.events import EventLog
from validator.core.outcomes import ChannelEventKind, MessageRange
from validator.core.rules import Environment
from validator.core.types import Balance, ChannelId, Para, ParaId, SessionChange
from validator.protocols.kit import decrease, endow, remove_sorted, unreserve
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.enactment import waiting_downward, waiting_upward
from validator.protocols.router.state import HrmpChannel, HrmpOpenChannelRequest, RouterState, add_channel

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


def change_session(state: RouterState, env: Environment, change: SessionChange) -> None:
    """Offboard and onboard paras, settle open requests, settle close requests, then switch to the new configuration.

    Requests are settled under the old configuration (I-10). Source: router.txt "Session Change", router_rules 1.7.
    """
    rules: Profile = env.profile
    prev_config, events = state.host_configuration, env.events
    state.session_index += 1
    events.session = state.session_index

    outgoing = sorted(dict.fromkeys((*state.outgoing_paras, *change.outgoing)))
    state.outgoing_paras.clear()
    rules.clean_requests(state, rules, events, outgoing)
    for para in outgoing:
        offboard_para(state, rules, events, para)
    for onboarding in change.onboarding:
        onboard_para(state, onboarding)
    process_hrmp_open_channel_requests(state, rules, events, lambda request: rules.age_request(request, prev_config))
    process_hrmp_close_channel_requests(state, events)

    if change.new_config:
        config = state.host_configuration = replace(prev_config, **dict(change.new_config))
        if _upward_limits(config) != _upward_limits(prev_config):
            state.touched.paras.update(dict.fromkeys(state.paras))  # the new limits leave another headroom


def _upward_limits(config: HostConfiguration) -> tuple[int, int]:
    return config.max_upward_queue_count, config.max_upward_queue_size


def onboard_para(state: RouterState, para: Para) -> None:
    """Make a para valid and add its onboarding balance to its account's free balance."""
    state.paras[para.para_id] = para.kind
    endow(state, para)
    state.touched.paras[para.para_id] = None


def offboard_para(state: RouterState, rules: Profile, events: EventLog, para: ParaId) -> None:
    """Remove a para with its queues, its channels in both directions and its counts.

    Its watermark and digests are removed too: nothing can read them correctly once its channels are gone (I-08). Its unconfirmed requests
    stay until they expire (I-06b). Digest entries of other paras that name it stay.
    Source: router.txt "Session Change" 1, router_rules 1.8.
    """
    state.paras.pop(para, None)
    remove_hrmp_channels(state, events, para, "offboarded")
    dropped = waiting_downward(state, para)
    state.downward_message_queues.pop(para, None)
    state.downward_message_queue_heads.pop(para, None)
    numbered = state.downward_messages_sent.pop(para, None)

    upward = waiting_upward(state, para)
    rules.drop_upward_messages(state, para)
    if upward and not waiting_upward(state, para):  # else they may still be served
        dropped += upward
    if dropped or numbered:
        events.add(ChannelEventKind.MESSAGES_DROPPED, (para, para), reason="offboarded", dropped=dropped)
    forget_counts(state, para)
    rules.forget_received(state, para)
    state.touched.pages[para] = state.touched.paras[para] = None


def remove_hrmp_channels(state: RouterState, events: EventLog, para: ParaId, reason: str) -> None:
    """Remove every channel to a para, then every channel from it."""
    for sender in tuple(state.hrmp_ingress_channels_index.get(para, ())):
        remove_hrmp_channel(state, events, (sender, para), reason)
    for recipient in tuple(state.hrmp_egress_channels_index.get(para, ())):
        remove_hrmp_channel(state, events, (para, recipient), reason)


def forget_counts(state: RouterState, para: ParaId) -> None:
    """Forget how many requests a para has made and accepted; the requests themselves stay."""
    lost = state.hrmp_lost_places.pop(para, 0)
    counts = state.hrmp_open_channel_request_count.pop(para, 0) - lost
    _add(state.hrmp_uncounted_requests, para, counts)
    _add(state.hrmp_uncounted_acceptances, para, state.hrmp_accepted_channel_request_count.pop(para, 0))


def _add(counts: dict[ParaId, int], para: ParaId, count: int) -> None:
    total = counts.pop(para, 0) + count
    if total:
        counts[para] = total


def forget_received(state: RouterState, para: ParaId) -> None:
    """Remove a para's watermark and digests."""
    state.hrmp_watermarks.pop(para, None)
    state.hrmp_channel_digests.pop(para, None)


def keep_requests(state: RouterState, rules: Profile, events: EventLog, outgoing: list[ParaId]) -> None:
    """Do nothing: by router.txt the requests of outgoing paras stay."""


def age_request(request: HrmpOpenChannelRequest, config: HostConfiguration) -> bool:
    """Add a session to an unconfirmed request's age, and return whether it has expired. Source: router.txt "Session Change" 2."""
    request.age += 1
    return request.age >= config.hrmp_open_request_ttl


def is_valid(state: RouterState, para: ParaId) -> bool:
    """Return whether a para is valid."""
    return para in state.paras


def return_deposits(
    state: RouterState, events: EventLog, channel_id: ChannelId, request: HrmpOpenChannelRequest
) -> None:
    """Drop a confirmed request that opens nothing, and return both deposits (I-07: nothing else would ever return them)."""
    sender, recipient = channel_id
    sender_refund = unreserve(state, sender, request.sender_deposit)
    recipient_refund = unreserve(state, recipient, request.recipient_deposit)
    events.add(
        ChannelEventKind.REQUEST_DROPPED,
        channel_id,
        sender_deposit=-sender_refund,
        recipient_deposit=-recipient_refund,
        reason="offboarded",
    )


def strand_deposit(state: RouterState, para: ParaId, deposit: Balance) -> None:
    """Leave a deposit reserved although its request is gone."""
    _add(state.hrmp_stranded_deposits, para, deposit)


def process_hrmp_open_channel_requests(
    state: RouterState, rules: Profile, events: EventLog, age: Callable[[HrmpOpenChannelRequest], bool]
) -> None:
    """Remove unconfirmed requests that have expired, as ``age`` says. Open confirmed ones if both parties are still valid.

    A confirmed request with a party that is not valid is dropped (``rules.drop_confirmed_request``).
    Source: router.txt "Session Change" 2, router_rules 1.7.
    """
    kept = []
    for channel_id in state.hrmp_open_channel_requests_list:
        request = state.hrmp_open_channel_requests[channel_id]
        sender, recipient = channel_id

        if not request.confirmed:
            if not age(request):
                kept.append(channel_id)
                continue
            refund = unreserve(state, sender, request.sender_deposit)
            events.add(ChannelEventKind.REQUEST_EXPIRED, channel_id, sender_deposit=-refund, reason="expired")
        else:
            forget_acceptance(state, recipient)
            if rules.is_valid_para(state, sender) and rules.is_valid_para(state, recipient):
                channel = HrmpChannel(
                    sender_deposit=request.sender_deposit,
                    recipient_deposit=request.recipient_deposit,
                    limit_used_places=request.limit_used_places,
                    limit_used_bytes=request.limit_used_bytes,
                    limit_message_size=request.limit_message_size,
                )
                add_channel(state, channel_id, channel)
                events.add(ChannelEventKind.OPENED, channel_id)
            else:
                rules.drop_confirmed_request(state, events, channel_id, request)
        forget_request(state, channel_id)
    state.hrmp_open_channel_requests_list[:] = kept


def process_hrmp_close_channel_requests(state: RouterState, events: EventLog) -> None:
    """Remove every channel with a close request. Source: router.txt "Session Change" 3."""
    for channel_id in state.hrmp_close_channel_requests_list:
        if channel_id in state.hrmp_channels:
            remove_hrmp_channel(state, events, channel_id, "requested")
        del state.hrmp_close_channel_requests[channel_id]
    state.hrmp_close_channel_requests_list.clear()


def remove_hrmp_channel(state: RouterState, events: EventLog, channel_id: ChannelId, reason: str) -> None:
    """Return both deposits and remove the channel with its contents and index entries. Source: router.txt "To remove a HRMP channel"."""
    sender, recipient = channel_id
    channel = state.hrmp_channels.pop(channel_id)
    waiting = len(channel.contents or ())
    last = channel.messages_sent
    sender_refund = unreserve(state, sender, channel.sender_deposit)
    recipient_refund = unreserve(state, recipient, channel.recipient_deposit)
    remove_sorted(state.hrmp_egress_channels_index, sender, recipient)
    remove_sorted(state.hrmp_ingress_channels_index, recipient, sender)
    state.touched.channels[channel_id] = None
    events.add(
        ChannelEventKind.CLOSED,
        channel_id,
        sender_deposit=-sender_refund,
        recipient_deposit=-recipient_refund,
        reason=reason,
        dropped=(MessageRange(sender, last - waiting + 1, last, channel.used_bytes),) if waiting else (),
    )


def forget_request(state: RouterState, channel_id: ChannelId) -> None:
    """Remove a request from the storage and its sender's count, but not from the list."""
    sender, _ = channel_id
    del state.hrmp_open_channel_requests[channel_id]
    if not decrease(state.hrmp_open_channel_request_count, sender):
        decrease(state.hrmp_uncounted_requests, sender)


def forget_acceptance(state: RouterState, recipient: ParaId) -> None:
    """Remove a confirmed request from its recipient's count."""
    if not decrease(state.hrmp_accepted_channel_request_count, recipient):
        decrease(state.hrmp_uncounted_acceptances, recipient)
