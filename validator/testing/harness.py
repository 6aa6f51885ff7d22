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
from validator.plugin.api import Manifest
from validator.plugin.protocol_api import ChainSettings, HandlerBench, LimitsTable, Node, ProtocolDefinition
from validator.plugin.registry import Found, Plugin, PluginError, Problem, canonical, handlers_of, installed, register
from validator.plugin.runtime import RuntimePlan, make_runtime
from validator.plugin.watchdog import HANDLER_SECONDS_MAX_DEFAULT, Watchdog

HostConfiguration: TypeAlias = str | Mapping[str, int] | Any | None
"""A chain's limits: a preset's name, limits by name, or an object of the protocol's own class; None: the protocol's choice for tests."""

PARAS: Final = (2000, 2001, 2002)
"""The paras of a chain that names none."""

BALANCE: Final = 10**15
"""Free balance of each para's account that is given none, in the smallest unit of the token: enough for any preset's deposits."""

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
"""The calls on a context that are counted and can be made to fail."""


class HarnessFault(Exception):
    """What `Harness.fail_at` makes a context call raise: no plugin expects it."""


class Harness:
    """A chain whose upward messages go to the handlers of ``plugin``.

    ``plugin`` is a module or object with hooks, or the name of an installed plugin, with ``@version`` where several are installed.
    ``config`` is what a chain's configuration would hold under ``config``. ``paras`` are ids or `Para`s, ``host_configuration`` is a
    preset, limits by name (those that are missing are 0), or the configuration in the class of the protocol; None is the protocol's
    choice. ``balances`` is the free balance of each para's account, by para or one for all, ``block`` the first block. A message may use
    ``weight_max`` (None: the weight of a whole round), and a handler ``seconds_max``. ``protocol`` is the chain's rule set;
    an ``unlimited`` chain keeps no ledger: it only tracks what is reserved.

    Raises `PluginError` for whatever is wrong with the plugin, its configuration or the protocol's plugin, then `UserError` for a protocol
    without a bench, for an unknown preset or limit, for a configuration that dispatches nothing, for a balance of a para that is not there.
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
            raise PluginError([Problem(str(self.plugin), conflict, "mend the plugin") for conflict in conflicts])
        self.calls = 0
        """Context calls of the last message."""
        self.call_names: list[str] = []
        """Their names."""
        self.call_weights: list[Weight] = []
        """Weight that the message had used after each of them."""
        self.channel_events: list[ChannelEvent] = []
        """What the last block told about channels."""
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
        self._rules = self._protocol.genesis(settings)
        self._next_block = block

    # --- what happens ---

    def send(self, payload: bytes, para: ParaId = PARAS[0], block: BlockNumber | None = None) -> Dispatch:
        """Let a para send an upward message in a block of its own, and return what became of it.

        ``block`` is the next one unless it is given. Raises `UserError` for a block that has been, for a para that is not valid, and
        where messages of earlier blocks still wait; `HandlerFault` where the job would stop.
        """
        if self._bench.waits(self._rules):
            raise UserError("messages of earlier blocks wait: run_block() first")
        (dispatch,) = self.send_all([(para, payload)], block)
        return dispatch

    def send_all(self, messages: Sequence[tuple[ParaId, bytes]], block: BlockNumber | None = None) -> list[Dispatch]:
        """Let paras send upward messages in one block, and return what its round dispatched; what the round's weight leaves over waits.

        Raises as `send` does.
        """
        valid = self.paras
        for para, _ in messages:
            if para not in valid:
                raise UserError(f"para {para} is not valid, there are {', '.join(map(str, valid))}")
        self._begin(block)
        for para, payload in messages:
            self._bench.send(self._rules, para, payload)
        try:
            dispatches = self._rules.dispatch()
        finally:
            self._fail_at = None
        self.channel_events = self._rules.end_block()
        return dispatches

    def run_block(self, block: BlockNumber | None = None) -> list[Dispatch]:
        """Run a block without messages of its own, and return what its round dispatched of those that wait."""
        return self.send_all([], block)

    def change_session(
        self,
        *,
        outgoing: Iterable[ParaId] = (),
        onboarding: Iterable[ParaId | Para] = (),
        new_config: Mapping[str, int] | None = None,
        block: BlockNumber | None = None,
    ) -> list[ChannelEvent]:
        """Change the session in a block of its own, and return what happened to channels; ``new_config`` holds limits by name."""
        changes = tuple(sorted((new_config or {}).items()))
        self._begin(block)
        self._rules.change_session(SessionChange(tuple(outgoing), tuple(map(_para, onboarding)), changes))
        self.channel_events = self._rules.end_block()
        return self.channel_events

    def fail_at(self, call: int) -> None:
        """Make the ``call``-th context call of the next message, counted from 1, raise `HarnessFault` once it is carried out."""
        if call < 1:
            raise UserError(f"fail_at: expected a call from 1 on, found {call}")
        self._fail_at = call

    def limit_weight(self, weight_max: Weight | None) -> None:
        """Let every message from now on use ``weight_max``, as a chain does whose configuration changes; restarts."""
        self._weight_max = weight_max
        self.restart()

    def restart(self) -> None:
        """Go on from the encoded state with new handlers, as a job does that is started again.

        The plugin's module stays imported. Raises ``AssertionError`` where what is restored is another state.
        """
        before, root = pages(self._rules), self.state_root
        self.handlers = handlers_of(self.plugin, self._values)
        self._dispatcher = self._make_dispatcher()
        self._rules = self._protocol.restore(
            before, ChainSettings(upward_messages=self._dispatcher, rules=self._protocol.rules)
        )
        assert pages(self._rules) == before, "the restored state encodes to other pages"
        assert self.state_root == root, "the restored state has another root"

    # --- what there is ---

    @property
    def block(self) -> BlockNumber:
        """The block that the next message comes in."""
        return self._next_block

    @property
    def paras(self) -> tuple[ParaId, ...]:
        """The valid paras, ascending."""
        return tuple(self._bench.paras(self._rules))

    @property
    def state(self) -> dict[bytes, bytes]:
        """What the plugin keeps, by key, ascending."""
        assert self._protocol.handler_states is not None
        entries = self._protocol.handler_states(self._rules).entries(self.plugin.manifest.name)
        return {key: value for _, key, value in entries}

    @property
    def state_root(self) -> Hash:
        """The root over the whole chain's state."""
        return self._rules.state_root()

    def balance(self, para: ParaId) -> Balance:
        """Return the free balance of a para's account, in the smallest unit of the token."""
        return int(self._bench.account(self._rules, para).free)

    def reserved(self, para: ParaId) -> Balance:
        """Return the deposits that are held back on a para's account, in the smallest unit of the token."""
        return int(self._bench.account(self._rules, para).reserved)

    def downward(self, para: ParaId) -> list[bytes]:
        """Return the downward messages that wait for a para, oldest first."""
        return self._bench.downward(self._rules, para)

    @property
    def channels(self) -> dict[ChannelId, Any]:
        """The open channels by (sender, recipient), ascending; copies."""
        return self._bench.channels(self._rules)

    @property
    def open_requests(self) -> dict[ChannelId, Any]:
        """The requests for channels by (sender, recipient), ascending; copies."""
        return self._bench.open_requests(self._rules)

    @property
    def close_requests(self) -> list[ChannelId]:
        """The channels that somebody asked to close, ascending."""
        return self._bench.close_requests(self._rules)

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
        """Return a class of contexts whose calls this harness counts, and lets fail."""
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
                raise HarnessFault(f"told to fail at call {number} ({name})")
            return returned

        call.__name__ = name
        call.__doc__ = plain.__doc__
        return call


def resolve_plugin(plugin: Any) -> Plugin:
    """Return a plugin of handlers: loaded already, by its module or object, or by name with or without ``@version``.

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
    hook = getattr(plugin, "validator_manifest", None)
    manifest = hook() if callable(hook) else None
    name, version = (manifest.name, manifest.version) if isinstance(manifest, Manifest) else ("plugin", "0")
    where = getattr(plugin, "__name__", None) or type(plugin).__qualname__
    file = getattr(plugin, "__file__", None) or where
    return register(Found("validator.handlers", name, where, name, version, file), plugin)


def _bench(name: str) -> tuple[ProtocolDefinition, HandlerBench]:
    protocol = make_runtime(RuntimePlan(name)).protocol
    if protocol.handler_bench is None:
        raise UserError(f"protocol {name!r} has no bench on which handlers could be tested")
    return protocol, protocol.handler_bench


def _configuration(given: HostConfiguration, protocol: ProtocolDefinition, bench: HandlerBench) -> Any:
    """Return a chain's limits in the class of its protocol. Raises `UserError`."""
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
