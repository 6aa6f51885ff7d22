# SPDX-License-Identifier: Apache-2.0
"""The pages of a lane: how it does and what needs attention, and which code judged which block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from validator.console.context import ConsoleContext, Page, Query, now_ms, waits
from validator.console.limits import ATTENTION_MAX, FACETS_MAX, LIST_MAX, STRIP_BLOCKS
from validator.console.model import LaneModel
from validator.console.names import LaneLink
from validator.console.rendering import duration, latency_plot, rate_plot, strip
from validator.errors import UserError
from validator.job.lag import Lag
from validator.job.orders import ORDERED, awaits_order, command_of, remedy_of
from validator.lanes.configured import job_directory
from validator.lanes.kept_start import kept_starts
from validator.sentences import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from validator.console.model import Model
    from validator.lanes.kept_start import LaneStart
    from validator.transports.lines import Fed


RECENT_EVENTS: Final = 8


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
            "strip": strip(blocks, LaneLink.of(lane.name)),
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
            "rate_now": f"{recent:,.1f}",
            "latency": latency,
            "latency_half": half,
            "latency_most": most,
            "parked": parked_of(lane, console.lag(lane.name)),
        },
    )


def lane_row(lane: LaneModel, lag: Lag | None) -> dict[str, Any]:
    """Return a lane's row of the overview."""
    state, word = state_of(lane, lag)
    names = ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
    account = None if lane.status is None else {name: lane.status[name] for name in names}
    return {
        "name": lane.name,
        "link": LaneLink.of(lane.name),
        "state": state,
        "word": word,
        "executed": lane.executed_block,
        "session": lane.session,
        "lag": lag,
        "waits": _waits_parked(lane, lag) if lane.parked else waits(lane, lag),
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


def parked_of(lane: LaneModel, lag: Lag | None) -> dict[str, Any] | None:
    """Return why a lane is parked and what to do, or that it is ordered to resume; None if it is not parked."""
    if lane.parked is None:
        return None
    ordered = ORDERED if _has_order(lane, lag) else None
    to_do = {"remedy": remedy_of(lane.parked), "command": command_of(lane.name, lane.parked["fault"])}
    return {**lane.parked, **to_do, "ordered": ordered}


def _waits_parked(lane: LaneModel, lag: Lag | None) -> str:
    return "the job to take the order to resume" if _has_order(lane, lag) else "an order to resume"


def _has_order(lane: LaneModel, lag: Lag | None) -> bool:
    return lag is not None and awaits_order(lane.parked, lane.parked_ms, lag)


NAMED_MAX: Final = 6
"""Paras or channels that a line names."""
RECENT_VERDICTS: Final = 2_000
"""Newest verdicts among which repeated rejections are looked for."""
REPEATED_MIN: Final = 3
"""Equal rejections of a para in a row that are worth a line."""
UPWARD_LOW: Final = 1
"""Upward messages left at which a queue is nearly full."""
BEHIND_BLOCKS_MIN: Final = 10
"""Blocks behind from which on a lane needs attention."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One line: what is wrong, about what, and the page that shows it. ``severity`` is ``bad`` or ``warn``."""

    severity: str
    title: str
    text: str
    link: str


def causes(model: Model, lane: LaneModel, lag: Lag | None, fed: Fed | None = None, now_ms: int = 0) -> list[Cause]:
    """Return everything about a lane that needs attention, the worst first; ``fed`` says which transport sends its blocks."""
    found = [
        *_silence(lane, fed, now_ms),
        *_lane(lane, lag),
        *_other_lanes(model, lane),
        *_channels(lane),
        *_paras(lane),
        *_rejections(lane),
        *_requests(lane),
        *_letters(model),
    ]
    return sorted(found, key=lambda cause: cause.severity != "bad")


def _lane(lane: LaneModel, lag: Lag | None) -> Iterator[Cause]:
    home = LaneLink.of(lane.name)
    if lane.parked is not None:
        title = f"{lane.name} is {lane.parked['state']}"
        was = "it was parked: " if lane.parked["state"] == "resuming" else ""
        yield Cause("bad", title, f"{was}{lane.parked['fault']}: {lane.parked['reason']}", f"{home}#parked")
    if lane.audit_fault is not None:
        title = f"The audit of {lane.name} has found a fault in block {count(lane.audit_fault['block'])}"
        yield Cause("bad", title, f"{lane.audit_fault['check']}: {lane.audit_fault['detail']}", f"{home}#audit")
    if lag is not None and lag.blocks >= BEHIND_BLOCKS_MIN:
        least = "" if lag.complete else "at least "
        text = f"{plural(lag.records, 'record')} for it are not consumed."
        yield Cause("warn", f"{lane.name} is {least}{plural(lag.blocks, 'block')} behind", text, home)
    if len(lane.digests) > 1 and lane.digests[-1].first_block <= lane.digests[-2].last_block:
        text = "Receipts of one block name two runtimes: two jobs may write here."
        yield Cause("bad", f"{lane.name} has two runtime digests for one block", text, f"{home}/runtime")


def _other_lanes(model: Model, lane: LaneModel) -> Iterator[Cause]:
    """Yield the other lanes that are parked: an overview may be the only page that somebody looks at."""
    for other in model.lanes.values():
        if other is not lane and other.parked is not None:
            link = f"{LaneLink.of(other.name)}#parked"
            yield Cause("bad", f"{other.name} is {other.parked['state']}", other.parked["reason"], link)


def _silence(lane: LaneModel, fed: Fed | None, now_ms: int) -> Iterator[Cause]:
    """Yield that a lane which a transport feeds gets no new block. Without the record of one, its last status says since when."""
    since_ms = lane.newest_block_ms or lane.status_ms
    if fed is None or not since_ms:
        return
    expected_ms = fed.silent_after_s * 1_000
    if now_ms - since_ms > expected_ms:
        text = f"Transport {fed.transport} waits, has ended, or was never started; expected within {duration(expected_ms)}."
        yield Cause(
            "bad", f"No new block of {lane.name} for {duration(now_ms - since_ms)}", text, LaneLink.of(lane.name)
        )


def _channels(lane: LaneModel) -> Iterator[Cause]:
    for state, severity, title in (("full", "bad", "full"), ("nearly", "warn", "nearly full")):
        ends = [ends for ends, channel in lane.channels.items() if channel.state == state]
        if ends:
            verb = "is" if len(ends) == 1 else "are"
            named = [f"{sender} → {recipient}" for sender, recipient in ends]
            yield Cause(
                severity,
                f"{plural(len(ends), 'channel')} {verb} {title}",
                _named(named),
                f"{LaneLink.of(lane.name)}/channels",
            )


def _paras(lane: LaneModel) -> Iterator[Cause]:
    now = [(para, kept.now) for para, kept in lane.paras.items() if kept.now is not None and kept.now["valid"]]
    full = [para for para, record in now if record["upward_count_left"] == 0 or record["upward_bytes_left"] == 0]
    low = [para for para, record in now if 0 < record["upward_count_left"] <= UPWARD_LOW and para not in full]
    for paras, severity, title in ((full, "bad", "full"), (low, "warn", "nearly full")):
        if paras:
            verb = "is" if len(paras) == 1 else "are"
            text = f"Para {_named(list(map(str, paras)))}"
            yield Cause(
                severity,
                f"{plural(len(paras), 'upward queue')} {verb} {title}",
                text,
                f"{LaneLink.of(lane.name)}/paras",
            )
    still = [para for para, _ in now if _stands_still(lane, para)]
    if still:
        verb = "stands" if len(still) == 1 else "stand"
        text = f"Messages wait for para {_named(list(map(str, still)))}"
        yield Cause("warn", f"{plural(len(still), 'watermark')} {verb} still", text, f"{LaneLink.of(lane.name)}/paras")


def _stands_still(lane: LaneModel, para: int) -> bool:
    """Whether messages have waited for a para over three headroom records, and its watermark was the same in all of them."""
    records = list(lane.paras[para].records)[-3:]
    return (
        len(records) == 3
        and all(record["valid_watermarks"] for record in records)
        and len({record["watermark"] for record in records}) == 1
    )


def _rejections(lane: LaneModel) -> Iterator[Cause]:
    """Yield the paras whose newest verdicts are the same rejection several times in a row."""
    runs: Counter[tuple[int, str]] = Counter()
    ended: set[int] = set()
    for verdict in islice(lane.newest(), RECENT_VERDICTS):
        if verdict.para_id in ended or verdict.kind != "candidate":
            continue
        first = next((error for para, error in runs if para == verdict.para_id), verdict.error)
        if verdict.error is None or verdict.error != first:
            ended.add(verdict.para_id)
        else:
            runs[verdict.para_id, verdict.error] += 1
    for (para, error), times in sorted(runs.items(), key=lambda item: -item[1]):
        if times >= REPEATED_MIN:
            link = f"{LaneLink.of(lane.name)}/paras/{para}"
            yield Cause("warn", f"Para {para} was rejected {times} times in a row", error, link)


def _requests(lane: LaneModel) -> Iterator[Cause]:
    session = lane.session
    old = [ends for ends, request in lane.requests.items() if session is not None and request.session < session - 1]
    waiting = [ends for ends in old if lane.requests[ends].confirmed_block is None]
    if waiting:
        named = [f"{sender} → {recipient}" for sender, recipient in waiting]
        title = f"{plural(len(waiting), 'request')} for channels not accepted for two sessions"
        yield Cause("warn", title, _named(named), f"{LaneLink.of(lane.name)}/channels#requests")


def _letters(model: Model) -> Iterator[Cause]:
    letters = model.not_put_back()
    if letters:
        reasons = Counter(letter.reason for letter in letters)
        text = ", ".join(f"{count(number)} {reason}" for reason, number in reasons.most_common(NAMED_MAX))
        verb = "was" if len(letters) == 1 else "were"
        yield Cause("warn", f"{plural(len(letters), 'dead letter')} {verb} not put back", text, "/dead-letters?done=no")


def _named(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "") + "."


def runtime_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """Plugins and runtime digests by block, and what handlers did."""
    lane = console.lane(path["lane"])
    problem, start = "", None
    try:
        start = kept_starts(job_directory(console.config) / "lanes").get(lane.name)
    except (UserError, OSError) as error:
        problem = str(error)
    chain = console.config.chains.get(lane.name)
    return Page(
        "runtime.html",
        {
            **console.common("runtime", lane),
            "problem": problem,
            "digests": [(span, _plugins(start, span.digest)) for span in reversed(lane.digests)],
            "epochs": [] if start is None else list(reversed(start.epochs)),
            "changes": [] if start is None else list(start.changes)[-LIST_MAX:],
            "handled": sorted(lane.handled.items(), key=lambda item: -item[1].messages),
            "failures": list(reversed(lane.failures)),
            "blocks": list(reversed(lane.blocks))[:20],
            "limits": {} if chain is None else {**chain.limit_tables()},
            "protocol": console.protocol(lane.name),
            "configured": chain is not None,
            "dispatched": sum(handled.messages for handled in lane.handled.values()),
        },
    )


def _plugins(start: LaneStart | None, digest: str) -> list[Any]:
    """Return the plugins behind a digest, if the job's folder still says so."""
    wanted = digest.removeprefix("0x")
    found = () if start is None else (epoch.plugins for epoch in start.epochs if epoch.digest == wanted)
    return list(next(iter(found), ()))
