# SPDX-License-Identifier: Apache-2.0
"""A relay chain in memory whose upward messages go to one plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from validator.config import DEFAULT_PROTOCOL
from validator.core.handlers.context import Context
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch, find_conflicts
from validator.core.outcomes import ChannelEvent, Dispatch
from validator.core.rules import pages
from validator.core.types import Balance, Balances, BlockNumber, ChannelId, Hash, Para, ParaId, SessionChange, Weight
from validator.errors import UserError
from validator.plugin.protocol_api import ChainSettings, HandlerBench, LimitsTable, Node, ProtocolDefinition
from validator.plugin.registry import (
    Plugin,
    PluginError,
    Problem,
    canonical,
    handlers_of,
    installed,
    register_object,
)
from validator.plugin.runtime import RuntimePlan, make_runtime
from validator.plugin.watchdog import HANDLER_SECONDS_MAX_DEFAULT, Watchdog

HostConfiguration: TypeAlias = str | Mapping[str, int] | Any | None
"""A chain's limits: a preset's name, limits by name, or an object of the protocol's class; None for the protocol's default in tests."""

PARAS: Final = (2000, 2001, 2002)
"""The paras of a chain by default."""

BALANCE: Final = 10**15
"""Default free balance of a para's account, in the smallest unit of the token: enough for any preset's deposits."""

CALLS: Final = (
    "charge",
    "read",
    "write",
    "delete",
    "emit",
    "init_open_channel",
    "accept_open_channel",
    "close_channel",
    "queue_downward_message",
    "free_balance",
    "transfer",
)
"""The context calls that are counted and can be made to fail."""


class HarnessFault(Exception):
    """Raised by a context call after `Harness.fail_at`; no plugin expects it."""


class Harness:
    """A chain whose upward messages go to the handlers of ``plugin``.

    ``plugin`` is a module or object with hooks, or the name of an installed plugin, with ``@version`` if several are installed.
    ``config`` is what a chain's configuration would hold under ``config``. ``paras`` are ids or `Para`s. ``host_configuration`` is a
    preset, limits by name (missing ones are 0), or an object of the protocol's configuration class; None is the protocol's default.
    ``balances`` is the free balance of each para's account, by para or one for all. ``block`` is the first block. A message may use
    ``weight_max`` (None: the weight of a whole round), and its handler ``seconds_max``. ``protocol`` is the chain's rule set. An
    ``unlimited`` chain keeps no ledger and only tracks what is reserved.

    Raises `PluginError` for problems of the plugin, its configuration or the protocol's plugin. Then raises `UserError`, in this order, for
    a protocol without a bench, an unknown preset or limit, a configuration under which nothing is dispatched, and a balance of an unknown
    para.
    """

    def __init__(
        self,
        plugin: Any,
        config: Mapping[str, Any] | None = None,
        *,
        paras: Iterable[ParaId | Para] = PARAS,
        host_configuration: HostConfiguration = None,
        balances: Mapping[ParaId, Balance] | Balance = BALANCE,
        block: BlockNumber = 1,
        weight_max: Weight | None = None,
        seconds_max: float = HANDLER_SECONDS_MAX_DEFAULT,
        protocol: str = DEFAULT_PROTOCOL,
        unlimited: bool = False,
    ) -> None:
        self.plugin = resolve_plugin(plugin)
        self._values = canonical(dict(config or {}))
        self.handlers = handlers_of(self.plugin, self._values)
        if conflicts := find_conflicts(self.handlers):
            raise PluginError([Problem(str(self.plugin), conflict, "fix the plugin") for conflict in conflicts])
        self.calls = 0
        """Number of context calls of the last message."""
        self.call_names: list[str] = []
        """Their names."""
        self.call_weights: list[Weight] = []
        """Weight that the message had used after each call."""
        self.channel_events: list[ChannelEvent] = []
        """The channel events of the last block."""
        self._fail_at: int | None = None
        self._weight_max = weight_max
        self._watchdog = Watchdog(seconds_max)
        self._dispatcher = self._make_dispatcher()
        self._protocol, self._bench = _bench(protocol)
        configuration = _configuration(host_configuration, self._protocol, self._bench)
        settings = ChainSettings(
            configuration,
            tuple(_paras(paras, balances)),
            balances=Balances.UNLIMITED if unlimited else Balances.LEDGER,
            upward_messages=self._dispatcher,
            rules=self._protocol.rules,
        )
        self._rules = self._protocol.rule_set.at_genesis(settings)
        self._next_block = block

    # --- actions ---

    def send(self, payload: bytes, para: ParaId = PARAS[0], block: BlockNumber | None = None) -> Dispatch:
        """Send a para's upward message in a new block and return its dispatch.

        ``block`` defaults to the next one. Raises `UserError`, in this order, if messages of earlier blocks are still queued, for a para
        that is not valid, and for a block that is already past. Raises `HandlerFault` if the job would stop.
        """
        if self._bench.waits(self._rules.state):
            raise UserError("messages of earlier blocks are still queued: run_block() first")
        (dispatch,) = self.send_all([(para, payload)], block)
        return dispatch

    def send_all(self, messages: Sequence[tuple[ParaId, bytes]], block: BlockNumber | None = None) -> list[Dispatch]:
        """Send paras' upward messages in one block and return what its round dispatched; messages beyond the round's weight stay queued.

        Raises as `send` does, but allows queued messages.
        """
        valid = self.paras
        for para, _ in messages:
            if para not in valid:
                raise UserError(f"para {para} is not valid, there are {', '.join(map(str, valid))}")
        self._begin(block)
        for para, payload in messages:
            self._bench.send(self._rules.state, self._rules.env.profile, para, payload)
        try:
            dispatches = self._rules.dispatch()
        finally:
            self._fail_at = None
        self.channel_events = self._rules.env.events.events
        return dispatches

    def run_block(self, block: BlockNumber | None = None) -> list[Dispatch]:
        """Run a block without new messages and return what its round dispatched from the queues."""
        return self.send_all([], block)

    def change_session(
        self,
        *,
        outgoing: Iterable[ParaId] = (),
        onboarding: Iterable[ParaId | Para] = (),
        new_config: Mapping[str, int] | None = None,
        block: BlockNumber | None = None,
    ) -> list[ChannelEvent]:
        """Change the session in a new block and return its channel events; ``new_config`` holds limits by name."""
        changes = tuple(sorted((new_config or {}).items()))
        self._begin(block)
        self._rules.change_session(SessionChange(tuple(outgoing), tuple(map(_para, onboarding)), changes))
        self.channel_events = self._rules.env.events.events
        return self.channel_events

    def fail_at(self, call: int) -> None:
        """Make the ``call``-th context call of the next message, counted from 1, raise `HarnessFault` after it has taken effect."""
        if call < 1:
            raise UserError(f"fail_at: expected a call number, at least 1, found {call}")
        self._fail_at = call

    def limit_weight(self, weight_max: Weight | None) -> None:
        """Restart with another ``weight_max`` for every message, as after a change of the chain's configuration."""
        self._weight_max = weight_max
        self.restart()

    def restart(self) -> None:
        """Continue from the encoded state with new handlers, as a restarted job does.

        The plugin's module stays imported. Raises ``AssertionError`` if the restored state differs.
        """
        before, root = pages(self._rules), self.state_root
        self.handlers = handlers_of(self.plugin, self._values)
        self._dispatcher = self._make_dispatcher()
        self._rules = self._protocol.rule_set.from_pages(
            before, ChainSettings(upward_messages=self._dispatcher, rules=self._protocol.rules)
        )
        assert pages(self._rules) == before, "the restored state encodes to different pages"
        assert self.state_root == root, "the restored state has a different root"

    # --- state ---

    @property
    def block(self) -> BlockNumber:
        """The block of the next message."""
        return self._next_block

    @property
    def paras(self) -> tuple[ParaId, ...]:
        """The valid paras, ascending."""
        return tuple(self._bench.paras(self._rules.state))

    @property
    def state(self) -> dict[bytes, bytes]:
        """The plugin's stored values by key, ascending."""
        assert self._protocol.handler_states is not None
        entries = self._protocol.handler_states(self._rules.state).entries(self.plugin.manifest.name)
        return {key: value for _, key, value in entries}

    @property
    def state_root(self) -> Hash:
        """The root over the chain's complete state."""
        return self._rules.state_root()

    def balance(self, para: ParaId) -> Balance:
        """Return the free balance of a para's account, in the smallest unit of the token."""
        return int(self._bench.account(self._rules.state, para).free)

    def reserved(self, para: ParaId) -> Balance:
        """Return the reserved deposits of a para's account, in the smallest unit of the token."""
        return int(self._bench.account(self._rules.state, para).reserved)

    def downward(self, para: ParaId) -> list[bytes]:
        """Return the downward messages queued for a para, oldest first."""
        return self._bench.downward(self._rules.state, para)

    @property
    def channels(self) -> dict[ChannelId, Any]:
        """The open channels by (sender, recipient), ascending; copies."""
        return self._bench.channels(self._rules.state)

    @property
    def open_requests(self) -> dict[ChannelId, Any]:
        """The open channel requests by (sender, recipient), ascending; copies."""
        return self._bench.open_requests(self._rules.state)

    @property
    def close_requests(self) -> list[ChannelId]:
        """The channels with a close request, ascending."""
        return self._bench.close_requests(self._rules.state)

    def _make_dispatcher(self) -> HandlerDispatcher:
        epochs = [HandlerEpoch(0, DispatchTable(self.handlers))]
        return HandlerDispatcher(epochs, weight_max=self._weight_max, guard=self._watchdog, context=self._context())

    def _begin(self, block: BlockNumber | None) -> None:
        number = self._next_block if block is None else block
        if number < self._next_block:
            raise UserError(f"block {number}: expected a block from {self._next_block} on")
        self._next_block = number + 1
        self._forget_calls()
        self._rules.begin_block(number)

    def _forget_calls(self) -> None:
        self.calls = 0
        self.call_names = []
        self.call_weights = []

    def _context(self) -> type[Context]:
        """Return a context class whose calls this harness counts and can make fail."""
        harness = self

        class CountingContext(Context):
            __slots__ = ()

            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                harness._forget_calls()

        for name in CALLS:
            setattr(CountingContext, name, self._counting(name))
        return CountingContext

    def _counting(self, name: str) -> Any:
        plain = getattr(Context, name)

        def call(context: Context, *arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            number = self.calls
            self.call_names.append(name)
            returned = plain(context, *arguments, **keywords)
            self.call_weights.append(context._used)
            if number == self._fail_at:
                self._fail_at = None
                raise HarnessFault(f"made to fail at call {number} ({name})")
            return returned

        call.__name__ = name
        call.__doc__ = plain.__doc__
        return call


def resolve_plugin(plugin: Any) -> Plugin:
    """Return a plugin of handlers, given as a loaded plugin, a module or object, or a name with or without ``@version``.

    Raises `PluginError`.
    """
    if isinstance(plugin, Plugin):
        return plugin
    if isinstance(plugin, str):
        name, _, version = plugin.partition("@")
        there = installed("validator.handlers", [name])
        versions = sorted(each for _, each in there)
        if version in versions or (not version and len(versions) == 1):
            return there[name, version or versions[0]]
        hint = "name one of them, as name@version" if not version else "install it"
        raise PluginError([Problem(plugin, f"versions {', '.join(versions)} are installed", hint)])
    return register_object("validator.handlers", plugin)


def _bench(name: str) -> tuple[ProtocolDefinition, HandlerBench]:
    protocol = make_runtime(RuntimePlan(name)).protocol
    if protocol.handler_bench is None:
        raise UserError(f"protocol {name!r} has no bench for testing handlers")
    return protocol, protocol.handler_bench


def _configuration(given: HostConfiguration, protocol: ProtocolDefinition, bench: HandlerBench) -> Any:
    """Return a chain's limits as an object of its protocol's class. Raises `UserError`."""
    table = protocol.limits_table or LimitsTable({})
    if given is None:
        given = bench.preset
    if isinstance(given, str):
        if given not in table.presets:
            raise UserError(f"preset {given!r}: no such preset, there are {', '.join(table.presets)}")
        given = table.presets[given]
    if isinstance(given, Mapping):
        for name in given:
            if name not in protocol.limits:
                raise UserError(f"{table.key}.{name}: no such limit, there are {', '.join(protocol.limits)}")
        given = protocol.configuration(Node(dict(given), table.key))
    bench.check(given)
    return given


def _para(para: ParaId | Para) -> Para:
    return para if isinstance(para, Para) else Para(para)


def _paras(given: Iterable[ParaId | Para], balances: Mapping[ParaId, Balance] | Balance) -> list[Para]:
    by_id: dict[ParaId, Para] = {}
    for each in given:
        if isinstance(each, Para):
            by_id[each.para_id] = each
        else:
            balance = balances.get(each, 0) if isinstance(balances, Mapping) else balances
            by_id[each] = Para(each, balance=balance)
    if isinstance(balances, Mapping) and (strangers := sorted(set(balances) - set(by_id))):
        raise UserError(f"balances: para {strangers[0]} is not one of paras")
    return [by_id[para] for para in sorted(by_id)]
