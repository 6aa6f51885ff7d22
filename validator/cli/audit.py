# SPDX-License-Identifier: Apache-2.0
"""`validator audit`: checks a lane's whole recorded history, or compares two deployments."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from validator import exit_codes
from validator.checkpoint.kafka import refuse_missing
from validator.cli.common import (
    ConfigPath,
    Json,
    OneLane,
    kafka_table,
    lane_of,
    print_json,
    say,
    terminated_as_interrupted,
)
from validator.cli.export import emitted_documents, inputs_of
from validator.cli.progress import counting, working
from validator.cli.table import cells, cut_on_terminal, print_table, table_of
from validator.config import load_config
from validator.config.explain import chain_of
from validator.errors import UserError
from validator.history.against import Deployment, compare_deployments, different_settings
from validator.history.audit import FINDINGS_MAX, Finding, Topics
from validator.history.audit import audit as audit_lane
from validator.lanes.configured import configured_codec, job_directory, lane_definition
from validator.lanes.kept_start import changed_keys, kept_starts, start_of
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.ask.state import RestoredState
    from validator.config import Config
    from validator.history.against import Against
    from validator.history.audit import Audit
    from validator.history.emitted import OtherRuntime
    from validator.lanes.definition import LaneDefinition

FINDINGS_SHOWN = 50
"""Faults of a check, or differences, that a table shows."""
CHANGES_SHOWN = 5
"""Keys of a configuration that a note names."""
SUBJECTS_SHOWN = 5
"""Subjects of one line of a table about which the same was found."""
NOTES_SHOWN = 5
"""Notes of a check that a table shows: a lane that is new has a note for each of its channels."""


def audit(
    lane: OneLane = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="OTHER.toml", help="Compare the receipts with another deployment's, instead of checking."),
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, metavar="BLOCKS", help="Check invariants after every BLOCKS blocks.")
    ] = 1,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Read blocks.jsonl, candidates.jsonl and so on from here instead of Kafka."
        ),
    ] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Execute a lane's whole history again, and check everything that it has emitted and stored. The job may be running.

    Checks: every invariant of the protocol after each block; verdicts, dispatches, events and receipts with their state roots on the
    topics; the pages in the checkpoint; records that no block uses; deposits that do not add up; what is left of paras that are gone;
    channels that nobody uses. Exit code 1 if there is a fault. With --records, what was emitted is compared if the folder has
    verdicts.jsonl and so on, as `validator watch TOPIC --json` writes them. With --against: the first block whose receipts two deployments
    do not share, and why.
    """
    if against is not None and records is not None:
        raise UserError("expected --against or --records, found both")
    config = load_config(config_path)
    lane = lane_of(config, lane)
    chain_of(config.chains, lane)
    use_artefacts(config.plugins.artefacts)
    with terminated_as_interrupted():
        if against is not None:
            compared = _against(config, against, lane)
            if as_json:
                print_json(_against_document(compared))
            else:
                print_table(_against_tables(compared, str(against)))
            raise typer.Exit(exit_codes.OK if compared.block is None else exit_codes.DISAGREEMENT)
        result = _audit(config, lane, records, every)
    if result.blocks == 0:
        raise UserError(f"lane {lane}: no block could be executed: {result.failed or result.waits_for}")
    if as_json:
        print_json(*({"lane": lane, **asdict(finding)} for finding in result.findings), _summary(result))
    else:
        print_table(_tables(result))
    raise typer.Exit(exit_codes.OK if not result.faults else exit_codes.DISAGREEMENT)


def _audit(config: Config, lane: str, records: Path | None, every: int) -> Audit:
    definition = lane_definition(config, lane)
    with ExitStack() as stack:
        topics = stored = None
        if records is None:
            topics = Topics(kafka_table(config), config.topics.prefix)
            failing = f"lane {lane}: it cannot be executed again"
            refuse_missing(topics.kafka, topics.prefix, configured_codec(config), definition, failing)
            stored = _stored(config, lane)
        progress = stack.enter_context(counting(f"lane {lane}: executing its history"))
        inputs = inputs_of(config, definition, records, progress)
        emitted = {} if records is None else emitted_documents(records)
        result = audit_lane(inputs, definition, topics=topics, stored=stored, every=every, documents=emitted)
    if result.other_runtime is not None:
        result.notes += 1
        result.findings.insert(0, _other_runtime(config, definition, result.other_runtime))
    return result


def _other_runtime(config: Config, definition: LaneDefinition, found: OtherRuntime) -> Finding:
    """Return the note that the emitted records were made with another runtime, with the keys that the job's kept start has otherwise."""
    try:
        kept = kept_starts(job_directory(config) / "lanes").get(definition.name)
        changes = [] if kept is None else list(changed_keys(kept, start_of(config, definition)))
    except UserError:
        changes = []
    differ = "its program, limits or plugins differ from those of this configuration"
    if changes:
        shown = [f"{each.path} was {each.before}, is {each.now}" for each in changes[:CHANGES_SHOWN]]
        more = [f"and {len(changes) - CHANGES_SHOWN} more keys"] if len(changes) > CHANGES_SHOWN else []
        differ = f"the job began with other keys: {', '.join([*shown, *more])}"
    detail = (
        f"the records were made with another runtime (digest {found.there} in block {found.block}, this configuration gives {found.here}): "
        f"{differ}"
    )
    return Finding("configuration", "runtime", detail, fault=False, block=found.block)


def _stored(config: Config, lane: str) -> RestoredState | None:
    """Return the lane in the checkpoint, or None, with a line that says why, if there is none to read."""
    from validator.ask.state import restore, stored_lanes

    directory = job_directory(config)
    if not (directory / "checkpoint").exists():
        return None
    try:
        with working("reading the checkpoint"), stored_lanes(directory, [lane]) as stored:
            return restore(stored, lane)
    except UserError as error:
        say(f"the checkpoint is left out: {error}")
        return None


def _against(config: Config, path: Path, lane: str) -> Against:
    other = load_config(path)
    own_chain, other_chain = config.chains[lane], chain_of(other.chains, lane, f"{path}: ")
    one = Deployment("own", kafka_table(config), config.topics.prefix)
    two = Deployment(str(path), kafka_table(other), other.topics.prefix)
    if one[1:] == two[1:]:
        raise UserError(
            f"{path}: expected another deployment, found the same Kafka and the same topics.prefix {two.prefix!r}"
        )
    with working("comparing receipts"):
        result = compare_deployments(one, two, lane)
    result.settings = different_settings(own_chain, other_chain)
    if result.compared == 0:
        raise UserError(f"lane {lane}: the two deployments have no receipt of the same block")
    return result


def _summary(result: Audit) -> dict[str, Any]:
    return {
        "lane": result.lane,
        "ok": not result.faults,
        "stopped": result.stopped or None,
        "unused": result.unused,
        "refused": result.refused,
        "records": result.records,
        "blocks": result.blocks,
        "last_block": result.last_block,
        "faults": result.faults,
        "notes": result.notes,
        "checks": result.checks,
        "skipped": result.skipped,
    }


def _tables(result: Audit) -> Group:
    words = "no fault" if not result.faults else f"{result.faults:,} fault{'s' if result.faults > 1 else ''}"
    if not result.faults and "verdicts" in result.skipped:
        words += ", but no emitted verdict was compared"
    parts: list[Any] = [
        Text(f"{result.lane} · {result.blocks:,} blocks up to block {result.last_block} · {result.records:,} records"),
        *([Text(f"  {result.stopped}")] if result.stopped else []),
        *([Text(f"  records that no block takes: {result.refused:,}")] if result.refused else []),
        *(Text(f"  {each.detail}") for each in result.findings[:1] if each.check == "configuration"),
        Text(f"  {words}, {result.notes:,} note{'' if result.notes == 1 else 's'}"),
        Text(""),
    ]
    table = table_of("check", "made", numbers=1)
    for name, times in result.checks.items():
        table.add_row(*cells((name, f"{times:,}")))
    parts.append(table)
    if result.skipped:
        table = table_of(
            "check", "not made, since"
        )  # apart: the longest reason would decide how wide the numbers' column is
        for name, reason in result.skipped.items():
            table.add_row(*cells((name, reason)))
        parts += [Text(""), table]
    if result.findings:
        shown, left_out = _shown(result)
        table = table_of("found by", "block", "about", "what")
        for finding, subjects in _grouped(shown):
            sort = "" if finding.fault else " (note)"
            block = "" if finding.block is None else str(finding.block)
            table.add_row(*cells((f"{finding.check}{sort}", block, subjects, finding.detail)))
        parts += [Text(""), table]
        parts += [Text(f"  and {number:,} more: {check}") for check, number in left_out.items()]
        if left_out:
            parts.append(Text(f"  --json prints the first {FINDINGS_MAX:,}"))
    return Group(*parts)


def _grouped(findings: list[Finding]) -> Iterator[tuple[Finding, str]]:
    """Yield findings with their subjects; those that say the same of several subjects are one."""
    groups: dict[Finding, list[str]] = {}
    for finding in findings:
        groups.setdefault(replace(finding, subject=""), []).append(finding.subject)
    for finding, subjects in groups.items():
        more = len(subjects) - SUBJECTS_SHOWN
        yield finding, ", ".join(subjects[:SUBJECTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shown(result: Audit) -> tuple[list[Finding], dict[str, int]]:
    """Return the findings that the table shows, faults first, and how many more there are of each check."""
    shown: list[Finding] = []
    taken: Counter[tuple[str, bool]] = Counter()
    for finding in sorted(result.findings, key=lambda each: not each.fault):
        sort = finding.check, finding.fault
        if taken[sort] < (FINDINGS_SHOWN if finding.fault else NOTES_SHOWN):
            shown.append(finding)
        taken[sort] += 1
    of_check = Counter(finding.check for finding in shown)
    everything = Counter(finding.check for finding in result.findings)
    return shown, {check: number - of_check[check] for check, number in everything.items() if number > of_check[check]}


def _against_document(result: Against) -> dict[str, Any]:
    return {
        **{name: value for name, value in asdict(result).items() if name not in ("differences", "settings")},
        "ok": result.block is None,
        "differences": [each._asdict() for each in result.differences],
        "settings": [each._asdict() for each in result.settings],
    }


def _against_tables(result: Against, other: str) -> Group:
    compared = f"{result.lane} · {result.compared:,} receipts compared, {result.roots:,} with a state root"
    if result.block is None:
        parts: list[Any] = [Text(f"{compared}: all are equal, up to block {result.last_block}")]
    else:
        since = (
            "no state roots were equal before"
            if result.last_equal_root is None
            else f"the last equal state root is after block {result.last_equal_root}"
        )
        parts = [Text(f"{compared}: block {result.block} is the first that differs; {since}"), Text("")]
        parts.append(_differences(result.differences, other))
        digests = result.digests or ("", "")
        same = digests[0] == digests[1]
        parts += [
            Text(""),
            Text("  runtime digests are equal" if same else f"  runtime digests: own {digests[0]}, other {digests[1]}"),
        ]
    if result.settings:
        parts += [Text(""), Text("configurations differ in"), _differences(result.settings, other)]
    return Group(*parts)


def _differences(differences: Any, other: str) -> Table:
    table = table_of("in", "at", "field", "own", other)
    for each in differences[:FINDINGS_SHOWN]:
        table.add_row(*cells((each.topic, each.place, each.field, _short(each.own), _short(each.other))))
    if len(differences) > FINDINGS_SHOWN:
        table.add_row(f"and {len(differences) - FINDINGS_SHOWN:,} more")
    return table


def _short(value: Any) -> str:
    text = "none" if value is None else value if isinstance(value, str) else json.dumps(value)
    return cut_on_terminal(text, 79)
