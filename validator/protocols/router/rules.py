# SPDX-License-Identifier: Apache-2.0
"""The Router as a rule set: UMP, DMP and HRMP, the default protocol. Source: router.txt."""

from __future__ import annotations

from typing import Final

from validator.core.errors import Violation
from validator.core.handlers.state import FIRST_OWNER
from validator.core.hashing import blake2b_256
from validator.core.outcomes import ChannelHeadroom, MessageRef, ParaHeadroom, Signal
from validator.core.rules import ChainSettings, Effects, Environment, RuleSet, in_force
from validator.core.state import OrderedSet
from validator.core.types import BlockNumber, ChannelId, DownwardMessage, Hash, ParaId, maker
from validator.protocols.router import records
from validator.protocols.router.acceptance import check_candidate
from validator.protocols.router.enactment import enact_candidate, queue_downward_message
from validator.protocols.router.encoding import (
    decode_state,
    encode_common_page,
    encode_para_page,
    is_current,
    owner_of,
    para_pages,
)
from validator.protocols.router.features.errors import RequestNotInForce
from validator.protocols.router.features.message_queue import begin_message_queue
from validator.protocols.router.host import RouterHost
from validator.protocols.router.later_pages import HEADROOM_PAGE
from validator.protocols.router.levels import levels
from validator.protocols.router.look_ahead import look_up_channels
from validator.protocols.router.profile import SEED_RULES, Profile
from validator.protocols.router.records import KINDS, Candidate, ChannelRequest, split_upward
from validator.protocols.router.requests import CHECKS, dispatcher_of
from validator.protocols.router.session import change_session, onboard_para
from validator.protocols.router.state import RouterState

_channel_headroom = maker(ChannelHeadroom)


def genesis(settings: ChainSettings) -> RouterState:
    """Return a state that has seen no message and whose genesis paras are valid."""
    state = RouterState(settings.configuration, settings.balances, settings.notifications)
    for para in settings.paras:
        onboard_para(state, para)
    return state


def restore(common_page: bytes, headroom_page: bytes, owned: list[bytes]) -> RouterState:
    """Return the state that pages encode. Raises `scale.DecodeError`."""
    state = decode_state(common_page, owned)
    touched = HEADROOM_PAGE.read_headroom_page(headroom_page)
    state.touched.paras, state.touched.channels = touched.paras, touched.channels
    return state


def check_start(state: RouterState, rules: Profile, first_block: BlockNumber) -> None:
    """Raise ``ValueError`` for a state with a message queue under rules that have none.

    Senders that a digest repeats are taken once, unless the rules repeat them.
    """
    if state.message_queue is not None and "message_queue" not in rules.features:
        raise ValueError(f"ready_ring: expected null, since message_queue is not in force in block {first_block}")
    if not rules.repeat_senders:
        for digests in state.hrmp_channel_digests.values():
            digests.update({block: list(dict.fromkeys(senders)) for block, senders in digests.items()})


def begin_block(state: RouterState, env: Environment, parent: BlockNumber | None) -> None:
    """Let later rules take their place before everything else (router_profiles 1)."""
    if state.message_queue is None and "message_queue" in env.profile.features:
        begin_message_queue(state)
    rules = env.settings.rules
    if parent is not None and in_force(rules, parent) != in_force(rules, env.now):
        state.touched.paras.update(dict.fromkeys(state.paras))  # the new rules may leave another headroom


def signals(env: Environment, candidate: Candidate) -> tuple[Signal, ...]:
    """Return the signals of a candidate under the rules of its block, up to the first entry that is none."""
    rules: Profile = env.profile
    if rules.signals is None:
        return ()
    _, entries = split_upward(candidate.upward_messages)
    return rules.signals.read(entries) if entries else ()


def apply_request(state: RouterState, env: Environment, request: ChannelRequest) -> Effects:
    """Apply a request of a kind in force; raises `RequestNotInForce`, then its own violations."""
    apply = env.profile.requests.get(type(request))
    if apply is None:
        raise RequestNotInForce(request=KINDS[type(request)])
    effects: Effects = apply(state, env, request)
    return effects


def request_violations(state: RouterState, env: Environment, request: ChannelRequest) -> list[Violation] | None:
    """Return all violations of a request that is in force, if its checks can report them (`CHECKS`)."""
    check = CHECKS.get(type(request))
    if check is None or type(request) not in env.profile.requests:
        return None
    found: list[Violation] = []
    check(state, env.profile, request, found.append)
    return found


def queue_downward(state: RouterState, env: Environment, message: DownwardMessage) -> MessageRef:
    """Queue a downward message; raises the violations of `queue_downward_message`."""
    return queue_downward_message(state, env.profile, message, env.now)


def dispatch(state: RouterState, env: Environment) -> None:
    """Run the block's round of upward messages."""
    env.profile.upward.serve(state, dispatcher_of(env), RouterHost(state, env), env.now, env.dispatched)


def para_headroom(state: RouterState, rules: Profile, para: ParaId) -> ParaHeadroom:
    """Return how much a para's next candidate may carry and which watermarks it may have."""
    if para not in state.paras:
        return ParaHeadroom(para, valid=False)
    config = state.host_configuration
    count, size = state.relay_dispatch_queue_size.get(para, (0, 0))
    return ParaHeadroom(
        para,
        valid=True,
        upward_count_left=max(0, config.max_upward_queue_count - count),
        upward_bytes_left=max(0, config.max_upward_queue_size - size),
        downward_pending=len(state.downward_message_queues.get(para, ())),
        watermark=state.hrmp_watermarks.get(para),
        valid_watermarks=rules.valid_watermarks(state, para),
    )


def channel_headroom(state: RouterState, rules: Profile, channel_id: ChannelId) -> ChannelHeadroom:  # noqa: ARG001
    """Return how much a channel can still take."""
    channel = state.hrmp_channels.get(channel_id)
    if channel is None:
        return ChannelHeadroom(*channel_id, open=False)
    places_left = channel.limit_used_places - channel.used_places
    bytes_left = channel.limit_used_bytes - channel.used_bytes
    return _channel_headroom((*channel_id, True, places_left, bytes_left, channel.limit_message_size))


def touched_owners(state: RouterState) -> tuple[OrderedSet, ...]:
    """Return the paras, and the owners of handler state, whose pages have changed."""
    return state.touched.pages, state.handler_states.touched


def owners(state: RouterState) -> list[int]:
    """Return, ascending, the paras that may own a page, then the owners of handler state."""
    return para_pages(state) + state.handler_states.owners()


def page(state: RouterState, owner: int) -> bytes | None:
    """Return an owner's canonically encoded page, or None if it owns nothing."""
    return state.handler_states.page(owner) if owner >= FIRST_OWNER else encode_para_page(state, owner)


def page_hashes(owned: list[bytes]) -> dict[int, Hash]:
    """Return, by owner, the hashes of the pages that need no re-encoding."""
    return {owner_of(page): blake2b_256(page) for page in owned if is_current(page)}


ROUTER: Final[RuleSet[RouterState]] = RuleSet(
    genesis=genesis,
    request=records.request,
    candidate=records.candidate,
    signals=signals,
    first_profile=SEED_RULES,
    check_start=check_start,
    begin_block=begin_block,
    apply_request=apply_request,
    request_violations=request_violations,
    queue_downward=queue_downward,
    expect=look_up_channels,
    check_candidate=check_candidate,
    enact_candidate=enact_candidate,
    dispatch=dispatch,
    change_session=change_session,
    para_headroom=para_headroom,
    channel_headroom=channel_headroom,
    levels=levels,
    common_page=encode_common_page,
    headroom_page=lambda state: HEADROOM_PAGE.headroom_page(state.touched),
    owners=owners,
    page=page,
    restore=restore,
    page_hashes=page_hashes,
    touched_owners=touched_owners,
)
"""A relay chain's message queues under the rules of router.txt and the features in force."""
