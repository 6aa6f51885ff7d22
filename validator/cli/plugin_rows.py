# SPDX-License-Identifier: Apache-2.0
"""The rows of `validator plugins`: one for each entry point, also for plugins that cannot be used."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from itertools import zip_longest
from typing import Any, TypeAlias

from validator.config import Config
from validator.errors import UserError
from validator.plugin.lock import Lock, check_lock, check_versions, distribution_digest
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import (
    Found,
    Plugin,
    PluginError,
    Problem,
    canonical,
    configure,
    handlers_of,
    load,
    protocols_of,
    transports_of,
)

Row: TypeAlias = dict[str, Any]

NEEDS_CONFIGURATION = "needs a configuration"


def rows_of(
    found: Iterable[Found], config: Config, shipped: Iterable[Plugin] = (), lock: Lock | None = None
) -> list[Row]:
    """Return a row for each entry point and each ``shipped`` plugin, which has none, sorted by group and name.

    ``problems`` is a list of lines, empty if there is none; with a ``lock`` also what keeps a plugin from running under it.
    """
    loaded: list[tuple[Found, Plugin | None, list[str]]] = [(each, *_load(each)) for each in found]
    loaded += [(plugin.found, plugin, []) for plugin in shipped]
    loaded.sort(key=lambda each: (each[0].group, each[0].name))
    versions: dict[tuple[str, str, str], list[Plugin]] = {}
    for _, plugin, _ in loaded:
        if plugin is not None:
            identity = plugin.found.group, plugin.manifest.name, plugin.manifest.version
            versions.setdefault(identity, []).append(plugin)
    rows = []
    for each, plugin, problems in loaded:
        version = None if plugin is None else plugin.manifest.version
        row = {**_plain(each), **_unknown(), "problems": problems, "used_by": _uses(each, version, config)}
        if lock is not None:
            row["problems"] += _lock_problems(row, each, plugin, lock)
        if plugin is not None:
            manifest = plugin.manifest
            same = [other for other in versions[each.group, manifest.name, manifest.version] if other is not plugin]
            problems += [f"{other} has the same name and version" for other in same]
            row |= {
                "version": manifest.version,
                "api": ".".join(map(str, manifest.api_version)),
                "file": plugin.found.file,
                "configuration": _configuration(plugin),
            }
            _provide(row, plugin, config)
        rows.append(row)
    return rows


def describe(row: Row) -> Iterator[str]:
    """Yield the lines of `validator plugins show`."""
    yield f"{row['name']}{'@' + row['version'] if row['version'] else ''}  ({row['group']}, API {row['api'] or 'unknown'})"
    yield f"  distribution   {row['distribution']} {row['distribution_version']}"
    yield f"  entry point    {row['entry_point']} = {row['value']}"
    yield f"  file           {row['file']}"
    yield f"  sha256         {row['sha256'] or row['sha256_note']}"
    for line in row["problems"]:
        yield f"  problem        {line}"
    for detail in row["details"]:
        yield f"  {'provides':<14} " + ", ".join(f"{key} {value}" for key, value in detail.items())
    if row["note"]:
        yield f"  provides       {row['note']}"
    for key in row["configuration"]:
        default = "required" if key["required"] else f"default {'none' if key['default'] == 'None' else key['default']}"
        yield f"  configuration  {key['name']}: {key['type']}, {default}"
    for use in row["used_by"]:
        since = f" from block {use['from_block']}" if use["from_block"] else ""
        until = "" if use["before_block"] is None else f" to block {use['before_block'] - 1}"
        version = f", version {use['version']}" if use["version"] else ""
        values = f", {canonical(use['config'])}" if use["config"] else ""
        yield f"  used by        {use['table']}{since}{until}{version}{values}"


def _load(found: Found) -> tuple[Plugin | None, list[str]]:
    try:
        return load(found), []
    except PluginError as error:
        return None, _lines(error.problems)


def _lock_problems(row: Row, found: Found, plugin: Plugin | None, lock: Lock) -> list[str]:
    """Return why a plugin may not run under a lock; one that nothing uses need not be in it."""
    if not row["used_by"] and all((entry.group, entry.name) != (found.group, found.name) for entry in lock):
        return []
    return _lines(check_lock(lock, [found]) or ([] if plugin is None else check_versions(lock, [plugin])))


def _lines(problems: Iterable[Problem]) -> list[str]:
    return [f"{problem.what}: {problem.hint}" for problem in problems]


def _plain(found: Found) -> Row:
    try:
        digest, note = distribution_digest(found.distribution), "none: installed in editable mode"
    except UserError as error:
        digest, note = None, str(error)
    return {
        "name": found.name,
        "group": found.group,
        "entry_point": found.entry_name,
        "value": found.value,
        "distribution": found.distribution,
        "distribution_version": found.distribution_version,
        "file": found.file,
        "sha256": digest,
        "sha256_note": None if digest else note,
    }


def _unknown() -> Row:
    return {"version": None, "api": None, "provides": [], "details": [], "note": None, "configuration": []}


def _configuration(plugin: Plugin) -> list[Row]:
    kind = plugin.manifest.config_type
    return [] if kind is None else [_key(field) for field in fields(kind)]


def _key(field: Field[Any]) -> Row:
    kind = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    required = default is MISSING
    return {"name": field.name, "type": kind, "required": required, "default": None if required else repr(default)}


def _provide(row: Row, plugin: Plugin, config: Config) -> None:
    """Add what a plugin provides, under its first configuration, or under its defaults if it has none."""
    given = _given(plugin, config)
    values = "{}" if given is None else given
    if plugin.found.group != "validator.protocols" and given is None:
        try:
            configure(plugin, values)
        except PluginError:
            row["note"] = NEEDS_CONFIGURATION
            return
    try:
        row["details"] = _details(plugin, values)
    except PluginError as error:
        row["problems"] += _lines(error.problems)
    row["provides"] = [next(iter(detail.values())) for detail in row["details"]]


def _given(plugin: Plugin, config: Config) -> str | None:
    name, version = plugin.manifest.name, plugin.manifest.version
    if plugin.found.group == "validator.transports":
        return canonical(config.transports[name]) if name in config.transports else None
    for chain in config.chains.values():
        for use in chain.handlers or ():
            if use.name == name and not use.removed and use.version in (None, version):
                return canonical(use.config)
    return None


def _details(plugin: Plugin, values: str) -> list[Row]:
    if plugin.found.group == "validator.handlers":
        handlers = sorted((bound.handler for bound in handlers_of(plugin, values)), key=lambda handler: handler.kind)
        return [
            {
                "kind": handler.kind,
                "prefix": handler.prefix.hex() or "none",
                "weight": handler.weight.base,
                "per_byte": handler.weight.per_byte,
                "payload_bytes_max": handler.payload_bytes_max,
            }
            for handler in handlers
        ]
    if plugin.found.group == "validator.protocols":
        protocols = sorted(protocols_of(plugin), key=lambda protocol: protocol.name)
        return [{"protocol": protocol.name, "rules_version": _rules_of(protocol)} for protocol in protocols]
    transports = sorted(transports_of(plugin, values), key=lambda transport: transport.name)
    return [{"transport": transport.name, "topics": " ".join(transport.topics) or "none"} for transport in transports]


def _uses(found: Found, version: str | None, config: Config) -> list[Row]:
    """Return the configuration's tables that use the plugin, with their blocks; for a loaded plugin only uses of its version.

    A transport's configuration is omitted, since it may contain secrets.
    """
    if found.group == "validator.transports":
        return [_use(f"transports.{found.name}")] if found.name in config.transports else []
    if found.group == "validator.protocols":
        return [_use(f"chains.{lane}") for lane, chain in sorted(config.chains.items()) if chain.protocol == found.name]
    uses: list[Row] = []
    for lane, chain in sorted(config.chains.items()):
        own = sorted((use for use in chain.handlers or () if use.name == found.name), key=lambda use: use.from_block)
        for use, after in zip_longest(own, own[1:]):
            if not use.removed and (version is None or use.version in (None, version)):
                more = {
                    "from_block": use.from_block,
                    "before_block": after.from_block if after else None,
                    "version": use.version,
                    "config": use.config,
                }
                uses.append(_use(f"chains.{lane}") | more)
    return uses


def _use(table: str) -> Row:
    return {"table": table, "from_block": 0, "before_block": None, "version": None, "config": {}}


def _rules_of(protocol: ProtocolDefinition) -> str:
    first, *later = protocol.rules
    return " ".join([str(first.version), *(f"{epoch.version} from block {epoch.from_block}" for epoch in later)])
