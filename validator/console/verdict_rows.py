# SPDX-License-Identifier: Apache-2.0
"""Filters verdicts and makes rows of them: rejections one by one, what was accepted in one line a block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from validator.codec.json_form import shown_json
from validator.console.context import Query, number_of
from validator.console.kept import Json, KeptVerdict
from validator.console.limits import ROWS_MAX
from validator.console.sentences import why
from validator.console.shown import count, plural
from validator.core.limits import U32_MAX
from validator.effects import effects, recipients
from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OUTCOMES: Final = ("accepted", "rejected")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter; None takes everything."""

    outcome: str | None = None
    kind: str | None = None
    para: int | None = None
    rule: str | None = None
    first: int | None = None
    last: int | None = None
    every: bool = False
    """Whether accepted verdicts have a row each."""
    before: int | None = None
    """Only verdicts that were read before the one of this number."""

    @classmethod
    def of(cls, query: Query) -> Wanted:
        """Read a query. Raises `UserError` with the field's name."""
        outcome = query.get("outcome") or None
        if outcome not in (None, *OUTCOMES):
            raise UserError(f"outcome: expected {' or '.join(OUTCOMES)}, found {outcome[:40]!r}")
        blocks = query.get("block", "").replace("-", "..").partition("..")
        first = number_of({"block": blocks[0]}, "block")
        last = number_of({"block": blocks[2]}, "block") if blocks[1] else first
        return cls(
            outcome,
            query.get("kind") or None,
            number_of(query, "para"),
            query.get("rule") or None,
            first,
            last,
            query.get("view") == "every",
            number_of(query, "before"),
        )

    @property
    def is_any(self) -> bool:
        """Whether every verdict is taken."""
        return (self.outcome, self.kind, self.para, self.rule, self.first, self.last) == (None,) * 6

    def takes(self, verdict: KeptVerdict) -> bool:
        """Return whether a verdict is wanted, wherever it was read."""
        if self.outcome is not None and verdict.ok != (self.outcome == "accepted"):
            return False
        if self.kind is not None and verdict.kind != self.kind:
            return False
        if self.para is not None and verdict.para_id != self.para:
            return False
        if self.rule is not None and verdict.error != self.rule:
            return False
        return (self.first or 0) <= verdict.block <= (U32_MAX if self.last is None else self.last)


@dataclass(slots=True)
class BlockLine:
    """The accepted verdicts of one block."""

    block: int
    kinds: Counter[str] = field(default_factory=Counter)
    recipients: set[int] = field(default_factory=set)
    messages: int = 0

    def add(self, verdict: KeptVerdict) -> None:
        """Count a verdict."""
        self.kinds[verdict.kind] += 1
        self.recipients |= set(verdict.recipients)
        self.messages += len(verdict.recipients)

    def row(self) -> dict[str, Any]:
        """Return the line."""
        words = ", ".join(plural(number, kind) for kind, number in sorted(self.kinds.items()))
        if self.messages:
            words += f"; {plural(self.messages, 'message')} queued for {recipients(sorted(self.recipients))}"
        return {"line": True, "block": self.block, "number": self.kinds.total(), "text": words}


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a page; ``next_before`` continues with older ones, None if there are none."""

    rows: list[dict[str, Any]]
    matched: int
    searched: int
    next_before: int | None


def listed(verdicts: Iterable[KeptVerdict], wanted: Wanted) -> Listed:
    """Return the first page of the wanted verdicts, newest first, and how many there are in all."""
    rows: list[dict[str, Any]] = []
    lines: dict[int, BlockLine] = {}
    matched = searched = 0
    next_before = last = None
    for verdict in verdicts:
        searched += 1
        if not wanted.takes(verdict):
            continue
        matched += 1
        if next_before is not None or (wanted.before is not None and verdict.number >= wanted.before):
            continue
        if len(rows) + len(lines) >= ROWS_MAX and not (verdict.ok and verdict.block in lines and not wanted.every):
            next_before = last
            continue
        if verdict.ok and not wanted.every:
            lines.setdefault(verdict.block, BlockLine(verdict.block)).add(verdict)
        else:
            rows.append(row_of(verdict))
        last = verdict.number
    rows += [line.row() for line in lines.values()]
    rows.sort(key=lambda row: (-row["block"], bool(row.get("line")), row.get("kind", ""), row.get("index", 0)))
    return Listed(rows, matched, searched, next_before)


def row_of(verdict: KeptVerdict) -> dict[str, Any]:
    """Return a verdict's row."""
    record = record_of(verdict)
    return {
        "line": False,
        "block": verdict.block,
        "kind": verdict.kind,
        "index": verdict.index,
        "para_id": verdict.para_id,
        "ok": verdict.ok,
        "error": verdict.error,
        "text": effect(record) if verdict.ok else why(record).text,
        "time_ms": verdict.time_ms,
    }


def record_of(verdict: KeptVerdict) -> Json:
    """Return a verdict as JSON."""
    return shown_json("verdicts", verdict.value)


def effect(record: Json) -> str:
    """Say what an input did, or what a rejected candidate signals."""
    return "; ".join(effects(record, count))


def last_rejections(verdicts: Iterator[KeptVerdict], para: int, rows_max: int) -> tuple[list[Any], Counter[str]]:
    """Return a para's last rejections, and how many kept ones there are by kind of error."""
    rows: list[Any] = []
    kinds: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict.para_id == para and verdict.error is not None:
            kinds[verdict.error] += 1
            if len(rows) < rows_max:
                rows.append(row_of(verdict))
    return rows, kinds
