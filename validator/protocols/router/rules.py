# SPDX-License-Identifier: Apache-2.0
"""The Router as a rule set: UMP, DMP and HRMP, the default protocol. Source: router.txt.

`ROUTER` at the end is the table of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from validator.core.errors import Violation
from validator.core.handlers.state import FIRST_OWNER
from validator.core.hashing import blake2b_256
from validator.core.levels import ChannelLevel, LaneLevel, LevelChoice, Levels, ParaLevel
from validator.core.outcomes import ChannelHeadroom, MessageRef, ParaHeadroom, Signal
from validator.core.rules import ChainSettings, Effects, Environment, RuleSet, in_force
from validator.core.state import OrderedSet
from validator.core.types import BlockNumber, ChannelId, DownwardMessage, Hash, ParaId, maker
from validator.protocols.kit import wanted_subjects
from validator.protocols.router import records
from validator.protocols.router.acceptance import check_candidate
from validator.protocols.router.enactment import enact_candidate, queue_downward_message
from validator.protocols.router.encoding import (
    HEADROOM_PAGE,
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
from validator.protocols.router.profile import SEED_RULES, Profile
from validator.protocols.router.records import KINDS, Candidate, ChannelRequest, split_upward
from validator.protocols.router.requests import CHECKS, dispatcher_of
from validator.protocols.router.session import age_request, change_session, onboard_para
from validator.protocols.router.state import NO_CHANNELS, HrmpChannel, RouterState

# --- look ahead -----------------------------------------------------------------------------------------------------------------------
# What a block's candidates will need is looked up before the first of them is judged.
#
# The channels of a large chain are in no cache of the processor. A rule that needs one waits for its row, then for its entry, then for the
# channel. Looked up one right after the other, those of a whole block arrive at the same time, and the rules find them in the cache.


RECIPIENTS_MIN: Final = 500
"""The channels of a chain with fewer recipients stay in the cache."""


def look_up_channels(state: RouterState, candidates: Sequence[Candidate]) -> list[HrmpChannel | None]:
    """Return the channel of each horizontal message of a large chain's candidates; nothing if the chain is small."""
    inbound = state.hrmp_channels.inbound
    if len(inbound) < RECIPIENTS_MIN:
        return []
    messages = [
        (candidate.para_id, each.recipient) for candidate in candidates for each in candidate.horizontal_messages
    ]
    rows = [inbound.get(recipient, NO_CHANNELS) for _, recipient in messages]
    return [*map(dict.get, rows, [sender for sender, _ in messages])]


# --- levels ---------------------------------------------------------------------------------------------------------------------------
# How full the Router's queues are (`validator.core.levels`).


def levels(state: RouterState, rules: Profile, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    paras, channels, left_out = wanted_subjects(state.paras, state.hrmp_channels, choice)
    return Levels(
        lane_level(state, rules),
        tuple(para_level(state, para, now) for para in paras),
        tuple(channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def lane_level(state: RouterState, rules: Profile) -> LaneLevel:
    """Return what waits in the whole lane."""
    requests = state.hrmp_open_channel_requests.values()
    ages = [request.age for request in requests if not request.confirmed]
    expires = rules.age_request is age_request  # later rules let requests wait for as long as it takes
    backed = [queue[0].backed_at for queue in state.pending_candidates.values()]
    return LaneLevel(
        unconfirmed=len(ages),
        expiring=sum(age + 1 >= state.host_configuration.hrmp_open_request_ttl for age in ages) if expires else 0,
        oldest_age=max(ages, default=0),
        confirmed=len(requests) - len(ages),
        closing=len(state.hrmp_close_channel_requests),
        pending=sum(map(len, state.pending_candidates.values())),
        pending_oldest=min(backed, default=None),
    )


def para_level(state: RouterState, para: ParaId, now: BlockNumber) -> ParaLevel:
    """Return the level of a para's queues after block ``now``."""
    config = state.host_configuration
    messages, size = state.relay_dispatch_queue_size.get(para, (0, 0))
    downward = state.downward_message_queues.get(para, ())
    return ParaLevel(
        para,
        upward_messages=messages,
        upward_bytes=size,
        upward_messages_max=config.max_upward_queue_count,
        upward_bytes_max=config.max_upward_queue_size,
        upward_head=_upward_head(state, para),
        downward_messages=len(downward),
        downward_bytes=sum(len(message.msg) for message in downward),
        downward_oldest=downward[0].sent_at if downward else None,
        downward_sent=state.downward_messages_sent.get(para, 0),
        watermark_lag=_watermark_lag(state, para, now),
    )


def channel_level(state: RouterState, channel_id: ChannelId) -> ChannelLevel:
    """Return the level of an open channel."""
    channel = state.hrmp_channels[channel_id]
    return ChannelLevel(
        *channel_id,
        messages=channel.used_places,
        bytes=channel.used_bytes,
        messages_max=channel.limit_used_places,
        bytes_max=channel.limit_used_bytes,
        oldest=channel.contents[0].sent_at if channel.contents else None,
        messages_sent=channel.messages_sent,
        bytes_sent=channel.bytes_sent,
    )


def _upward_head(state: RouterState, para: ParaId) -> object:
    if state.message_queue is not None:
        book = state.message_queue.books.get(para)
        return None if book is None else next(book.waiting(), None)
    queue = state.relay_dispatch_queues.get(para)
    return queue[0] if queue else None


def _watermark_lag(state: RouterState, para: ParaId, now: BlockNumber) -> int:
    digests = state.hrmp_channel_digests.get(para)
    if not digests:
        return 0
    watermark = state.hrmp_watermarks.get(para, next(iter(digests)) - 1)
    return max(0, now - watermark)


# --- table ----------------------------------------------------------------------------------------------------------------------------


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
        begin_message_queue(state, env)
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
