# SPDX-License-Identifier: Apache-2.0
"""`validator state show|verify`: shows and verifies a lane's state in the job's checkpoint, while the job may be running."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from validator import exit_codes
from validator.ask.state import (
    about_channel,
    about_para,
    document,
    entries_of_plugin,
    kept_by_plugins,
    plugin_document,
    restore,
    stored_lanes,
)
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
from validator.cli.progress import counting, working
from validator.cli.table import FittedTable, cells, cut_on_terminal, print_table
from validator.config import load_config
from validator.config.explain import chain_of
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.hexadecimal import PREFIX, to_hex
from validator.lanes.configured import configured_codec, definition_beside, job_directory
from validator.plugin.pack import use_artefacts
from validator.plugin.protocol_api import section_title
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from validator.ask.state import RestoredState
    from validator.config import Config
    from validator.core.types import ChannelId, ParaId
    from validator.history.verification import Check
    from validator.lanes.stored import StateExport
    from validator.plugin.protocol_api import StateSection


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Show a lane's state from the job's checkpoint, or verify it against the topics. The job may be running.",
)


@app.command()
def show(
    lane: OneLane = None,
    para: Annotated[
        int | None, typer.Option(min=0, max=U32_MAX, help="Only this para's state, with its channels.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(metavar="S,R", help="Only the channel from para S to para R, with its messages.")
    ] = None,
    plugin: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this plugin's handlers keep.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of a plugin's entries to show; 0: all.")] = 20,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show a lane's state after the job's last committed batch: a summary, one para, one channel, or what a plugin keeps.

    Reading does not disturb a running job. With --json, prints the state keys of the conformance format; for a complete lane this is a
    STATE.json for `validator lanes import`.
    """
    from validator.ask.state import restore

    given = [
        name for name, value in (("--para", para), ("--channel", channel), ("--plugin", plugin)) if value is not None
    ]
    if len(given) > 1:
        raise UserError(f"expected one of --para, --channel and --plugin, found {' and '.join(given)}")
    channel_id = None if channel is None else _channel_id(channel)
    config = load_config(config_path)
    lane = lane_of(config, lane)
    with _stored(config, [lane]) as stored:
        restored = restore(stored, lane, job_directory(config))
    if as_json:
        shown = document(restored, para, channel_id) if plugin is None else plugin_document(restored, plugin, limit)
        print_json(shown)
        return
    if plugin is not None:
        tables = plugin_tables(restored, plugin, limit)
    elif channel_id is not None:
        tables = channel_tables(restored, channel_id)
    elif para is not None:
        tables = para_tables(restored, para)
    else:
        tables = lane_tables(restored)
    print_table(tables)


@app.command()
def verify(
    lane: Annotated[str | None, typer.Option(help="Only this lane. Default: every configured lane.")] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Rebuild lanes from the topics, up to the offsets that the checkpoint's last batch consumed, and compare them with the checkpoint.

    Compares the executed block, the record counts, the state root, the page of every para, waiting records, the receipts of all blocks, and
    the last receipts with those on the topic. Exit code 0 if everything is the same, 1 if not.
    """
    config = load_config(config_path)
    if lane is not None:
        chain_of(config.chains, lane, "--lane: its first block is unknown: ")
    if not config.chains:
        raise UserError("no chain is configured: expected a table [chains.<lane>]")
    config = config.model_copy(update={"kafka": kafka_table(config)})
    same = True
    with _stored(config, [lane] if lane else sorted(config.chains)) as stored:
        names = [lane] if lane else [name for name in stored.lanes if name in config.chains]
        for name in stored.lanes if lane is None else ():
            if name not in config.chains:
                say(f"lane {name} is skipped: it is not configured, so its first block is unknown")
        if not names:
            raise UserError("none of the configured lanes is in the checkpoint: no record for them has arrived yet")
        for name in names:
            same = _verify(config, restore(stored, name), as_json=as_json) and same
    raise typer.Exit(exit_codes.OK if same else exit_codes.DISAGREEMENT)


def _verify(config: Config, restored: RestoredState, *, as_json: bool) -> bool:
    from validator.history.verification import compare, rebuild

    name = restored.name
    definition = definition_beside(config, name)
    with counting(f"lane {name}: executing its inputs") as progress:
        rebuilt = rebuild(config.kafka, config.topics.prefix, configured_codec(config), definition, restored, progress)
    checks = compare(restored, rebuilt, config.kafka, config.topics.prefix)
    same = all(check.same for check in checks)
    reconfigured = definition.runtime_digest != restored.head.runtime_digest
    if as_json:
        result = {
            "lane": name,
            "ok": same,
            "batch": restored.batch,
            "executed_block": restored.processor.lane.executed_block,
            "records": rebuilt.records,
            "reconfigured": reconfigured,
            "cut": rebuilt.cut,
            "checks": [asdict(check) for check in checks],
        }
        print_json(result)
        return same
    print_table(check_tables(checks))
    if reconfigured:
        say(f"lane {name}: the configuration differs from the one that its state was stored with")
    if rebuilt.cut:
        say(
            f"lane {name}: retention has removed the first records of {', '.join(rebuilt.cut)}, which cannot be counted any more"
        )
    where = f"after block {restored.processor.lane.executed_block}, batch {restored.batch}"
    if same:
        sys.stdout.write(f"OK: lane {name} {where} equals the lane rebuilt from {rebuilt.records:,} records\n")
    else:
        words = "".join(f"  {differing(check)}\n" for check in checks if not check.same)
        sys.stdout.write(
            f"DIFFERENT: lane {name} {where} differs from the lane rebuilt from {rebuilt.records:,} records\n{words}"
        )
    return same


def _channel_id(text: str) -> tuple[int, int]:
    ends = text.split(",")
    if len(ends) != 2 or not all(end.isascii() and end.isdecimal() and int(end) <= U32_MAX for end in ends):
        raise UserError(f"--channel: expected SENDER,RECIPIENT, two para ids, found {text!r}")
    return int(ends[0]), int(ends[1])


@contextmanager
def _stored(config: Config, lanes: list[str]) -> Iterator[StateExport]:
    use_artefacts(config.plugins.artefacts)
    with terminated_as_interrupted(), ExitStack() as stack:
        with working("reading the checkpoint"):
            stored = stack.enter_context(stored_lanes(job_directory(config), lanes))
        yield stored


LIST_MAX: Final = 20
"""Entries shown of a list that may be long."""

HASH_CHARACTERS: Final = len(PREFIX) + 64

Fact = tuple[str, RenderableType]


def lane_tables(lane: RestoredState) -> RenderableType:
    """Show a lane's progress, its state and the size of its store."""
    inner, head, digest = lane.processor.lane, lane.head, lane.runtime_digest
    counters = inner.counters
    return Group(
        _title(lane),
        *_shown(lane.view.whole_sections(lane.rules.state)),
        *_kept(lane),
        _heading("records"),
        _table(
            ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting"),
            [
                tuple(
                    f"{number:,}"
                    for number in (
                        counters.consumed,
                        counters.accepted,
                        counters.rejected,
                        counters.duplicate,
                        counters.dead,
                        counters.waiting,
                    )
                )
            ],
        ),
        Text(f"  {inner.waits_for()}"),
        *_waiting(lane),
        _heading("store"),
        _facts(
            ("slots", f"{lane.slots:,} with {_bytes(head.slots_bytes)}"),
            ("journal", f"{head.journal_entries:,} batches with {_bytes(head.journal_bytes)}"),
            (
                "consumed",
                ", ".join(
                    f"{topic}[{partition}]@{offset}" for (topic, partition), offset in sorted(lane.consumed.items())
                ),
            ),
            ("summary", to_hex(lane.processor.summary())),
            ("state root", to_hex(inner.rules.state_root())),
            ("runtime", "not known: see runtime_digest in docs/lane-state.md" if digest is None else to_hex(digest)),
            ("plugins", printable(", ".join(lane.plugins))),
        ),
    )


def plugin_tables(lane: RestoredState, plugin: str, limit: int) -> RenderableType:
    """Show what a plugin keeps, at most ``limit`` entries (0: all). Raises `UserError` if it keeps nothing."""
    entries = entries_of_plugin(lane, plugin)
    rows = [(to_hex(key), to_hex(value)) for key, value in (entries[:limit] if limit else entries)]
    size = sum(len(key) + len(value) for key, value in entries)
    return Group(
        _title(lane),
        _facts(("plugin", plugin), ("keys", f"{len(entries):,}"), ("bytes", f"{size:,}")),
        _heading("entries", len(entries), limit or None),
        _table(("key", "value"), rows, left=("key", "value")),
    )


def _kept(lane: RestoredState) -> list[RenderableType]:
    kept = kept_by_plugins(lane)
    if not kept:
        return []
    rows = [(each.plugin, f"{each.keys:,}", f"{each.bytes:,}") for each in kept]
    return [_heading("kept by handlers"), _table(("plugin", "keys", "bytes"), rows, left=("plugin",))]


def para_tables(lane: RestoredState, para: ParaId) -> RenderableType:
    """Show a lane's state about a para. Raises `UserError` if there is none."""
    sections = about_para(lane, para, lane.view.para_sections(lane.rules.state, para))
    return Group(_title(lane, f"para {para}"), *_shown(sections))


def channel_tables(lane: RestoredState, channel_id: ChannelId) -> RenderableType:
    """Show a channel, or the request for one. Raises `UserError` if there is neither."""
    sections = about_channel(lane, channel_id, lane.view.channel_sections(lane.rules.state, channel_id))
    return Group(_title(lane, f"channel {channel_id[0]} -> {channel_id[1]}"), *_shown(sections))


def check_tables(checks: Sequence[Check]) -> RenderableType:
    """Show the comparisons of a stored lane with the lane rebuilt from the topics."""
    table = Table(
        Column("checked", no_wrap=True),
        "in the checkpoint",
        "from the topics",
        Column("result", no_wrap=True),
        box=None,
    )
    for check in checks:
        outcome = Text("same", style="green") if check.same else Text("differs", style="bold red")
        both = check.stored, check.rebuilt
        table.add_row(*cells((check.what, *(map(_short, both) if check.same else both))), outcome)
    return table


def differing(check: Check) -> str:
    """Describe in one line what differs in a comparison."""
    named = ", ".join(check.differing[:LIST_MAX])
    more = f" and {len(check.differing) - LIST_MAX} more" if len(check.differing) > LIST_MAX else ""
    return (
        f"{check.what}: {named}{more}"
        if named
        else f"{check.what}: {check.stored} in the checkpoint, {check.rebuilt} from the topics"
    )


# --- parts -------------------------------------------------------------------------------------------------------------------------------


def _title(lane: RestoredState, what: str = "") -> RenderableType:
    words = [lane.name, what, f"after block {lane.processor.lane.executed_block:,}", f"batch {lane.batch}"]
    return Text(" · ".join(filter(None, words)), style="bold")


def _shown(sections: Iterable[StateSection]) -> Iterator[RenderableType]:
    """Yield a protocol's sections of its state, for the terminal."""
    for section in sections:
        if section.title:
            yield _heading(printable(section.title))
        if section.facts:
            yield _facts(*((printable(name), Text(printable(value))) for name, value in section.facts))
        if section.columns:
            yield _table(section.columns, section.rows, section.left)
        if section.text:
            yield Text(printable_lines(section.text))


def _heading(words: str, count: int = 0, shown: int | None = None) -> RenderableType:
    return Text(f"\n{section_title(words, count, shown)}", style="bold cyan")


def _facts(*facts: Fact) -> Table:
    table = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2), pad_edge=True)
    for fact in facts:
        table.add_row(*fact)
    return table


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = ()) -> FittedTable:
    headings = tuple(map(printable, names))
    cells = [[_cell(printable(cell)) for cell in row] for row in rows]
    numbers = {printable(name) for name in names if name not in left}
    return FittedTable(headings, cells, numbers, header_style="dim")


def _cell(text: str) -> str:
    """Return a cell; on a terminal the bytes of a payload are cut to as many as a hash has, which is never cut."""
    return cut_on_terminal(text, HASH_CHARACTERS) if text.startswith(PREFIX) else text


def _waiting(lane: RestoredState) -> list[RenderableType]:
    blocks = list(lane.processor.lane.waiting())
    if not blocks:
        return []
    rows = []
    for number, block in blocks[:LIST_MAX]:
        record = "" if block.record is None else "yes"
        missing = "" if block.record is None else f"{block.missing():,}"
        rows.append((str(number), f"{len(block.places):,}", record, missing))
    names = ("block", "records", "block record", "missing")
    return [_heading("waiting", len(blocks), LIST_MAX), _table(names, rows)]


def _short(text: str) -> str:
    return cut_on_terminal(text, 16) if len(text) > 31 and " " not in text else text


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"
