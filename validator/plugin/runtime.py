# SPDX-License-Identifier: Apache-2.0
"""What judges a chain, frozen: its protocol, the handlers that hold from each block on, and a digest of all that decides a verdict.

A `RuntimePlan` is plain values and travels with the job's plan; each process makes its own `Runtime` of it from what is installed there.
Where that gives another digest, the process has other plugins, and does not work.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version as version_of
from itertools import pairwise
from typing import Any, NamedTuple

from validator import __version__
from validator.codec.codec import Codec, RecordChecks
from validator.core.handlers.dispatch import DispatchTable, HandlerEpoch, find_conflicts
from validator.core.handlers.handler import BoundHandler
from validator.core.handlers.weights import CALL_WEIGHTS
from validator.core.rules import RulesEpoch, in_force
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.plugin.api import API_VERSION
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
"""Libraries whose version may change what a verdict says or how it is encoded."""

DIGEST_BYTES = 32


class HandlerUse(NamedTuple):
    """A chain's use of a plugin from a block on, until the next use of the same plugin.

    ``version`` is None where the only installed one is meant, and for `REMOVED`; ``config`` is canonical JSON.
    """

    plugin: str
    version: str | None = None
    from_block: BlockNumber = 0
    config: str = "{}"
    removed: bool = False


class RulesUse(NamedTuple):
    """A chain's use of a version of its protocol's rules from a block on, until the next use."""

    from_block: BlockNumber
    version: int


class RulesOutdated(Exception):
    """A plan names rules that this program does not have."""


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """What a chain's configuration asks for.

    ``configuration`` is the hex digest of the rest of it, ``handlers`` is None where upward messages are only weighed by a table. With a
    ``lock`` no other plugins run than it names, in no process.
    """

    protocol: str
    configuration: str = ""
    handlers: tuple[HandlerUse, ...] | None = None
    lock: Lock | None = None
    rules: tuple[RulesUse, ...] | None = None
    """The rules by height; None: those that the protocol's definition lists."""


class Epoch(NamedTuple):
    """What holds from a block on: the description that the digest is of is canonical JSON."""

    from_block: BlockNumber
    digest: bytes
    description: str

    def plugins(self) -> list[str]:
        """Return the plugins that hold, as ``name@version``: the protocol's, then the handlers' by name."""
        described = json.loads(self.description)
        protocol, handlers = described["protocol"], described["handlers"]
        return [
            f"{protocol['name']}@{protocol['version']}",
            *(f"{name}@{handlers[name]['version']}" for name in handlers),
        ]


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a plan means with what is installed here. ``epochs`` ascend by block, the first is from block 0."""

    plan: RuntimePlan
    """With every version that it left open."""
    protocol: ProtocolDefinition
    rules: tuple[RulesEpoch, ...]
    """The protocol's rules by height; the first are those of block 0."""
    handlers: tuple[HandlerEpoch, ...] | None
    epochs: tuple[Epoch, ...]
    codec: Codec
    """For the protocol's records, and those that all protocols share."""

    @property
    def digest(self) -> bytes:
        """32 bytes over everything, all epochs together."""
        whole = b"".join(epoch.from_block.to_bytes(4, "little") + epoch.digest for epoch in self.epochs)
        return blake2b(whole, digest_size=DIGEST_BYTES).digest()

    @property
    def records(self) -> RecordChecks:
        """What the records of a lane under this runtime have to be like."""
        return RecordChecks(self.protocol.name, self.protocol.maxima, self.protocol.typed_limits)

    def expect(self, epochs: tuple[Epoch, ...]) -> None:
        """Raise `UserError` where another process made something else of the same plan."""
        for own, other in zip(self.epochs, epochs, strict=True):
            if own.digest != other.digest:
                differences = "; ".join(_differences(json.loads(other.description), json.loads(own.description)))
                raise UserError(
                    f"this worker's plugins are not those of the driver, from block {own.from_block} on: {differences}"
                )


@lru_cache(maxsize=64)
def make_runtime(plan: RuntimePlan) -> Runtime:
    """Load what a plan names, and freeze it. Raises `PluginError` with everything that is wrong, `RulesOutdated`.

    What a lock does not allow is reported before anything is imported.
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
        epochs.append(Epoch(start, blake2b(description.encode(), digest_size=DIGEST_BYTES).digest(), description))
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
    """Return one codec for the records of all protocols that plans name. Raises `UserError`."""
    runtimes = {runtime.protocol.name: runtime for runtime in map(make_runtime, plans)}
    if len(runtimes) == 1:
        (runtime,) = runtimes.values()
        return runtime.codec
    return Codec.of(runtime.protocol for runtime in runtimes.values())


def installed_protocol(name: str) -> ProtocolDefinition | None:
    """Return the definition of a protocol, None where no plugin has it. Raises `UserError` where its plugin does not work."""
    if all(found.name != name for found in discover("validator.protocols")):
        return None
    return make_runtime(RuntimePlan(name)).protocol


def active(uses: Collection[HandlerUse], block: BlockNumber) -> list[HandlerUse]:
    """Return, by plugin, the uses that hold in a block."""
    latest: dict[str, HandlerUse] = {}
    for use in sorted(uses, key=lambda each: (each.plugin, each.from_block)):
        if use.from_block <= block:
            latest[use.plugin] = use
    return [use for use in latest.values() if not use.removed]


def first_difference(one: Collection[HandlerUse], other: Collection[HandlerUse]) -> BlockNumber | None:
    """Return the first block in which two lists of uses mean different handlers, None if there is none."""
    starts = sorted({0, *(use.from_block for use in (*one, *other))})
    for start in starts:
        if [_meaning(use) for use in active(one, start)] != [_meaning(use) for use in active(other, start)]:
            return start
    return None


def first_rules_difference(one: Collection[RulesUse], other: Collection[RulesUse]) -> BlockNumber | None:
    """Return the first block in which two lists mean different rules, None if there is none."""
    starts = sorted({use.from_block for use in (*one, *other)})
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
            continue  # a name that nothing has is told already
        if use.version is None and len(versions) > 1:
            problems.append(Problem(use.plugin, f"versions {', '.join(versions)} are installed", "give the version"))
            continue
        plugin = plugins.get((use.plugin, use.version or versions[0]))
        if plugin is None:
            problems.append(
                Problem(
                    f"{use.plugin}@{use.version}",
                    f"this version is not installed, found {', '.join(versions)}",
                    "install it, beside the others if they are needed, too",
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
        problems.append(Problem(str(plugin), f"it yields no protocol {plan.protocol!r}", "mend the plugin"))
    return None, None


def _rules_of(plan: RuntimePlan, protocol: ProtocolDefinition) -> tuple[RulesEpoch, ...]:
    if plan.rules is None:
        return protocol.rules
    known = {epoch.version: epoch for epoch in protocol.rules}
    missing = [use.version for use in plan.rules if use.version not in known]
    if missing:
        raise RulesOutdated(
            f"rules of version {', '.join(map(str, missing))}, this program has version {', '.join(map(str, known))}"
        )
    return tuple(known[use.version]._replace(from_block=use.from_block) for use in plan.rules)


def _collect(problems: list[Problem], make: Any) -> Any:
    try:
        return make()
    except PluginError as error:
        problems += error.problems
        return None


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
        "api": list(API_VERSION),
        "protocol": {
            "name": protocol.name,
            "version": protocol_plugin.manifest.version,
            "rules_version": rules.version,
        },
        "configuration": plan.configuration,
        "call_weights": asdict(CALL_WEIGHTS) if bound else None,
        "libraries": {
            "python": ".".join(platform.python_version_tuple()[:2]),
            **{name: version_of(name) for name in LIBRARIES},
        },
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
