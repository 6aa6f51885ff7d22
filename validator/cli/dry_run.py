# SPDX-License-Identifier: Apache-2.0
"""`validator dry-run`: what would a lane say to a record now?"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Group
from rich.text import Text

from validator import exit_codes
from validator.ask.dry_run import KINDS, ask, document_of
from validator.ask.standings import standing_of_checkpoint, standing_of_file, unused, with_limits_of_file
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
from validator.config.explain import chain_of
from validator.config.load import DEFAULT_PATH
from validator.core.outcomes import InputKind
from validator.core.rules import in_force
from validator.errors import UserError
from validator.history.what_if import UNCHANGED, Changes, read_limits
from validator.plugin.pack import use_artefacts
from validator.plugin.rule_choice import profile_of
from validator.plugin.rule_pages import RuleReferences, RulesPage, Sort, installed_pages
from validator.sentences import why_of
from validator.strict_json import JsonRefused, read_json
from validator.visible import printable

if TYPE_CHECKING:
    from validator.ask.dry_run import Standing
    from validator.config import Config

UNUSED_MAX: Final = 3
"""Limits that a note names."""

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
    rules: Annotated[
        str | None,
        typer.Option(metavar="PROFILE", help="Judge by these rules: a profile that `validator rules list` names."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="LIMIT=N", help="Judge by this limit. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Ask what a lane would say to a record, and how much headroom would be left; nothing is sent.

    The lane's state is that after the job's last committed batch; the job may be running. A candidate's violations are all listed, in the
    order of the checks: the lane rejects it for the first. The record's lane, block and index may be left out; the block is then the next
    one. Exit code 0 if the record would be accepted, 1 if not. A note on standard error says if nobody has registered a candidate's para.

    The limits and rules are those that the lane runs with, and with --state those of the configuration; limits that
    `validator state show --json` wrote into the file go before them. A line of each answer names them.
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
    changes = Changes(rules, read_limits(set_ or ()))
    with terminated_as_interrupted(), working("reading the state"):
        standing, origin = _standing(config, lane, state, changes, str(config_path or DEFAULT_PATH))
    configured = changes.made(config, lane).chains.get(lane) if lane in config.chains else None
    registered = frozenset(
        standing.view.paras(standing.rules.state)
    )  # before the record is enacted: it may add to what the state mentions
    try:
        answer = document_of(ask(standing, kind, document))
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    answer |= {"limits_of": origin.limits, "rules_of": origin.rules, "rules": _profile(standing, answer["block"])}
    pages, _ = installed_pages([standing.protocol.name])
    references = RuleReferences(pages)
    for each in answer["errors"]:
        each["rule"] = references.of(each["kind"], each["clause"], standing.protocol.name)
    if as_json:
        print_json(answer)
    else:
        print_table(_tables(answer, pages))
    if words := unused(standing, configured, answer["block"]) if configured is not None else []:
        more = f" and {len(words) - UNUSED_MAX} more" if len(words) > UNUSED_MAX else ""
        say(
            f"note: {config_path or DEFAULT_PATH} has limits or rules that are not used: {', '.join(words[:UNUSED_MAX])}{more}; "
            "--set LIMIT=N and --rules PROFILE ask about others"
        )
    if answer["kind"] == InputKind.CANDIDATE and answer["para_id"] not in registered:
        say(_unregistered(answer, standing.protocol.name, pages))
    raise typer.Exit(exit_codes.OK if answer["ok"] else exit_codes.DISAGREEMENT)


class _Origin(NamedTuple):
    """Whose limits and rules judge."""

    limits: str
    rules: str


def _standing(config: Config, lane: str, state: Path | None, changes: Changes, name: str) -> tuple[Standing, _Origin]:
    """Return the state that is asked, and whose limits and rules apply; ``name`` is the configuration's. Raises `UserError`."""
    if state is not None:
        own = with_limits_of_file(config, lane, state)
        standing = standing_of_file(changes.made(own or config, lane), lane, state)
        limits, listed = name if own is None else str(state), name
    else:
        if changes != UNCHANGED:
            chain_of(config.chains, lane)
            config = changes.made(config, lane)
        standing = standing_of_checkpoint(config, lane, changes.limits, rules=changes.rules is not None)
        limits = listed = f"lane {lane} as executed at block {standing.executed_block}"
    changed = [f"{limit}={value}" for limit, value in changes.limits.items()]
    return standing, _Origin(", ".join([limits, *changed]), listed if changes.rules is None else "--rules")


def _profile(standing: Standing, block: int) -> str | None:
    """Return the profile of the rules that judge a block, None if the protocol has one set of rules."""
    profiles = standing.protocol.rule_profiles
    if profiles is None:
        return None
    return profile_of(profiles, profiles.features_of(in_force(standing.rules.settings.rules, block).version))


def _judged_by(answer: dict[str, Any]) -> str:
    limits, rules = answer["limits_of"], answer["rules_of"]
    profile = "" if answer["rules"] is None else f", {answer['rules']}"
    return f"limits and rules: {limits}{profile}" if limits == rules else f"limits: {limits}; rules: {rules}{profile}"


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


def _sentence(answer: dict[str, Any], error: dict[str, Any], pages: Iterable[RulesPage]) -> str:
    """Return why a record would be rejected, and what to do then, in sentences; empty if the error's page has none."""
    entries = (
        each for page in pages for each in page.entries if each.sort is Sort.ERROR and each.name == error["kind"]
    )
    entry = next((each for each in entries if each.says), None)
    said = why_of(entry, {"para_id": answer["para_id"], "error": error})
    return " ".join(filter(None, (said.text, said.then))) if entry is not None else ""


def _tables(answer: dict[str, Any], pages: Iterable[RulesPage]) -> Group:
    title = f"{answer['lane']} · {answer['kind']} of para {answer['para_id']} in block {answer['block']}"
    where = f"on the state after block {answer['executed_block']}"
    errors = answer["errors"]
    if not errors:
        said = "accepted"
    elif answer["complete"]:
        said = f"rejected: {len(errors)} violation{'s' if len(errors) > 1 else ''}, the lane names the first"
    else:
        said = "rejected: the first violation; there may be others"
    parts: list[Any] = [Text(f"{title}, {where}"), Text(f"  {_judged_by(answer)}"), Text(f"  {said}")]
    if errors:
        table = table_of("violation", "broken clause")
        for error in errors:
            table.add_row(*cells((why(error), error["clause"])))
        sentences = dict.fromkeys(_sentence(answer, error, pages) for error in errors)
        parts += [Text(""), table, *(Text(f"  {printable(each)}") for each in sentences if each)]
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
