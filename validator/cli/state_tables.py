# SPDX-License-Identifier: Apache-2.0
"""Formats a stored lane, or one of its paras, channels or plugins, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from validator.ask.state import about_channel, about_para, entries_of_plugin, kept_by_plugins
from validator.cli.fitted import FittedTable
from validator.cli.table import cells, cut_on_terminal
from validator.hexadecimal import PREFIX, to_hex
from validator.plugin.protocol_parts import section_title
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from validator.ask.state import RestoredState
    from validator.core.types import ChannelId, ParaId
    from validator.history.verification import Check
    from validator.plugin.protocol_api import StateSection

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
            ("runtime", "not known: see runtime_digest in docs/commands.md" if digest is None else to_hex(digest)),
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
