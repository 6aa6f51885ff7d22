# SPDX-License-Identifier: Apache-2.0
"""Shows what another configuration changes, as tables and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from validator.cli.rows import why
from validator.cli.table import cells
from validator.codec.encode import RUNTIME_DIGEST_BYTES, Encoder
from validator.codec.json_form import shown_json
from validator.history.levels import Sample
from validator.history.what_if import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.history.levels import Levels
    from validator.history.what_if import Comparison, Difference, Replayed

KINDS_SHOWN: Final = 20
"""Ways in which verdicts differ, the most frequent ones, that a table shows."""

PARAS_SHOWN: Final = 10
BLOCKS_SHOWN: Final = 10
"""Paras, and blocks, with the most differences that a table shows."""

_WORDS: Final = {
    Change.REJECTED: "newly rejected",
    Change.ACCEPTED: "newly accepted",
    Change.ERROR: "rejected with other numbers",
    Change.EFFECT: "accepted with other numbers",
}


def tables(replayed: Replayed, limit: int) -> Group:
    """Show a replay: what was executed, then each comparison."""
    dead = f", {replayed.dead:,} dead letters left out" if replayed.dead else ""
    parts: list[Any] = [
        Text(
            f"{replayed.lane} · blocks {replayed.first_block} to {replayed.last_block} · {replayed.blocks:,} blocks, "
            f"{replayed.records:,} records{dead}"
        )
    ]
    if len(replayed.comparisons) > 1:
        parts += [Text(""), _sweep(replayed)]
        return Group(*parts)
    (comparison,) = replayed.comparisons
    return Group(*parts, *_comparison(replayed, comparison, limit))


def _sweep(replayed: Replayed) -> Table:
    changes = list(Change)
    table = _table(
        "configuration", *(_WORDS[each] for each in changes), "least places left", "least upward left", "most downward waiting",
        numbers=len(changes) + 3,
    )  # fmt: skip
    rows = [("own", [0] * len(changes), replayed.levels)]
    rows += [(each.name, [each.count(change) for change in changes], each.levels) for each in replayed.comparisons]
    for name, counts, levels in rows:
        table.add_row(
            *cells(
                (
                    name,
                    *(f"{count:,}" for count in counts),
                    _number(extreme(levels, "places_left_min", min)),
                    _number(extreme(levels, "upward_count_left_min", min)),
                    _number(extreme(levels, "downward_pending", max)),
                )
            )
        )
    return table


def _comparison(replayed: Replayed, comparison: Comparison, limit: int) -> Iterator[Any]:
    different = sum(comparison.kinds.values())
    yield Text(f"  {comparison.name}: {different:,} of {comparison.verdicts:,} verdicts differ")
    if different:
        yield from (Text(""), _kinds(comparison), Text(""), _paras(comparison), Text(""), _blocks(comparison))
    yield from (Text(""), _levels(replayed.levels, comparison.levels))
    if limit and comparison.differences:
        yield from (Text(""), _differences(replayed.lane, comparison.differences[:limit]))
        if different > limit:
            yield Text(f"  and {different - limit:,} more")


def _kinds(comparison: Comparison) -> Table:
    table = _table("verdicts", "input", "error before", "error after", "number", numbers=1)
    for (change, kind, before, after), number in _by_number(comparison.kinds.items())[:KINDS_SHOWN]:
        table.add_row(*cells((_WORDS[change], kind, before or "none", after or "none", f"{number:,}")))
    if len(comparison.kinds) > KINDS_SHOWN:
        table.add_row(f"and {len(comparison.kinds) - KINDS_SHOWN:,} other ways")
    return table


def _paras(comparison: Comparison) -> Table:
    changes = list(Change)
    table = _table("para", *(_WORDS[each] for each in changes), numbers=len(changes))
    totals: dict[int, int] = {}
    for (para, _), number in comparison.paras.items():
        totals[para] = totals.get(para, 0) + number
    for para, _ in _by_number(totals.items())[:PARAS_SHOWN]:
        table.add_row(*cells((str(para), *(f"{comparison.paras[para, each]:,}" for each in changes))))
    if len(totals) > PARAS_SHOWN:
        table.add_row(f"and {len(totals) - PARAS_SHOWN:,} more")
    return table


def _blocks(comparison: Comparison) -> Table:
    table = _table("block", "differences", numbers=1)
    first = min(comparison.blocks)
    table.add_row(*cells((f"{first} (the first)", f"{comparison.blocks[first]:,}")))
    for block, number in _by_number(comparison.blocks.items())[:BLOCKS_SHOWN]:
        if block != first:
            table.add_row(*cells((str(block), f"{number:,}")))
    if len(comparison.blocks) > BLOCKS_SHOWN:
        table.add_row(f"{len(comparison.blocks):,} blocks in all")
    return table


_LEVELS: Final = (
    ("most downward messages waiting", "downward_pending", max),
    ("most upward messages waiting", "upward_pending", max),
    ("most messages waiting in channels", "channel_pending", max),
    ("least upward messages left of a para", "upward_count_left_min", min),
    ("least upward bytes left of a para", "upward_bytes_left_min", min),
    ("most channels", "channels", max),
    ("least places left of a channel", "places_left_min", min),
    ("least bytes left of a channel", "bytes_left_min", min),
)


def _levels(own: Levels, other: Levels) -> Table:
    table = _table("headroom and queues", "own", "other", numbers=2)
    for words, name, choose in _LEVELS:
        table.add_row(*cells((words, _number(extreme(own, name, choose)), _number(extreme(other, name, choose)))))
    return table


def extreme(levels: Levels, name: str, choose: Any) -> int | None:
    """Return the least or greatest value of a field of the samples, or None if none has one."""
    values = [value for sample in levels.samples if (value := getattr(sample, name)) is not None]
    return choose(values) if values else None


def _differences(lane: str, differences: Iterable[Difference]) -> Table:
    table = _table("block", "input", "index", "para", "own", "other")
    for each in differences:
        document = _document(lane, each)
        table.add_row(
            *cells(
                (
                    str(document["block"]),
                    document["kind"],
                    str(document["index"]),
                    str(document["para_id"]),
                    _said(document["own"]),
                    _said(document["other"]),
                )
            )
        )
    return table


def _said(verdict: dict[str, Any]) -> str:
    if verdict["ok"]:
        numbers = ", ".join(str(each["sequence_number"]) for each in verdict["messages"])
        session = verdict["effective_session"]
        return (
            "accepted"
            + (f", messages {numbers}" if numbers else "")
            + ("" if session is None else f", session {session}")
        )
    return why(verdict["error"])


def difference_documents(replayed: Replayed, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the first differences of each comparison as JSON."""
    for comparison in replayed.comparisons:
        for each in comparison.differences[:limit]:
            yield {"configuration": comparison.name, **_document(replayed.lane, each)}


def _document(lane: str, difference: Difference) -> dict[str, Any]:
    encoder = Encoder(lane, bytes(RUNTIME_DIGEST_BYTES))
    own, other = (shown_json("verdicts", encoder.verdict(each)) for each in difference[1:])
    place = {name: own[name] for name in ("lane", "block", "kind", "index", "para_id")}
    left_out = {*place, "runtime_digest", "id", "candidate_hash"}
    return {
        "change": difference.change.value,
        **place,
        "own": {name: value for name, value in own.items() if name not in left_out},
        "other": {name: value for name, value in other.items() if name not in left_out},
    }


def summary_documents(replayed: Replayed) -> Iterator[dict[str, Any]]:
    """Yield, for each comparison, an object with all its counts and with the samples of both configurations."""
    for each in replayed.comparisons:
        yield {
            "configuration": each.name,
            "lane": replayed.lane,
            "first_block": replayed.first_block,
            "last_block": replayed.last_block,
            "blocks": replayed.blocks,
            "records": replayed.records,
            "verdicts": each.verdicts,
            "changes": {change.value: each.count(change) for change in Change},
            "kinds": [
                {"change": change, "kind": kind, "before": before or None, "after": after or None, "number": number}
                for (change, kind, before, after), number in _by_number(each.kinds.items())
            ],
            "paras": [
                {"para_id": para, "change": change, "number": number}
                for (para, change), number in sorted(each.paras.items())
            ],
            "differing_blocks": dict(sorted(each.blocks.items())),
            "levels": {
                name: [dict(zip(Sample._fields, sample, strict=True)) for sample in levels.samples]
                for name, levels in (("own", replayed.levels), ("other", each.levels))
            },
        }


def _by_number(items: Iterable[tuple[Any, int]]) -> list[tuple[Any, int]]:
    return sorted(items, key=lambda item: (-item[1], item[0]))


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _table(*headings: str, numbers: int = 0) -> Table:
    """Return a table whose last ``numbers`` columns hold numbers."""
    first_number = len(headings) - numbers
    columns = (
        Column(heading, justify="right" if at >= first_number else "left", overflow="fold")
        for at, heading in enumerate(headings)
    )
    return Table(*columns, box=None, padding=(0, 2, 0, 0))
