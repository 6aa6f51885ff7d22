# SPDX-License-Identifier: Apache-2.0
"""The operations that the Router offers to upward-message handlers, and their rollback if a message fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.core.handlers.errors import ContextError
from validator.core.handlers.undo import UndoLog
from validator.core.limits import U128_MAX
from validator.core.outcomes import MessageRef
from validator.core.rules import Environment
from validator.core.types import Balance, Balances, BlockNumber, ChannelId, DownwardMessage, ParaId, SessionIndex
from validator.protocols.kit import Account, free_balance
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.enactment import queue_downward_message
from validator.protocols.router.requests import hrmp_accept_open_channel, hrmp_close_channel, hrmp_init_open_channel
from validator.protocols.router.state import RouterState

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


class RouterHost:
    """Handlers' access to the Router's state during one block (implements `core.handlers.context.Host`)."""

    def __init__(self, state: RouterState, env: Environment) -> None:
        self._state = state
        self._rules: Profile = env.profile
        self._events = env.events
        self._undo = UndoLog()
        self._queued: list[MessageRef] = []

    @property
    def block(self) -> BlockNumber:
        """The block that is being executed."""
        return self._events.block

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""
        return self._state.session_index

    @property
    def host_configuration(self) -> HostConfiguration:
        """The relay chain's current limits."""
        return self._state.host_configuration

    def begin(self) -> None:
        """Start a message: every later change can be rolled back."""
        self._undo.forget()
        self._queued.clear()
        self._undo.length(self._events.events)

    def roll_back(self) -> None:
        """Undo everything since `begin`. Touched pages and headroom stay marked as changed, which only costs work."""
        self._undo.roll_back()
        self._queued.clear()

    def queued(self) -> tuple[MessageRef, ...]:
        """Return the downward messages that were queued since `begin`, in order."""
        return tuple(self._queued)

    def read(self, plugin: str, key: bytes) -> bytes | None:
        """Return a value of a plugin's own state."""
        return self._state.handler_states.get(plugin, key)

    def write(self, plugin: str, key: bytes, value: bytes | None) -> None:
        """Set or remove a value of a plugin's own state. Raises `ContextError`."""
        states = self._state.handler_states
        before = states.get(plugin, key)
        states.put(plugin, key, value)
        self._undo.call(lambda: states.put(plugin, key, before))

    def init_open_channel(self, origin: ParaId, recipient: ParaId, max_places: int, max_message_size: int) -> None:
        """Request a channel; raises the violations of `hrmp_init_open_channel`."""
        self.note_init(origin, recipient)
        self._queued += hrmp_init_open_channel(
            self._state, self._rules, self._events, origin, recipient, max_places, max_message_size
        )

    def accept_open_channel(self, origin: ParaId, sender: ParaId) -> None:
        """Confirm a channel request; raises the violations of `hrmp_accept_open_channel`."""
        self.note_accept(origin, sender)
        self._queued += hrmp_accept_open_channel(self._state, self._rules, self._events, origin, sender)

    def close_channel(self, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
        """Request that a channel be closed; raises the violations of `hrmp_close_channel`."""
        state, undo = self._state, self._undo
        undo.item(state.hrmp_close_channel_requests, (sender, recipient))
        undo.length(state.hrmp_close_channel_requests_list)
        self._note_downward(recipient if origin == sender else sender)
        self._queued += hrmp_close_channel(state, self._rules, self._events, origin, (sender, recipient))

    def queue_downward_message(self, para: ParaId, msg: bytes) -> None:
        """Queue a downward message; raises the violations of `queue_downward_message`."""
        self._note_downward(para)
        message = DownwardMessage(para, msg)
        self._queued.append(queue_downward_message(self._state, self._rules, message, self.block))

    def free_balance(self, para: ParaId) -> Balance:
        """Return the free balance of a para's account; 0 on a chain without a ledger."""
        return free_balance(self._state, para)

    def transfer(self, origin: ParaId, recipient: ParaId, amount: Balance) -> None:
        """Move free balance between two accounts. Does nothing on a chain without a ledger. Raises `ContextError`."""
        state = self._state
        if state.balances_mode is Balances.UNLIMITED:
            return
        free = self.free_balance(origin)
        if free < amount:
            raise ContextError(f"amount: expected at most the free balance of {free}, found {amount}")
        if origin == recipient or not amount:
            return
        if self.free_balance(recipient) > U128_MAX - amount:
            raise ContextError(
                f"amount: expected the recipient's free balance to stay below 2**128, found {amount} more"
            )
        self._undo.item(state.accounts, origin)
        self._undo.item(state.accounts, recipient)
        state.accounts[origin].free -= amount
        state.accounts.setdefault(recipient, Account()).free += amount
        state.touched.pages[origin] = state.touched.pages[recipient] = None

    # --- records for rollback ---

    def note_init(self, origin: ParaId, recipient: ParaId) -> None:
        """Record what `hrmp_init_open_channel` may change."""
        state, undo = self._state, self._undo
        undo.item(state.accounts, origin)
        undo.item(state.hrmp_open_channel_request_count, origin)
        undo.item(state.hrmp_open_channel_requests, (origin, recipient))
        undo.length(state.hrmp_open_channel_requests_list)
        self._note_downward(recipient)

    def note_accept(self, origin: ParaId, sender: ParaId) -> None:
        """Record what `hrmp_accept_open_channel` may change."""
        state, undo = self._state, self._undo
        undo.item(state.accounts, origin)
        undo.item(state.hrmp_accepted_channel_request_count, origin)
        undo.item(state.hrmp_open_channel_requests, (sender, origin))
        self._note_downward(sender)

    def note_request(self, channel_id: ChannelId) -> None:
        """Record a request that may be removed."""
        state, undo = self._state, self._undo
        sender, _ = channel_id
        undo.item(state.accounts, sender)
        undo.item(state.hrmp_open_channel_request_count, sender)
        undo.item(state.hrmp_uncounted_requests, sender)
        undo.item(state.hrmp_open_channel_requests, channel_id)
        listed, kept = state.hrmp_open_channel_requests_list, list(state.hrmp_open_channel_requests_list)
        undo.call(lambda: listed.__setitem__(slice(None), kept))

    def _note_downward(self, para: ParaId) -> None:
        """Record a downward queue for rollback, before at most one message is added to it."""
        state, undo = self._state, self._undo
        undo.item(state.downward_message_queue_heads, para)
        undo.item(state.downward_messages_sent, para)
        queue = state.downward_message_queues.get(para)
        if queue is None:
            undo.item(state.downward_message_queues, para)
        else:
            undo.length(queue)
