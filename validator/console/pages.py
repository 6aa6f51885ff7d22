# SPDX-License-Identifier: Apache-2.0
"""The pages by address: each turns the model and a query into what a template shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from validator.console import rules
from validator.console.attention import causes
from validator.console.channel_pages import channel_page, channels_page
from validator.console.context import ConsoleContext, Missing, Page, Query, link_of, now_ms
from validator.console.drawings import latency_plot, rate_plot, strip
from validator.console.kept import KeptVerdict
from validator.console.lane import LaneModel
from validator.console.letter_pages import letter_page, letters_page
from validator.console.limits import ATTENTION_MAX, FACETS_MAX, LIST_MAX, STRIP_BLOCKS
from validator.console.para_pages import para_page, paras_page, stored_page
from validator.console.runtime_page import runtime_page
from validator.console.sentences import why
from validator.console.verdict_rows import Listed, Wanted, effect, listed, record_of, row_of
from validator.errors import UserError
from validator.job.lag import Lag
from validator.job.orders import command_of, remedy_of

PageOf = Callable[[ConsoleContext, dict[str, str], Query], Page]

RECENT_EVENTS: Final = 8
NEIGHBOURS: Final = 4
"""Verdicts of the same para that a verdict's page shows on either side."""


def overview_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """The lanes, and how one of them does."""
    if not console.model.lanes:
        return Page("empty.html", console.common("overview"))
    lane = console.lane(path["lane"]) if "lane" in path else next(iter(console.model.lanes.values()))
    blocks = list(lane.blocks)[-STRIP_BLOCKS:]
    found = causes(console.model, lane, console.lag(lane.name), console.fed.get(lane.name), now_ms())
    rate, recent = rate_plot(lane.rates, now_ms())
    latency, half, most = latency_plot(list(lane.blocks)[-2 * STRIP_BLOCKS :])
    return Page(
        "overview.html",
        {
            **console.common("overview", lane),
            "rows": [lane_row(each, console.lag(each.name)) for each in console.model.lanes.values()],
            "strip": strip(blocks, link_of(lane.name)),
            "strip_blocks": len(blocks),
            "accepted": sum(block.accepted for block in blocks),
            "rejected": sum(block.rejected for block in blocks),
            "sentence": sentence(lane, console.lag(lane.name), len(found)),
            "causes": found[:ATTENTION_MAX],
            "more_causes": max(0, len(found) - ATTENTION_MAX),
            "errors": lane.tally.error.most_common(FACETS_MAX),
            "verdicts_kept": len(lane.verdicts),
            "events": list(lane.events)[-RECENT_EVENTS:][::-1],
            "rate": rate,
            "rate_now": f"{recent:.1f}",
            "latency": latency,
            "latency_half": half,
            "latency_most": most,
            "parked": parked_of(lane),
        },
    )


def lane_row(lane: LaneModel, lag: Lag | None) -> dict[str, Any]:
    """Return a lane's row of the overview."""
    state, word = state_of(lane, lag)
    names = ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
    account = None if lane.status is None else {name: lane.status[name] for name in names}
    return {
        "name": lane.name,
        "link": link_of(lane.name),
        "state": state,
        "word": word,
        "executed": lane.executed_block,
        "session": lane.session,
        "lag": lag,
        "waits": None if lane.status is None else lane.status["waiting_for"],
        "account": account,
        "as_of_ms": lane.status_ms,
    }


def state_of(lane: LaneModel, lag: Lag | None) -> tuple[str, str]:
    """Return how a lane does: a class of the style sheet, and a word."""
    if lane.parked is not None:
        return "bad", lane.parked["state"].capitalize()
    if lane.executed_block is None:
        return "quiet", "Nothing executed"
    if lag is not None and lag.blocks > 1:
        return "warn", "Catching up"
    if lane.status is not None and lane.status["waiting_for"] and lane.status["waiting_blocks"]:
        return "warn", "Waiting"
    return "ok", "Up to date" if lag is not None else "Executing"


def sentence(lane: LaneModel, lag: Lag | None, wrong: int) -> str:
    """Say in one sentence how a lane does."""
    _, word = state_of(lane, lag)
    words = {
        "Parked": "is parked",
        "Resuming": "resumes",
        "Nothing executed": "has executed nothing yet",
        "Catching up": f"catches up, {'at least ' if lag and not lag.complete else ''}{lag.blocks if lag else 0:,} blocks behind",
        "Waiting": "waits for records",
        "Up to date": "is up to date",
        "Executing": "executes blocks",
    }
    need = {0: "Nothing needs attention", 1: "One thing needs attention"}.get(wrong, f"{wrong} things need attention")
    return f"{lane.name} {words.get(word, word.lower())}. {need}."


def parked_of(lane: LaneModel) -> dict[str, Any] | None:
    """Return why a lane is parked and what to do, None if it is not."""
    if lane.parked is None:
        return None
    return {**lane.parked, "remedy": remedy_of(lane.parked), "command": command_of(lane.name, lane.parked["fault"])}


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
    entries = [] if verdict.error is None else rules.entries_of(verdict.error, console.protocol(lane.name))
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
            "record": record,
            "why": reason,
            "effect": effect(record),
            "fields": [(name, value) for name, value in error.items() if name != "kind"],
            "rule": rule,
            "prose": None if rule is None else rules.prose(rule),
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
    entries = rules.entries_of(wanted) if wanted else []
    if not entries:
        raise Missing(f"No installed protocol has a rule, an error or a code {wanted[:80]!r}.")
    shown = [(entry, rules.prose(entry)) for entry in entries[:LIST_MAX]]
    return Page("rule.html", {**console.common(""), "wanted": wanted, "entries": shown})


PAGES: Final[tuple[tuple[str, PageOf], ...]] = (
    ("/", overview_page),
    ("/lanes/{lane}", overview_page),
    ("/lanes/{lane}/verdicts", verdicts_page),
    ("/lanes/{lane}/verdicts/{block:int}/{kind}/{index:int}", verdict_page),
    ("/lanes/{lane}/channels", channels_page),
    ("/lanes/{lane}/channels/{sender:int}/{recipient:int}", channel_page),
    ("/lanes/{lane}/paras", paras_page),
    ("/lanes/{lane}/paras/{para:int}", para_page),
    ("/lanes/{lane}/paras/{para:int}/state", stored_page),
    ("/lanes/{lane}/runtime", runtime_page),
    ("/dead-letters", letters_page),
    ("/dead-letters/{partition:int}/{offset:int}", letter_page),
    ("/rules", rule_page),
)
"""Every page; each of them is live, except those of which a reader reads Kafka or the checkpoint."""

STILL: Final = frozenset({letter_page, stored_page, rule_page})
"""Pages without live updates."""
