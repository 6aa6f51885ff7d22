# SPDX-License-Identifier: Apache-2.0
"""Everything that a handler can see and do.

A handler has only these members: no state object, clock, randomness, file or logger. Each call charges weight before it does anything
(`weights.CallWeights`). If a handler raises or runs out of weight, all effects of its message are undone.
"""

from __future__ import annotations

from typing import Any, Protocol

from validator.core.handlers.errors import ContextError, OutOfWeight
from validator.core.handlers.handler import KIND
from validator.core.handlers.weights import CALL_WEIGHTS, CallWeights
from validator.core.limits import (
    HANDLER_EVENT_BYTES_MAX,
    HANDLER_EVENTS_MAX,
    HANDLER_KEY_BYTES_MAX,
    HANDLER_VALUE_BYTES_MAX,
    U32_MAX,
    U64_MAX,
    U128_MAX,
)
from validator.core.outcomes import HandlerEvent, MessageRef
from validator.core.types import Balance, BlockNumber, ParaId, SessionIndex, Weight


class Host(Protocol):
    """What a protocol lets handlers do. Each call either completes, or raises a `Violation` and changes nothing."""

    @property
    def block(self) -> BlockNumber:
        """The block being executed."""

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""

    @property
    def host_configuration(self) -> Any:
        """The relay chain's current limits."""

    def begin(self) -> None:
        """Start a message: from here on everything can be rolled back."""

    def roll_back(self) -> None:
        """Undo everything since `begin`."""

    def queued(self) -> tuple[MessageRef, ...]:
        """Return the downward messages that were queued since `begin`, in order."""

    def read(self, plugin: str, key: bytes) -> bytes | None:
        """Return a value from a plugin's own state."""

    def write(self, plugin: str, key: bytes, value: bytes | None) -> None:
        """Set or remove a value in a plugin's own state. Raises `ContextError`."""

    def init_open_channel(self, origin: ParaId, recipient: ParaId, max_places: int, max_message_size: int) -> None:
        """Request a channel."""

    def accept_open_channel(self, origin: ParaId, sender: ParaId) -> None:
        """Confirm a request for a channel."""

    def close_channel(self, origin: ParaId, sender: ParaId, recipient: ParaId) -> None:
        """Request that a channel be closed."""

    def queue_downward_message(self, para: ParaId, msg: bytes) -> None:
        """Queue a downward message."""

    def free_balance(self, para: ParaId) -> Balance:
        """Return what a para's account may spend."""

    def transfer(self, origin: ParaId, recipient: ParaId, amount: Balance) -> None:
        """Move free balance between the accounts of two paras. Raises `ContextError`."""


class Context:
    """One upward message's view of the relay chain.

    ``origin`` is the para that sent it, ``block`` the block being executed, ``session`` the session's index, ``host_configuration`` the
    relay chain's limits, ``config`` the plugin's configuration on this chain.
    """

    __slots__ = (
        "_events",
        "_exhausted",
        "_host",
        "_limit",
        "_plugin",
        "_used",
        "block",
        "config",
        "host_configuration",
        "origin",
        "session",
    )

    def __init__(self, host: Host, origin: ParaId, plugin: str, config: Any, *, used: Weight, limit: Weight) -> None:
        self.origin = origin
        self.block = host.block
        self.session = host.session
        self.host_configuration = host.host_configuration
        self.config = config
        self._host = host
        self._plugin = plugin
        self._used = used
        self._limit = limit
        self._exhausted = False
        self._events: list[HandlerEvent] = []

    @property
    def weight_left(self) -> Weight:
        """Weight that the message may still use."""
        return self._limit - self._used

    def charge(self, weight: Weight) -> None:
        """Use up weight, for work that grows with the message.

        Raises `ContextError` if ``weight`` is not a u64, `OutOfWeight` if less than that is left.
        """
        _check_integer("weight", weight, U64_MAX)
        self._charge(weight)

    def read(self, key: bytes) -> bytes | None:
        """Return what this plugin has stored under a key, or None.

        ``key`` has 1 to 128 bytes. Raises `ContextError`, `OutOfWeight`.
        """
        _check_bytes("key", key, HANDLER_KEY_BYTES_MAX, least=1)
        self._charge(_WEIGHTS.read + _WEIGHTS.byte * len(key))
        value = self._host.read(self._plugin, key)
        self._charge(_WEIGHTS.byte * len(value or b""))
        return value

    def write(self, key: bytes, value: bytes) -> None:
        """Store a value under a key of this plugin; other plugins cannot see it.

        ``key`` has 1 to 128 bytes, ``value`` at most 65,536; a plugin's keys and values take at most 64 MiB per lane. Raises `ContextError`
        for a bad key or value, `OutOfWeight`, then `ContextError` if the plugin's state would grow too large.
        """
        _check_bytes("key", key, HANDLER_KEY_BYTES_MAX, least=1)
        _check_bytes("value", value, HANDLER_VALUE_BYTES_MAX)
        self._charge(_WEIGHTS.write + _WEIGHTS.byte * (len(key) + len(value)))
        self._host.write(self._plugin, key, value)

    def delete(self, key: bytes) -> None:
        """Remove a key and its value; does nothing if there is none. Raises `ContextError`, `OutOfWeight`."""
        _check_bytes("key", key, HANDLER_KEY_BYTES_MAX, least=1)
        self._charge(_WEIGHTS.write + _WEIGHTS.byte * len(key))
        self._host.write(self._plugin, key, None)

    def emit(self, name: str, data: bytes = b"") -> None:
        """Add an event to the message's dispatch record.

        ``name`` follows the same pattern as message kinds, ``data`` has at most 4,096 bytes; a message emits at most 256 events. Raises
        `ContextError` for a bad name or data, `OutOfWeight`, then `ContextError` if there are too many events.
        """
        if type(name) is not str or not KIND.fullmatch(name):
            raise ContextError(f"event name: expected 1 to 64 of a-z 0-9 . _ -, found {name!r}")
        _check_bytes("event data", data, HANDLER_EVENT_BYTES_MAX)
        self._charge(_WEIGHTS.emit + _WEIGHTS.byte * (len(name) + len(data)))
        if len(self._events) == HANDLER_EVENTS_MAX:
            raise ContextError(f"expected at most {HANDLER_EVENTS_MAX} events of a message")
        self._events.append(HandlerEvent(name, data))

    def init_open_channel(self, recipient: ParaId, max_places: int, max_message_size: int) -> None:
        """Call ``hrmp_init_open_channel`` on behalf of ``origin``.

        Raises `ContextError`, `OutOfWeight`, then the violations of the entry point.
        """
        for name, value in (
            ("recipient", recipient),
            ("max_places", max_places),
            ("max_message_size", max_message_size),
        ):
            _check_integer(name, value, U32_MAX)
        self._charge(_WEIGHTS.channel)
        self._host.init_open_channel(self.origin, recipient, max_places, max_message_size)

    def accept_open_channel(self, sender: ParaId) -> None:
        """Call ``hrmp_accept_open_channel`` on behalf of ``origin``.

        Raises `ContextError`, `OutOfWeight`, then the violations of the entry point.
        """
        _check_integer("sender", sender, U32_MAX)
        self._charge(_WEIGHTS.channel)
        self._host.accept_open_channel(self.origin, sender)

    def close_channel(self, sender: ParaId, recipient: ParaId) -> None:
        """Call ``hrmp_close_channel`` on behalf of ``origin``.

        Raises `ContextError`, `OutOfWeight`, then the violations of the entry point.
        """
        _check_integer("sender", sender, U32_MAX)
        _check_integer("recipient", recipient, U32_MAX)
        self._charge(_WEIGHTS.channel)
        self._host.close_channel(self.origin, sender, recipient)

    def queue_downward_message(self, para: ParaId, msg: bytes) -> None:
        """Queue a downward message to a para.

        Raises `ContextError`, `OutOfWeight`, `ExceedsMaxMessageSize`.
        """
        _check_integer("para", para, U32_MAX)
        _check_bytes("msg", msg, U32_MAX)
        self._charge(_WEIGHTS.queue_downward_message + _WEIGHTS.byte * len(msg))
        self._host.queue_downward_message(para, msg)

    def free_balance(self, para: ParaId) -> Balance:
        """Return what a para's account may spend, 0 if it has no account. Raises `ContextError`, `OutOfWeight`."""
        _check_integer("para", para, U32_MAX)
        self._charge(_WEIGHTS.free_balance)
        return self._host.free_balance(para)

    def transfer(self, recipient: ParaId, amount: Balance) -> None:
        """Move ``amount`` from ``origin``'s free balance to another para's.

        Raises `ContextError` for a bad argument, `OutOfWeight`, then `ContextError` if ``origin`` has less than ``amount``.
        """
        _check_integer("recipient", recipient, U32_MAX)
        _check_integer("amount", amount, U128_MAX)
        self._charge(_WEIGHTS.transfer)
        self._host.transfer(self.origin, recipient, amount)

    def _charge(self, weight: Weight) -> None:
        if self._exhausted or weight > self._limit - self._used:
            self._exhausted = True
            raise OutOfWeight
        self._used += weight


_WEIGHTS: CallWeights = CALL_WEIGHTS


def _check_integer(name: str, value: object, greatest: int) -> None:
    if type(value) is not int or not 0 <= value <= greatest:
        raise ContextError(f"{name}: expected an integer from 0 to {greatest}, found {value!r:.80}")


def _check_bytes(name: str, value: object, longest: int, least: int = 0) -> None:
    if type(value) is not bytes:
        raise ContextError(f"{name}: expected bytes, found {type(value).__name__}")
    if not least <= len(value) <= longest:
        raise ContextError(f"{name}: expected {least} to {longest} bytes, found {len(value)}")
