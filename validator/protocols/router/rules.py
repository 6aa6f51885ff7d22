# SPDX-License-Identifier: Apache-2.0
"""The Router as a rule set: UMP, DMP and HRMP, the default protocol. Source: router.txt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from validator.core.errors import Violation
from validator.core.handlers.state import FIRST_OWNER
from validator.core.handlers.upward import FixedWeightDispatcher, UpwardDispatcher
from validator.core.hashing import blake2b_256
from validator.core.levels import LevelChoice, Levels
from validator.core.outcomes import ChannelHeadroom, Dispatch, ParaHeadroom, Signal
from validator.core.root import merkle_root
from validator.core.rules import ChainSettings, Effects, OrderedSet, in_force
from validator.core.types import BlockNumber, ChannelId, DownwardMessage, Hash, ParaId, SessionChange, maker
from validator.protocols.kit import PendingCandidates
from validator.protocols.router import records
from validator.protocols.router.acceptance import check_candidate
from validator.protocols.router.enactment import enact_candidate, queue_downward_message
from validator.protocols.router.encoding import (
    decode_state,
    encode_common_page,
    encode_para_page,
    encode_state,
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
from validator.protocols.router.requests import CHECKS, Call
from validator.protocols.router.session import change_session, onboard_para
from validator.protocols.router.state import RouterState

_ENACTED = Effects()
_channel_headroom = maker(ChannelHeadroom)


class Router(PendingCandidates[RouterState]):
    """A relay chain's message queues under the rules of router.txt and the features in force."""

    lists_violations: ClassVar[bool] = True

    def __init__(
        self, state: RouterState, settings: ChainSettings | None = None, page_hashes: dict[int, Hash] | None = None
    ) -> None:
        super().__init__(state, settings, page_hashes)
        self._dispatcher: UpwardDispatcher = self.settings.upward_messages or FixedWeightDispatcher()
        self._dispatched: list[Dispatch] = []
        self.rules = self.rules_in_force()
        """The rules of the block that is being executed."""

    def rules_in_force(self) -> Profile:
        """Return the rules of the current profile; those of router.txt if the chain lists none."""
        return self.profile or SEED_RULES

    @classmethod
    def at_genesis(cls, settings: ChainSettings) -> Router:
        """Return a Router that has seen no message and whose genesis paras are valid."""
        state = RouterState(settings.configuration, settings.balances, settings.notifications)
        for para in settings.paras:
            onboard_para(state, para)
        return cls(state, settings)

    def check_start(self, first_block: BlockNumber) -> None:
        """Raise ``ValueError`` for a state with a message queue under rules that have none.

        Senders that a digest repeats are taken once, unless the rules repeat them.
        """
        rules = in_force(self.settings.rules, first_block).profile or SEED_RULES
        if self.state.message_queue is not None and "message_queue" not in rules.features:
            raise ValueError(f"ready_ring: expected null, since message_queue is not in force in block {first_block}")
        if not rules.repeat_senders:
            for digests in self.state.hrmp_channel_digests.values():
                digests.update({block: list(dict.fromkeys(senders)) for block, senders in digests.items()})

    def begin_block(self, now: BlockNumber, parent: BlockNumber | None = None) -> None:
        """Start block ``now``; later rules take their place before everything else (router_profiles 1)."""
        super().begin_block(now, parent)
        self.rules = self.rules_in_force()
        self._dispatched = []
        state = self.state
        if state.message_queue is None and "message_queue" in self.rules.features:
            begin_message_queue(state)
        rules = self.settings.rules
        if parent is not None and in_force(rules, parent) != in_force(rules, now):
            state.touched.paras.update(dict.fromkeys(state.paras))  # the new rules may leave another headroom

    @classmethod
    def from_pages(cls, pages: list[bytes], settings: ChainSettings | None = None) -> Router:
        """Rebuild a Router from its `pages`. Raises `scale.DecodeError`."""
        common_page, headroom_page, *owned = pages
        state = decode_state(common_page, owned)
        touched = HEADROOM_PAGE.read_headroom_page(headroom_page)
        state.touched.paras, state.touched.channels = touched.paras, touched.channels
        hashes = {owner_of(page): blake2b_256(page) for page in owned if is_current(page)}
        return cls(state, settings, hashes)

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request of a decoded record."""
        return records.request(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate of a decoded record."""
        return records.candidate(fields)

    def signals(self, candidate: Candidate) -> tuple[Signal, ...]:
        """Return the signals of a candidate under the rules of its block, up to the first entry that is none."""
        if self.rules.signals is None:
            return ()
        _, entries = split_upward(candidate.upward_messages)
        return self.rules.signals.read(entries) if entries else ()

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply a request of a kind in force; raises `RequestNotInForce`, then its own violations."""
        apply = self.rules.requests.get(type(request))
        if apply is None:
            raise RequestNotInForce(request=KINDS[type(request)])
        return apply(Call(self.state, self.rules, self.events, self._dispatcher, self._dispatched), request)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message; raises the violations of `queue_downward_message`."""
        return Effects(messages=(queue_downward_message(self.state, self.rules, message, self.now),))

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Look up the channels of a block's messages all at once (`look_ahead`)."""
        look_up_channels(self.state, candidates)

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the first rule violation of a candidate, if any (`acceptance.check_candidate`)."""
        check_candidate(self.state, self.rules, candidate)

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Return all rule violations of a candidate, in the order of the checks."""
        found: list[Violation] = []
        check_candidate(self.state, self.rules, candidate, found.append)
        return found

    def request_violations(self, request: ChannelRequest) -> list[Violation] | None:
        """Return all violations of a request that is in force, if its checks can report them (`requests.CHECKS`)."""
        check = CHECKS.get(type(request))
        if check is None or type(request) not in self.rules.requests:
            return None
        found: list[Violation] = []
        check(self.state, self.rules, request, found.append)
        return found

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply an accepted candidate and return the queue positions of its messages."""
        messages = enact_candidate(self.state, self.rules, candidate, self.now)
        return Effects(messages=messages) if messages else _ENACTED

    def dispatch(self) -> list[Dispatch]:
        """Run the block's round of upward messages. Return what it handed over, after what requests had handed over before it."""
        host = RouterHost(self.state, self.rules, self.events)
        self.rules.upward.serve(self.state, self._dispatcher, host, self.now, self._dispatched)
        return self._dispatched

    def change_session(self, change: SessionChange) -> None:
        """Change the session. Pending candidates stay pending unless the block record says otherwise."""
        change_session(self.state, self.rules, self.events, change)

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom that changed since the last call: paras, then channels, each ascending."""
        return self.state.touched.take_headroom(self.para_headroom, self.channel_headroom)

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return how much a para's next candidate may carry and which watermarks it may have."""
        state = self.state
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
            valid_watermarks=self.rules.valid_watermarks(state, para),
        )

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom:
        """Return how much a channel can still take."""
        channel = self.state.hrmp_channels.get(channel_id)
        if channel is None:
            return ChannelHeadroom(*channel_id, open=False)
        places_left = channel.limit_used_places - channel.used_places
        bytes_left = channel.limit_used_bytes - channel.used_bytes
        return _channel_headroom((*channel_id, True, places_left, bytes_left, channel.limit_message_size))

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:
        """Return how full the queues are after block ``now``."""
        return levels(self.state, in_force(self.settings.rules, now).profile or SEED_RULES, now, choice)

    def common_page(self) -> bytes:
        """Return the page of the storage that no para owns."""
        return encode_common_page(self.state)

    def headroom_page(self) -> bytes:
        """Return the page that lists the owners whose headroom has changed."""
        return HEADROOM_PAGE.headroom_page(self.state.touched)

    def touched_owners(self) -> tuple[OrderedSet, ...]:
        """Return the paras, and the owners of handler state, whose pages have changed."""
        return self.state.touched.pages, self.state.handler_states.touched

    def owners(self) -> list[int]:
        """Return, ascending, the paras that may own a page, then the owners of handler state."""
        return para_pages(self.state) + self.state.handler_states.owners()

    def page(self, owner: int) -> bytes | None:
        """Return an owner's canonically encoded page, or None if it owns nothing."""
        if owner >= FIRST_OWNER:
            return self.state.handler_states.page(owner)
        return encode_para_page(self.state, owner)


def state_hash(state: RouterState) -> Hash:
    """Return the state root computed from scratch. Equal states have equal roots, whatever their history."""
    common_page, pages = encode_state(state)
    return merkle_root(blake2b_256(common_page), {para: blake2b_256(page) for para, page in pages.items()})
