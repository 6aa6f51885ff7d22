# SPDX-License-Identifier: Apache-2.0
"""`validator plugins list|show|check|lock|pack|new`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Column, Table
from rich.text import Text

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, print_json, say
from validator.cli.progress import working
from validator.cli.table import VisibleConsole, print_table, several
from validator.config import Config, load_config
from validator.errors import UserError
from validator.plugin.lock import Lock, check_lock, check_versions, distribution_digest, read_lock, write_lock
from validator.plugin.pack import check_artefact, pack, use_artefacts
from validator.plugin.protocol_api import ProtocolDefinition
from validator.plugin.registry import (
    Found,
    Plugin,
    PluginError,
    Problem,
    canonical,
    configure,
    discover,
    handlers_of,
    load,
    load_all,
    protocols_of,
    transports_of,
)
from validator.plugin.scaffold import KINDS, new_project
from validator.visible import printable_lines

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",  # the default would take [plugins] for markup
    help="List, show, check, lock and pack plugins; start a new one.",
)

LOCK: Path = Path("plugins.lock")
"""The lock's path if the configuration has none."""


@app.command("list")
def list_(config_path: ConfigPath = None, as_json: Json = False) -> None:
    """List every installed plugin with what it provides, or why it cannot be used."""
    with working("loading every plugin"):
        rows = _rows(_config(config_path))
    if as_json:
        print_json(*rows)
        return
    table = _table("plugin", "group", "provides", "distribution", "state")
    for row in rows:
        cells = (
            f"{row['name']}@{row['version']}" if row["version"] else row["name"],
            row["group"].removeprefix("validator."),
            several(row["provides"]) or row["note"] or "",
            several([row["distribution"], row["distribution_version"]]),
            "ok" if not row["problems"] else "; ".join(row["problems"]),
        )
        table.add_row(*map(_cell, cells))
    print_table(table)


def _rows(config: Config) -> list[dict[str, Any]]:
    from validator.transports.runner import shipped_transports  # imports the client of Kafka

    lock = None if config.plugins.lock is None else read_lock(Path(config.plugins.lock))
    return rows_of(discover(), config, shipped_transports(config), lock)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A plugin's name, or name@version.")],
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show a plugin in full: its files, what it provides, its configuration, and the chains that use it.

    Exit code 1 if it has a problem.
    """
    config = _config(config_path)
    wanted, _, version = name.partition("@")
    with working("loading every plugin"):
        every = _rows(config)
        rows = [row for row in every if row["name"] == wanted]
    if version:
        rows = [row for row in rows if row["version"] == version]
    if not rows:
        known = ", ".join(sorted({row["name"] for row in every})) or "none"
        raise UserError(f"plugin {name!r} is not installed; installed are {known}")
    if as_json:
        print_json(*rows)
    else:
        for row in rows:
            sys.stdout.write(printable_lines("\n".join(describe(row))) + "\n")
    if any(row["problems"] for row in rows):
        raise typer.Exit(exit_codes.DISAGREEMENT)


@app.command()
def check(
    distribution: Annotated[str, typer.Argument(help="An installed distribution, a wheel or a source folder.")],
    as_json: Json = False,
) -> None:
    """Check the plugins of a distribution as their authors' contract tests do. Exit code 1 if a point fails."""
    from validator.testing.check import Outcome, check_distribution

    with working(f"checking {distribution}"):
        results = check_distribution(distribution, say)
    failed = [result for result in results if result.outcome == Outcome.FAILED]
    if as_json:
        print_json(
            *(
                {"plugin": each.plugin, "point": each.point, "outcome": each.outcome.value, "detail": each.detail}
                for each in results
            )
        )
    else:
        table = _table("plugin", "outcome", "point, with its detail")
        for each in results:
            details = [line for line in each.detail.splitlines() if line.strip()]
            if VisibleConsole().is_terminal:
                points = ["\n".join([each.point, *(f"  {line}" for line in details)])]
            else:  # a line for each finding, so that one can be found by its plugin
                points = [f"{each.point}, {line.strip()}" for line in details] or [each.point]
            for point in points:
                table.add_row(*map(_cell, (each.plugin, each.outcome.value, point)))
        print_table(table)
    if failed:
        raise typer.Exit(exit_codes.DISAGREEMENT)


@app.command()
def lock(
    config_path: ConfigPath = None,
    every: Annotated[bool, typer.Option("--all", help="Lock every installed plugin, used or not.")] = False,
    as_json: Json = False,
) -> None:
    """Write plugins.lock: the plugins that the configuration uses, with the digests of their files.

    The file is the one that `lock` in `[plugins]` names, or else ./plugins.lock. It lists every installed version of a plugin that is used.
    """
    config = _config(config_path)
    use_artefacts(config.plugins.artefacts)
    found = discover()
    if not every:
        if not config.chains and not config.transports:
            raise UserError("no chain is configured: expected a table [chains.<lane>] that uses plugins, or --all")
        used = {("validator.transports", name) for name in config.transports}
        used |= {("validator.protocols", chain.protocol) for chain in config.chains.values()}
        used |= {("validator.handlers", use.name) for chain in config.chains.values() for use in chain.handlers or ()}
        absent = sorted(used - {(each.group, each.name) for each in found})
        if absent:
            names = ", ".join(f"{name} (group {group})" for group, name in absent)
            raise UserError(f"the configuration uses plugins that are not installed: {names}")
        found = [each for each in found if (each.group, each.name) in used]
    path = LOCK if config.plugins.lock is None else Path(config.plugins.lock)
    with working("reading the plugins' files"):
        plugins, problems = load_all(found)
        if problems:
            raise PluginError(problems)
        entries = write_lock(path, plugins)
    if as_json:
        print_json(*(entry._asdict() for entry in entries))
    else:
        for entry in entries:
            typer.echo(
                f"{entry.name}@{entry.version}  {entry.sha256 or 'installed in editable mode: only its version is locked'}"
            )
    say(f"{path} lists {len(entries)} plugins" + ("" if config.plugins.lock else "; set [plugins] lock to enforce it"))


@app.command("pack")
def pack_(
    distribution: Annotated[str, typer.Argument(help="An installed distribution, a wheel or a source folder.")],
    output: Annotated[Path, typer.Option(help="The folder to write the file to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Pack a distribution into a file that Spark's workers can import. List the file in `artefacts` of `[plugins]`."""
    with working(f"building {distribution}"):
        packed = pack(distribution, output)
    if as_json:
        print_json({"path": str(packed.path), "needs": list(packed.needs)})
    else:
        typer.echo(str(packed.path))
    for name in packed.needs:
        say(f"it also needs {name}: run `validator plugins pack {name}` if workers do not have it")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The plugin's name as chains will use it: a-z 0-9 -.")],
    kind: Annotated[str, typer.Option(help=f"The kind of plugin: {', '.join(KINDS)}.")],
    output: Annotated[Path, typer.Option(help="The folder in which to create the project's folder.")] = Path(),
) -> None:
    """Start a project: a working plugin with tests and a README, ready to be extended."""
    paths = new_project(name, kind, output)
    for path in paths:
        typer.echo(str(path))
    folder = Path(os.path.commonpath(paths))
    say(f"next: pip install -e {folder}, then validator plugins check {folder}; {folder / 'README.md'} says more")


def _config(path: Path | None) -> Config:
    """Return the configuration and put its artefacts on the path; report those that cannot be used and skip them."""
    config = load_config(path)
    usable = []
    for artefact in config.plugins.artefacts:
        try:
            check_artefact(Path(artefact).absolute())
            usable.append(artefact)
        except UserError as error:
            say(f"validator: {error}")
    use_artefacts(usable)  # together, so that the first one comes first, as in the job
    return config


def _table(*headings: str) -> Table:
    """Return a table that fits 80 columns, unless names are very long: only its last column wraps."""
    columns = [Column(heading, no_wrap=True) for heading in headings]
    columns[-1].no_wrap = False
    columns[-1].overflow = "fold"
    return Table(*columns, box=None, padding=(0, 1, 0, 0))


def _cell(text: str) -> Text:
    """Return a cell of a table without markup: a distribution's author has written it."""
    return Text(printable_lines(text))


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
