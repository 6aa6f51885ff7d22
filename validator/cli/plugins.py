# SPDX-License-Identifier: Apache-2.0
"""`validator plugins list|show|check|lock|pack|new`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, say
from validator.cli.plugin_rows import describe, rows_of
from validator.cli.progress import working
from validator.cli.table import VisibleConsole, print_table, several
from validator.config import Config, load_config
from validator.errors import UserError
from validator.plugin.lock import read_lock, write_lock
from validator.plugin.pack import check_artefact, pack, use_artefacts
from validator.plugin.registry import PluginError, discover, load_all
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
        _print_json(rows)
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
        _print_json(rows)
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
        _print_json(
            [
                {"plugin": each.plugin, "point": each.point, "outcome": each.outcome.value, "detail": each.detail}
                for each in results
            ]
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
        _print_json([entry._asdict() for entry in entries])
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
        _print_json([{"path": str(packed.path), "needs": list(packed.needs)}])
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


def _print_json(rows: list[dict[str, Any]]) -> None:
    sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
