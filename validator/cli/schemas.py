# SPDX-License-Identifier: Apache-2.0
"""`validator schemas list|show|check|register`."""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from validator import exit_codes
from validator.cli.common import ConfigPath, print_json
from validator.cli.progress import working
from validator.cli.table import print_table
from validator.codec.compatibility import check_schemas, policy
from validator.codec.schemas import Schema, schemas
from validator.config import load_config
from validator.errors import UserError
from validator.topics import DRY_RUN_TOPICS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.codec.schemas import SchemaSet

app = typer.Typer(add_completion=False, no_args_is_help=True, help="List, show, check and register the Avro schemas.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the schemas of all records, also those of installed plugins, with topic, fingerprint and version."""
    known, topics = _installed()
    order = {topic.name: number for number, topic in enumerate((*TOPICS, *DRY_RUN_TOPICS))}
    rows: list[dict[str, Any]] = [
        {
            "name": schema.name,
            "topic": schema.topic or topics.get(schema.name),
            "fingerprint": schema.fingerprint.hex(),
            "version": schema.version,
            "compatibility": policy(schema),
        }
        for schema in known.current.values()
    ]
    rows.sort(key=lambda row: (order.get(row["topic"], len(order)), row["topic"] or "", row["name"]))
    if as_json:
        print_json(*rows)
        return
    table = Table("record", "topic", "fingerprint", Column("version", justify="right"), box=None)
    for row in rows:
        table.add_row(row["name"], row["topic"] or "", row["fingerprint"], str(row["version"]))
    print_table(table)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(help="A record, with or without its namespace: validator.Verdict, Verdict."),
    ],
    version: Annotated[int | None, typer.Option(help="This version instead of the current one.")] = None,
    canonical: Annotated[
        bool, typer.Option("--canonical", help="Print the Parsing Canonical Form, which the fingerprint is of.")
    ] = False,
) -> None:
    """Print a record's schema."""
    schema = _find(name, version)
    _write(schema.canonical if canonical else json.dumps(schema.source, indent=2))


@app.command()
def check(as_json: Json = False) -> None:
    """Check every schema against its earlier versions. Exit code 1 if one is not compatible."""
    known, _ = _installed()
    problems = check_schemas(known)
    if as_json:
        print_json({"ok": not any(problems.values()), "problems": problems})
    else:
        for name, found in problems.items():
            _write(f"{'FAIL' if found else 'ok  '} {name}: {policy(known[name])}, version {known[name].version}")
            for problem in found:
                _write(f"     {problem}")
    if any(problems.values()):
        raise typer.Exit(exit_codes.DISAGREEMENT)


@app.command()
def register(config_path: ConfigPath = None, as_json: Json = False) -> None:
    """Register the schemas of all records in the schema registry of the configuration, every version in its order.

    A schema that a subject has already is left as it is. A subject that is new gets the compatibility that `schemas list --json` shows. The
    schemas of installed plugins are among them; those of records that only the product itself reads are not.
    """
    from validator.job.schema_ids import records_in
    from validator.job.schema_ids import register as register_in

    config = load_config(config_path)
    if config.schema_registry.url is None:
        raise UserError("schemas register: expected [schema_registry] url, found none")
    table = Table("subject", Column("version", justify="right"), Column("id", justify="right"), "", box=None)
    registered = 0
    with working(f"registering schemas at {config.schema_registry.url}", lambda: f"{registered} by now"):
        for each in register_in(config, records_in(*_installed())):
            registered += 1
            if as_json:
                print_json(each._asdict())
            table.add_row(each.subject, str(each.version), str(each.schema_id), "new" if each.is_new else "")
    if not as_json:
        print_table(table)


def _find(name: str, version: int | None) -> Schema:
    known, _ = _installed()
    by_name = {**_names(known.current), **_names(schemas().current)}
    full = by_name.get(name)
    if full is None:
        close = get_close_matches(name, by_name, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known.current)}"
        raise UserError(f"schema {name!r}: no such record; {hint}")
    if version is None:
        return known[full]
    for schema in known.versions[full]:
        if schema.version == version:
            return schema
    raise UserError(f"schema {full}: expected a version from 1 to {known[full].version}, found {version}")


def _installed() -> tuple[SchemaSet, dict[str, str]]:
    from validator.job.installed import all_schemas

    with working("loading every plugin"):
        return all_schemas()


def _names(current: Iterable[str]) -> dict[str, str]:
    """Return schemas by every ending of their names, at a dot, that only one of them has, and by their full names."""
    full_names = tuple(current)
    by_ending: dict[str, list[str]] = {}
    for full in full_names:
        parts = full.split(".")
        for start in range(1, len(parts)):
            by_ending.setdefault(".".join(parts[start:]), []).append(full)
    return {
        **{ending: found[0] for ending, found in by_ending.items() if len(found) == 1},
        **{full: full for full in full_names},
    }


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
