# SPDX-License-Identifier: Apache-2.0
"""The command `validator-channel`. Exit codes of `replay`: 0 passed, 1 a failure, 2 a malformed file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from validator_channel import __version__, client_command, form, keys_command, registry_command
from validator_channel.printing import printable
from validator_channel.replay.cases import Case, play, read_cases
from validator_channel.replay.document import DocumentError, Node, read_document
from validator_channel.replay.judge import judge, read_expected
from validator_channel.replay.vectors import check_vectors, skipped

FORMAT: Final = "channel-vectors/1"
FAILED: Final = 1
"""Exit code: something failed."""
MALFORMED: Final = 2
"""Exit code: the file is malformed."""

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(keys_command.app, name="keys")
app.command()(client_command.submit)
app.command()(client_command.watch)
app.command("registry")(registry_command.registry)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"validator-channel {__version__} ({form.name()})")
        raise typer.Exit


@app.callback()
def _commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print version and form, and exit.")
    ] = False,
) -> None:
    """Tools for the protocol Channel."""


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A file of the format channel-vectors/1.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the output as JSON and ignore 'expect'.")] = False,
) -> None:
    """Play traces and recompute vectors, and compare each output with the expected one.

    Exit code 1 if any fails, 2 if the file is malformed.
    """
    try:
        document = read_document(file)
        if document.has("format"):
            document["format"].one_of(FORMAT)
        cases = read_cases(document)
        if as_json:
            typer.echo(json.dumps({"cases": [_output(case) for case in cases]}))
            return
        lines = list(_compare(document, cases))
    except DocumentError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(MALFORMED) from None
    for outcome, text in lines:
        typer.echo(f"{outcome} {text}")
    counts = Counter(outcome for outcome, _ in lines)
    skips = f", {counts['SKIP']} skipped" if counts["SKIP"] else ""
    typer.echo(f"{counts['PASS']} passed, {counts['FAIL']} failed{skips}")
    if counts["FAIL"]:
        raise typer.Exit(FAILED)


def _output(case: Case) -> dict[str, Any]:
    return {"id": case.id, "steps": [outcome.as_json() for outcome in play(case)]}


def _compare(document: Node, cases: list[Case]) -> Iterator[tuple[str, str]]:
    """Yield (PASS, FAIL or SKIP, text) for every entry; every expectation is read before the first trace is played."""
    for name, difference in check_vectors(document):
        yield _line(name, difference)
    for case, expected in [(case, read_expected(case)) for case in cases]:
        yield _line(f"{printable(case.id)} {printable(case.title)}".rstrip(), judge(case, expected, play(case)))
    for name, reason in skipped(document):
        yield "SKIP", f"{name}: {reason}"


def _line(name: str, difference: str | None) -> tuple[str, str]:
    return ("PASS", name) if difference is None else ("FAIL", f"{name}: {difference}")


def main() -> None:
    """Run the command."""
    app()
