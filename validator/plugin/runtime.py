# SPDX-License-Identifier: Apache-2.0
"""The frozen set-up that judges a chain: its protocol, its handlers by height, and a digest of everything that decides a verdict.

A `RuntimePlan` consists of plain values and travels with the job's plan. Each process makes its own `Runtime` from the plan and the plugins
installed there. A process that gets another digest has other plugins and refuses to work.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import version as version_of
from itertools import pairwise
from typing import Any, NamedTuple

from validator import __version__
from validator.codec.codec import Codec, RecordChecks
from validator.core.handlers.dispatch import DispatchTable, HandlerEpoch, find_conflicts
from validator.core.handlers.handler import BoundHandler
from validator.core.handlers.weights import CALL_WEIGHTS
from validator.core.hashing import blake2b_256
from validator.core.rules import RulesEpoch, in_force
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.plugin.api import LANE_API_VERSION
from validator.plugin.lock import Lock, check_lock, check_versions
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import (
    Plugin,
    PluginError,
    Problem,
    canonical,
    discover,
    find_installed,
    handlers_of,
    protocols_of,
)

LIBRARIES = ("fastavro", "pluggy")
"""Libraries whose version may change a verdict or its encoding."""


class HandlerUse(NamedTuple):
    """A chain's use of a plugin from a block on, until the next use of the same plugin.

    ``version`` is None for the only installed version, and if ``removed`` is set. ``config`` is canonical JSON.
    """

    plugin: str
    version: str | None = None
    from_block: BlockNumber = 0
    config: str = "{}"
    removed: bool = False


class RulesUse(NamedTuple):
    """A chain's use of one version of its protocol's rules from a block on, until the next use."""

    from_block: BlockNumber
    version: int


class RulesOutdated(Exception):
    """A plan names rules that this program does not have."""


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """The plugins and rules that a chain's configuration asks for.

    ``configuration`` is the hex digest of the rest of the configuration. ``handlers`` is None if upward messages are only weighed by a
    table. With a ``lock``, no process runs a plugin that the lock does not name.
    """

    protocol: str
    configuration: str = ""
    handlers: tuple[HandlerUse, ...] | None = None
    lock: Lock | None = None
    rules: tuple[RulesUse, ...] | None = None
    """The rules by height; None for those that the protocol's definition lists."""


class Epoch(NamedTuple):
    """The plugins in force from a block on; ``description`` is the canonical JSON that ``digest`` hashes."""

    from_block: BlockNumber
    digest: bytes
    description: str

    def plugins(self) -> list[str]:
        """Return the plugins in force, as ``name@version``: the protocol's, then the handlers' by name."""
        described = json.loads(self.description)
        protocol, handlers = described["protocol"], described["handlers"]
        return [
            f"{protocol['name']}@{protocol['version']}",
            *(f"{name}@{handlers[name]['version']}" for name in handlers),
        ]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A plan resolved with the plugins installed here. ``epochs`` ascend by block; the first begins at block 0."""

    plan: RuntimePlan
    """The plan with every version filled in that it left open."""
    protocol: ProtocolDefinition
    rules: tuple[RulesEpoch, ...]
    """The protocol's rules by height; the first begin at block 0."""
    handlers: tuple[HandlerEpoch, ...] | None
    epochs: tuple[Epoch, ...]
    codec: Codec
    """For the protocol's records and those that all protocols share."""

    @property
    def digest(self) -> bytes:
        """The digest over all epochs; 32 bytes."""
        return digest_of_all((epoch.from_block, epoch.digest) for epoch in self.epochs)

    @property
    def records(self) -> RecordChecks:
        """The checks for records of a lane under this runtime."""
        return RecordChecks(self.protocol.name, self.protocol.maxima, self.protocol.typed_limits)

    def expect(self, epochs: tuple[Epoch, ...]) -> None:
        """Raise `UserError` if another process resolved the same plan differently."""
        for own, other in zip(self.epochs, epochs, strict=True):
            if own.digest != other.digest:
                differences = "; ".join(_differences(json.loads(other.description), json.loads(own.description)))
                raise UserError(
                    f"this worker's plugins differ from the driver's, from block {own.from_block} on: {differences}"
                )


def digest_of_all(epochs: Iterable[tuple[BlockNumber, bytes]]) -> bytes:
    """Return the digest over all epochs of a runtime, each with its first block and its own digest."""
    return blake2b_256(b"".join(block.to_bytes(4, "little") + digest for block, digest in epochs))


@lru_cache(maxsize=64)
def make_runtime(plan: RuntimePlan) -> Runtime:
    """Load the plugins that a plan names, and freeze them. Raises `PluginError` with all problems found, `RulesOutdated`.

    Plugins that the lock does not allow are reported before anything is imported.
    """
    problems: list[Problem] = _against_lock(plan)
    if problems:
        raise PluginError(problems)
    protocols, wrong = find_installed("validator.protocols", [plan.protocol])
    problems += wrong
    uses_of_all = plan.handlers or ()
    names = {use.plugin for use in uses_of_all}
    handlers, wrong = find_installed("validator.handlers", names)
    problems += wrong
    if plan.lock is not None:
        problems += check_versions(plan.lock, [*protocols.values(), *handlers.values()])
    protocol, protocol_plugin = _protocol(plan, protocols, problems)
    bound = _bind(uses_of_all, handlers, problems)
    rules = () if protocol is None else _rules_of(plan, protocol)
    starts = sorted({0, *(use.from_block for use in uses_of_all), *(epoch.from_block for epoch in rules)})
    tables: list[HandlerEpoch] = []
    epochs: list[Epoch] = []
    for start in starts:
        uses = active(uses_of_all, start)
        here = [each for use in uses for each in bound.get(use, ())]
        conflicts = find_conflicts(sorted(here, key=lambda each: (each.plugin, each.handler.kind)))
        problems += [Problem(f"from block {start} on", conflict, "leave one of them out") for conflict in conflicts]
        if problems:
            continue
        assert protocol is not None
        description = canonical(
            _describe(
                plan,
                protocol,
                in_force(rules, start),
                protocol_plugin,
                {use: _plugin_of(use, handlers) for use in uses},
                here,
            )
        )
        tables.append(HandlerEpoch(start, DispatchTable(here)))
        epochs.append(Epoch(start, blake2b_256(description.encode()), description))
    if problems:
        raise PluginError(list(dict.fromkeys(problems)))
    assert protocol is not None
    codec = Codec.of([protocol])
    plan = replace(plan, rules=tuple(RulesUse(epoch.from_block, epoch.version) for epoch in rules))
    if plan.handlers is None:
        return Runtime(plan, protocol, rules, None, tuple(epochs), codec)
    resolved = tuple(
        use if use.removed else use._replace(version=_plugin_of(use, handlers).manifest.version)
        for use in plan.handlers
    )
    return Runtime(replace(plan, handlers=resolved), protocol, rules, tuple(tables), tuple(epochs), codec)


def codec_of(plans: Iterable[RuntimePlan]) -> Codec:
    """Return one codec for the records of all protocols in the plans. Raises `UserError`."""
    runtimes = {runtime.protocol.name: runtime for runtime in map(make_runtime, plans)}
    if len(runtimes) == 1:
        (runtime,) = runtimes.values()
        return runtime.codec
    return Codec.of(runtime.protocol for runtime in runtimes.values())


def installed_protocol(name: str) -> ProtocolDefinition | None:
    """Return the definition of a protocol, or None if no plugin has its name. Raises `UserError` if its plugin does not work."""
    if all(found.name != name for found in discover("validator.protocols")):
        return None
    return make_runtime(RuntimePlan(name)).protocol


def active(uses: Collection[HandlerUse], block: BlockNumber) -> list[HandlerUse]:
    """Return the uses in force in a block, one per plugin."""
    latest: dict[str, HandlerUse] = {}
    for use in sorted(uses, key=lambda each: (each.plugin, each.from_block)):
        if use.from_block <= block:
            latest[use.plugin] = use
    return [use for use in latest.values() if not use.removed]


def first_difference(one: Collection[HandlerUse], other: Collection[HandlerUse]) -> BlockNumber | None:
    """Return the first block in which two lists of uses mean different handlers, or None."""
    starts = sorted({0, *(use.from_block for use in (*one, *other))})
    for start in starts:
        if [_meaning(use) for use in active(one, start)] != [_meaning(use) for use in active(other, start)]:
            return start
    return None


def first_rules_difference(
    one: Collection[RulesUse], other: Collection[RulesUse], first_block: BlockNumber = 0
) -> BlockNumber | None:
    """Return the first block, from ``first_block`` on, for which two lists mean different rules, None if there is none."""
    starts = sorted({first_block, *(use.from_block for use in (*one, *other) if use.from_block > first_block)})
    return next((start for start in starts if _version_at(one, start) != _version_at(other, start)), None)


def _version_at(uses: Collection[RulesUse], block: BlockNumber) -> int | None:
    versions = [use.version for use in uses if use.from_block <= block]
    return versions[-1] if versions else None


def _meaning(use: HandlerUse) -> tuple[str, str | None, str]:
    return use.plugin, use.version, use.config


def _against_lock(plan: RuntimePlan) -> list[Problem]:
    if plan.lock is None:
        return []
    handlers = {use.plugin for use in plan.handlers or ()}
    found = [each for each in discover("validator.protocols") if each.name == plan.protocol]
    found += [each for each in discover("validator.handlers") if each.name in handlers]
    return check_lock(plan.lock, found)


def _bind(
    uses: Collection[HandlerUse], plugins: Mapping[tuple[str, str], Plugin], problems: list[Problem]
) -> dict[HandlerUse, tuple[BoundHandler, ...]]:
    bound: dict[HandlerUse, tuple[BoundHandler, ...]] = {}
    for one, other in pairwise(sorted(uses, key=lambda each: (each.plugin, each.from_block))):
        if (one.plugin, one.from_block) == (other.plugin, other.from_block):
            problems.append(Problem(one.plugin, f"named twice from block {one.from_block} on", "leave one of them out"))
    for use in uses:
        versions = sorted(version for name, version in plugins if name == use.plugin)
        if not versions or use.removed:
            continue  # a name that no plugin has is already reported
        if use.version is None and len(versions) > 1:
            problems.append(Problem(use.plugin, f"versions {', '.join(versions)} are installed", "give the version"))
            continue
        plugin = plugins.get((use.plugin, use.version or versions[0]))
        if plugin is None:
            problems.append(
                Problem(
                    f"{use.plugin}@{use.version}",
                    f"this version is not installed, found {', '.join(versions)}",
                    "install it, next to the others if they are still needed, as a separate distribution and module",
                )
            )
            continue
        values = use.config
        bound[use] = _collect(problems, lambda plugin=plugin, values=values: handlers_of(plugin, values)) or ()
    return bound


def _protocol(
    plan: RuntimePlan, plugins: Mapping[tuple[str, str], Plugin], problems: list[Problem]
) -> tuple[ProtocolDefinition | None, Plugin | None]:
    if len(plugins) > 1:
        versions = ", ".join(version for _, version in plugins)
        problems.append(Problem(plan.protocol, f"versions {versions} are installed", "leave one of them"))
    for plugin in plugins.values():
        for definition in _collect(problems, lambda plugin=plugin: protocols_of(plugin)) or ():
            if definition.name == plan.protocol:
                return definition, plugin
        problems.append(Problem(str(plugin), f"it yields no protocol {plan.protocol!r}", "fix the plugin"))
    return None, None


def _rules_of(plan: RuntimePlan, protocol: ProtocolDefinition) -> tuple[RulesEpoch, ...]:
    if not plan.rules:
        return protocol.rules
    known = {epoch.version: epoch for epoch in protocol.rules}
    epochs, missing = [], []
    for from_block, version in plan.rules:
        try:
            epochs.append(_epoch(protocol, known, from_block, version))
        except ValueError:
            missing.append(version)
    if missing:
        raise RulesOutdated(
            f"rules of version {', '.join(map(str, missing))}, this program has version {', '.join(map(str, known))}"
        )
    return tuple(epochs)


def _epoch(
    protocol: ProtocolDefinition, known: Mapping[int, RulesEpoch], from_block: BlockNumber, version: int
) -> RulesEpoch:
    if version in known:
        return known[version]._replace(from_block=from_block)
    if protocol.rule_profiles is None:
        raise ValueError(version)
    return protocol.rule_profiles.epoch(from_block, version)


def _collect(problems: list[Problem], make: Any) -> Any:
    try:
        return make()
    except PluginError as error:
        problems += error.problems
        return None


@cache
def _libraries() -> dict[str, str]:
    """Return the versions of Python and of the libraries that matter: they are read from files, and every epoch states them."""
    return {"python": ".".join(platform.python_version_tuple()[:2]), **{name: version_of(name) for name in LIBRARIES}}


def _describe(
    plan: RuntimePlan,
    protocol: ProtocolDefinition,
    rules: RulesEpoch,
    protocol_plugin: Plugin | None,
    plugins: Mapping[HandlerUse, Plugin],
    bound: list[BoundHandler],
) -> dict[str, Any]:
    assert protocol_plugin is not None
    return {
        "validator": __version__,
        "api": list(LANE_API_VERSION),
        "protocol": {
            "name": protocol.name,
            "version": protocol_plugin.manifest.version,
            "rules_version": rules.version,
        },
        "configuration": plan.configuration,
        "call_weights": asdict(CALL_WEIGHTS) if bound else None,
        "libraries": _libraries(),
        "handlers": {
            use.plugin: {
                "version": plugin.manifest.version,
                "distribution": f"{plugin.found.distribution} {plugin.found.distribution_version}",
                "config": json.loads(use.config),
                "kinds": {
                    each.handler.kind: {
                        "prefix": each.handler.prefix.hex(),
                        "decode": each.handler.decode is not None,
                        "base": each.handler.weight.base,
                        "per_byte": each.handler.weight.per_byte,
                        "payload_bytes_max": each.handler.payload_bytes_max,
                    }
                    for each in bound
                    if each.plugin == use.plugin
                },
            }
            for use, plugin in plugins.items()
        },
    }


def _plugin_of(use: HandlerUse, plugins: Mapping[tuple[str, str], Plugin]) -> Plugin:
    return next(
        plugin for (name, version), plugin in plugins.items() if name == use.plugin and use.version in (None, version)
    )


def _differences(driver: Any, worker: Any, path: str = "") -> list[str]:
    if isinstance(driver, dict) and isinstance(worker, dict):
        return [
            difference
            for name in sorted({*driver, *worker})
            for difference in _differences(driver.get(name), worker.get(name), f"{path}.{name}" if path else name)
        ]
    return [] if driver == worker else [f"{path} is {worker!r} here and {driver!r} there"]
