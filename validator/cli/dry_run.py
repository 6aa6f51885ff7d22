# SPDX-License-Identifier: Apache-2.0
"""`validator dry-run`: what would a lane say to a record now?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.text import Text

from validator import exit_codes
from validator.ask.dry_run import KINDS, ask, document_of
from validator.ask.standings import standing_of_checkpoint, standing_of_file
from validator.cli.common import (
    LINE_BYTES_MAX,
    ConfigPath,
    Json,
    OneLane,
    lane_of,
    opened,
    parse,
    print_json,
    say,
    terminated_as_interrupted,
)
from validator.cli.progress import working
from validator.cli.rows import ROWS, why
from validator.cli.table import cells, print_table, table_of
from validator.config import load_config
from validator.core.outcomes import InputKind
from validator.errors import UserError
from validator.plugin.pack import use_artefacts
from validator.plugin.rule_pages import RuleReferences, RulesPage, installed_pages
from validator.strict_json import JsonRefused, read_json

UNREGISTERED: Final = "The para of a candidate need not be valid"
"""The title of a protocol's reading that candidates of paras that do not exist are judged like all others."""


def dry_run(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="A JSON object as `submit` takes it, or - for standard input.")
    ],
    lane: OneLane = None,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="candidates, channel-requests or downward-messages.")
    ] = "candidates",
    state: Annotated[
        Path | None, typer.Option(metavar="STATE.json", help="Ask this state instead of the job's checkpoint.")
    ] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Ask what a lane would say to a record, and how much headroom would be left; nothing is sent.

    The lane's state is that after the job's last committed batch; the job may be running. A candidate's violations are all listed, in the
    order of the checks: the lane rejects it for the first. The record's lane, block and index may be left out; the block is then the next
    one. Exit code 0 if the record would be accepted, 1 if not. A note on standard error says if nobody has registered a candidate's para.
    """
    if kind not in KINDS:
        raise UserError(f"--kind: expected {', '.join(KINDS)}, found {kind!r}")
    with opened(file) as (stream, name):
        data = stream.read(LINE_BYTES_MAX + 1)
    if len(data) > LINE_BYTES_MAX:
        raise UserError(f"{name}: expected at most {LINE_BYTES_MAX} bytes, found more")
    document = _only_record(data, name)
    config = load_config(config_path)
    lane = lane_of(config, lane)
    use_artefacts(config.plugins.artefacts)
    with terminated_as_interrupted(), working("reading the state"):
        standing = standing_of_checkpoint(config, lane) if state is None else standing_of_file(config, lane, state)
    registered = frozenset(
        standing.view.paras(standing.rules.state)
    )  # before the record is enacted: it may add to what the state mentions
    try:
        answer = document_of(ask(standing, kind, document))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    pages, _ = installed_pages([standing.protocol.name])
    references = RuleReferences(pages)
    for each in answer["errors"]:
        each["rule"] = references.of(each["kind"], each["clause"], standing.protocol.name)
    if as_json:
        print_json(answer)
    else:
        print_table(_tables(answer))
    if answer["kind"] == InputKind.CANDIDATE and answer["para_id"] not in registered:
        say(_unregistered(answer, standing.protocol.name, pages))
    raise typer.Exit(exit_codes.OK if answer["ok"] else exit_codes.DISAGREEMENT)


def _only_record(data: bytes, name: str) -> Any:
    """Return the JSON value of a file with one record, which may have several lines. Raises `UserError`."""
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) > 1:
        with suppress(JsonRefused):
            read_json(lines[0])
            raise UserError(f"{name}: expected one record, found {len(lines)} lines, of which the first is one")
    return parse(data, name)


def _unregistered(answer: dict[str, Any], protocol: str, pages: Iterable[RulesPage]) -> str:
    """Return the note that nobody has registered a candidate's para, with the protocol's reading if it does not check that."""
    note = f"note: para {answer['para_id']} is not registered with lane {answer['lane']} after block {answer['executed_block']}"
    reading = next((each.name for page in pages for each in page.entries if each.title == UNREGISTERED), None)
    if reading is None:
        return note
    return f"{note}; protocol {protocol} judges its candidates all the same (reading {reading}: `validator explain {reading}`)"


def _tables(answer: dict[str, Any]) -> Group:
    title = f"{answer['lane']} · {answer['kind']} of para {answer['para_id']} in block {answer['block']}"
    where = f"on the state after block {answer['executed_block']}"
    errors = answer["errors"]
    if not errors:
        said = "accepted"
    elif answer["complete"]:
        said = f"rejected: {len(errors)} violation{'s' if len(errors) > 1 else ''}, the lane names the first"
    else:
        said = "rejected: the first violation; there may be others"
    parts: list[Any] = [Text(f"{title}, {where}"), Text(f"  {said}")]
    if errors:
        table = table_of("violation", "broken clause")
        for error in errors:
            table.add_row(*cells((why(error), error["clause"])))
        parts += [Text(""), table]
    after = answer["headroom_after"] or [None] * len(answer["headroom"])
    table = table_of("headroom of", "now", *(["after it"] if answer["ok"] else []), "details")
    for now, then in zip(answer["headroom"], after, strict=True):
        _, _, who, left, details = ROWS["headroom"](now)
        if then is None:
            table.add_row(*cells((who, left, details)))
        else:
            _, _, _, left_then, details = ROWS["headroom"](then)
            table.add_row(*cells((who, left, left_then, details)))
    return Group(*parts, Text(""), table)
