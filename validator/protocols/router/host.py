# SPDX-License-Identifier: Apache-2.0
"""What the Router lets upward-message handlers do, and takes back where a message fails."""

from __future__ import annotations

from validator.core.events import EventLog
from validator.core.handlers.errors import ContextError
from validator.core.handlers.undo import UndoLog
from validator.core.limits import U128_MAX
from validator.core.types import Balance, Balances, BlockNumber, DownwardMessage, ParaId, SessionIndex
from validator.protocols.kit import Account, free_balance
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.enactment import queue_downward_message
from validator.protocols.router.requests import hrmp_accept_open_channel, hrmp_close_channel, hrmp_init_open_channel
from validator.protocols.router.state import RouterState


class RouterHost:
    """The Router's state as handlers reach it in one block (`core.handlers.context.Host`)."""

    def __init__(self, state: RouterState, events: EventLog) -> None:
        self._state = state
        self._events = events
        self._undo = UndoLog()

    @property
    def block(self) -> BlockNumber:
        """The block that is executed."""
        return self._events.block

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""
        return self._state.session_index

    @property
    def host_configuration(self) -> HostConfiguration:
        """The relay chain's limits as they are now."""
        return self._state.host_configuration

    def begin(self) -> None:
        """Start a message: from here on everything can be rolled back."""
        self._undo.forget()
        self._undo.length(self._events.events)

    def roll_back(self) -> None:
        """Undo everything since `begin`; pages and headroom that it touched stay marked as changed, which only costs work."""
        self._undo.roll_back()

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
        state, undo = self._state, self._undo
        undo.item(state.accounts, origin)
        undo.item(state.hrmp_open_channel_request_count, origin)
        undo.item(state.hrmp_open_channel_requests, (origin, recipient))
        undo.length(state.hrmp_open_channel_requests_list)
        self._note_downward(recipient)
        hrmp_init_open_channel(state, self._events, origin, recipient, max_places, max_message_size)

    def accept_open_channel(self, origin: ParaId, sender: ParaId) -> None:
        """Confirm a request for a channel; raises the violations of `hrmp_accept_open_channel`."""
        state, undo = self._state, self._undo
        undo.item(state.accounts, origin)
        undo.item(state.hrmp_accepted_channel_request_count, origin)
        undo.item(state.hrmp_open_channel_requests, (sender, origin))
        self._note_downward(sender)
        hrmp_accept_open_channel(state, self._events, origin, sender)

    def close_channel(self, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
        """Ask for a channel to be closed; raises the violations of `hrmp_close_channel`."""
        state, undo = self._state, self._undo
        undo.item(state.hrmp_close_channel_requests, (sender, recipient))
        undo.length(state.hrmp_close_channel_requests_list)
        self._note_downward(recipient if origin == sender else sender)
        hrmp_close_channel(state, self._events, origin, (sender, recipient))

    def queue_downward_message(self, para: ParaId, msg: bytes) -> None:
        """Queue a downward message. Raises `ExceedsMaxMessageSize`."""
        self._note_downward(para)
        queue_downward_message(self._state, DownwardMessage(para, msg), self.block)

    def free_balance(self, para: ParaId) -> Balance:
        """Return what a para's account may spend; 0 for all where the chain keeps no ledger."""
        return free_balance(self._state, para)

    def transfer(self, origin: ParaId, recipient: ParaId, amount: Balance) -> None:
        """Move free balance between two accounts, nothing where the chain keeps no ledger. Raises `ContextError`."""
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

    def _note_downward(self, para: ParaId) -> None:
        """Remember a downward queue to which at most a message will be added."""
        state, undo = self._state, self._undo
        undo.item(state.downward_message_queue_heads, para)
        undo.item(state.downward_messages_sent, para)
        queue = state.downward_message_queues.get(para)
        if queue is None:
            undo.item(state.downward_message_queues, para)
        else:
            undo.length(queue)
