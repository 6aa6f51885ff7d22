# SPDX-License-Identifier: Apache-2.0
"""The pages of verdicts, and of the rules that they broke.

A rejection has one row, with a sentence that says why; what was accepted has one line a block.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt
from markupsafe import Markup

from validator.codec.json_form import error_fields, shown_json
from validator.console.context import ConsoleContext, Missing, Page, Query, number_of
from validator.console.limits import FACETS_MAX, LIST_MAX, ROWS_MAX
from validator.console.model import Json, KeptVerdict, LaneModel
from validator.core.limits import U32_MAX
from validator.effects import effects, recipients
from validator.errors import UserError
from validator.plugin.rule_pages import find_entries, installed_pages
from validator.sentences import Why, count, plural, why_of
from validator.visible import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from validator.plugin.rule_pages import RuleEntry, RulesPage


OUTCOMES: Final = ("accepted", "rejected")
KIND_WORDS: Final = {"downward": "downward message"}
"""Kinds of inputs whose name alone is no noun."""


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
    time_ms: int = 0

    def add(self, verdict: KeptVerdict) -> None:
        """Count a verdict."""
        self.kinds[verdict.kind] += 1
        self.recipients |= set(verdict.recipients)
        self.messages += len(verdict.recipients)
        self.time_ms = max(self.time_ms, verdict.time_ms)

    def row(self) -> dict[str, Any]:
        """Return the line."""
        words = ", ".join(plural(number, KIND_WORDS.get(kind, kind)) for kind, number in sorted(self.kinds.items()))
        if self.messages:
            words += f"; {plural(self.messages, 'message')} queued for {recipients(sorted(self.recipients))}"
        return {
            "line": True,
            "block": self.block,
            "number": self.kinds.total(),
            "text": words,
            "time_ms": self.time_ms,
        }


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


NEIGHBOURS: Final = 4
"""Verdicts of the same para that a verdict's page shows on either side."""


def verdicts_page(console: ConsoleContext, path: dict[str, str], query: Query) -> Page:
    """Verdicts as they come, filtered."""
    lane = console.lane(path["lane"])
    problem = ""
    try:
        wanted = Wanted.of(query)
        found = listed(lane.newest(), wanted)
    except UserError as error:
        problem, wanted, found = str(error), Wanted(), Listed([], 0, 0, None)
    tally = lane.tally
    return Page(
        "verdicts.html",
        {
            **console.common("verdicts", lane),
            "wanted": wanted,
            "query": {name: value for name, value in query.items() if value and name != "before"},
            "problem": problem,
            "found": found,
            "kinds": sorted(tally.kind),
            "facets": [
                ("Outcome", "outcome", tally.outcome.most_common(2)),
                ("Kind", "kind", tally.kind.most_common(FACETS_MAX)),
                ("Rule broken", "rule", tally.error.most_common(FACETS_MAX)),
                ("Para, rejected", "para", tally.rejected_of_para.most_common(FACETS_MAX)),
            ],
            "errors": sorted(tally.error),
            "kept": len(lane.verdicts),
        },
    )


def verdict_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """One verdict, explained."""
    lane = console.lane(path["lane"])
    place = int(path["block"]), path["kind"], int(path["index"])
    verdict = next((each for each in lane.newest() if (each.block, each.kind, each.index) == place), None)
    if verdict is None:
        raise Missing(
            f"No verdict on {path['kind']} {place[2]} of block {place[0]:,} is among the {len(lane.verdicts):,} kept ones."
        )
    record = record_of(verdict)
    reason = None if verdict.ok else why(record)
    error = {} if verdict.ok else record["error"]
    channel = _channel_of(verdict.para_id, error)
    entries = [] if verdict.error is None else entries_of(verdict.error, console.protocol(lane.name))
    protocol = console.protocol(lane.name)
    rule = next((entry for entry in entries if entry.protocol == protocol), entries[0] if entries else None)
    para = lane.paras.get(verdict.para_id)
    others = [each for each in lane.newest() if each.para_id == verdict.para_id]
    at = others.index(verdict)
    near = others[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
    return Page(
        "verdict.html",
        {
            **console.common("verdicts", lane),
            "verdict": verdict,
            "what": KIND_WORDS.get(verdict.kind, verdict.kind),
            "record": record,
            "why": reason,
            "effect": effect(record),
            "fields": list(error_fields(error).items()),
            "rule": rule,
            "prose": None if rule is None else prose(rule),
            "para_met": _before(() if para is None else para.records, verdict.block),
            "channel": channel,
            "channel_met": _channel_met(lane, channel, verdict.block),
            "sending_met": _sending_met(lane, verdict) if channel is None and "idx" in error else [],
            "events": [
                event
                for event in lane.events
                if (event["sender"], event["recipient"]) == channel and event["block"] <= verdict.block
            ][-NEIGHBOURS:],
            "same_error": 0 if verdict.error is None else lane.tally.error[verdict.error],
            "near": [{**row_of(each), "this": each is verdict} for each in near],
        },
    )


def _channel_of(para: int, error: dict[str, Any]) -> tuple[int, int] | None:
    """Return the channel that an error is about."""
    named = error.get("channel_id", error)
    if isinstance(named, dict) and {"sender", "recipient"} <= set(named):
        return named["sender"], named["recipient"]
    recipient = error.get("recipient")
    return (para, recipient) if isinstance(recipient, int) else None


def _channel_met(lane: LaneModel, channel: tuple[int, int] | None, block: int) -> list[Any]:
    kept = None if channel is None else lane.channels.get(channel)
    return [] if kept is None else _before(kept.records, block)


def _sending_met(lane: LaneModel, verdict: KeptVerdict) -> list[Any]:
    """Return the last headroom before a verdict of the channels from its para, those with the least places first."""
    sending = [channel for ends, channel in lane.channels_of(verdict.para_id) if ends[0] == verdict.para_id]
    before = [[record for record in channel.records if record["block"] < verdict.block] for channel in sending]
    met = [records[-1] for records in before if records and records[-1]["open"]]
    return sorted(met, key=lambda record: (record["places_left"], record["bytes_left"]))[: 2 * NEIGHBOURS]


def _before(records: Any, block: int) -> list[Any]:
    """Return the last headroom records from before a block, and the first one after it; each says its block."""
    records = list(records)
    before = [record for record in records if record["block"] < block][-2:]
    after = [record for record in records if record["block"] >= block][:1]
    return [*before, *after]


def rule_page(console: ConsoleContext, _path: dict[str, str], query: Query) -> Page:
    """The text of a rule, as `validator explain` has it."""
    wanted = query.get("name", "")
    entries = entries_of(wanted) if wanted else []
    if not entries:
        raise Missing(f"No installed protocol has a rule, an error or a code {wanted[:80]!r}.")
    shown = [(entry, prose(entry)) for entry in entries[:LIST_MAX]]
    return Page("rule.html", {**console.common(""), "wanted": wanted, "entries": shown})


@cache
def sentences() -> dict[str, RuleEntry]:
    """Return the entries of errors that have a sentence, by kind; a kind of several protocols has the first one's."""
    found = [entry for page in rule_pages() for entry in page.entries if entry.says]
    return {entry.name: entry for entry in reversed(found)}


def why(record: Json) -> Why:
    """Return why a rejected verdict, as JSON, was rejected."""
    return why_of(sentences().get(record["error"]["kind"]), record)


@cache
def rule_pages() -> tuple[RulesPage, ...]:
    """Return the pages of all installed protocols; a page that cannot be read is left out."""
    return tuple(installed_pages()[0])


def entries_of(wanted: str, protocol: str | None = None) -> Sequence[RuleEntry]:
    """Return the entries of a code, kind or clause, those of ``protocol`` first."""
    found = find_entries(rule_pages(), wanted)
    return sorted(found, key=lambda entry: entry.protocol != protocol)


def prose(entry: RuleEntry) -> Markup:
    """Return an entry's text, which is Markdown, as HTML; HTML in it is text."""
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(printable_lines(entry.text)))  # noqa: S704 - it escapes
