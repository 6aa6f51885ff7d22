# SPDX-License-Identifier: Apache-2.0
"""The list of paras, the page of one para, and its part of the checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from validator.console.channels import channel_row
from validator.console.context import ConsoleContext, Missing, Page, Query
from validator.console.limits import LIST_MAX
from validator.console.rendering import Curve, plot
from validator.console.verdicts import last_rejections
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.sentences import count

if TYPE_CHECKING:
    from markupsafe import Markup

    from validator.console.model import Json, KeptPara, LaneModel


REJECTIONS: Final = 10
"""Last rejections that a para's page shows."""
EVENTS: Final = 12
"""Last channel events that a para's page shows."""
NAMED_MAX: Final = 8
"""Valid watermarks that a para's page names."""


def paras_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """All paras with what they can still send."""
    lane = console.lane(path["lane"])
    paras = sorted(lane.paras)[:LIST_MAX]
    return Page(
        "paras.html",
        {
            **console.common("paras", lane),
            "rows": [_row(lane, para, lane.paras[para]) for para in paras],
            "known": len(lane.paras),
            "more": len(lane.paras) - len(paras),
        },
    )


def _row(lane: LaneModel, para: int, kept: KeptPara) -> dict[str, Any]:
    out = sum(ends[0] == para and channel.state != "gone" for ends, channel in lane.channels_of(para))
    into = sum(ends[1] == para and channel.state != "gone" for ends, channel in lane.channels_of(para))
    return {
        "para": para,
        "now": kept.now,
        "lag": _watermark_lag(kept.now),
        "out": out,
        "into": into,
        "verdicts": lane.tally.para[para],
        "rejected": lane.tally.rejected_of_para[para],
    }


def _watermark_lag(record: Json | None) -> int | None:
    """Return how many blocks a watermark is behind the block of its record."""
    return None if record is None or record["watermark"] is None else max(0, record["block"] - record["watermark"])


def para_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """One para: what it may send, its channels, requests, deposits and last rejections."""
    lane, para = console.lane(path["lane"]), int(path["para"])
    kept = lane.paras.get(para)
    channels = sorted((ends, channel) for ends, channel in lane.channels_of(para) if channel.state != "gone")
    if kept is None and not channels:
        raise Missing(_unknown(lane, para))
    rows = [channel_row(ends, channel) for ends, channel in channels]
    rejections, errors = last_rejections(lane.newest(), para, REJECTIONS)
    reserved, returned = lane.deposits(para)
    events = [event for event in reversed(lane.events) if para in (event["sender"], event["recipient"])]
    now = None if kept is None else kept.now
    return Page(
        "para.html",
        {
            **console.common("paras", lane),
            "para": para,
            "now": now,
            "watermark_lag": _watermark_lag(now),
            "watermarks": [] if now is None else now["valid_watermarks"][:NAMED_MAX],
            "more_watermarks": 0 if now is None else max(0, len(now["valid_watermarks"]) - NAMED_MAX),
            "lag_plot": _lag_plot(kept),
            "out": [row for row in rows if row["ends"][0] == para],
            "into": [row for row in rows if row["ends"][1] == para],
            "requests": [(ends, request) for ends, request in lane.requests.items() if para in ends][:LIST_MAX],
            "verdicts": lane.tally.para[para],
            "rejected": lane.tally.rejected_of_para[para],
            "rejections": rejections,
            "errors": errors.most_common(),
            "events": events[:EVENTS],
            "deposits": (reserved, returned),
            "events_from": None if not lane.events else lane.events[0]["block"],
            "failures": [each for each in reversed(lane.failures) if each["para_id"] == para][:REJECTIONS],
        },
    )


def _unknown(lane: LaneModel, para: int) -> str:
    nearest = sorted(lane.paras, key=lambda each: abs(each - para))[:NAMED_MAX]
    known = f" The nearest ones are {', '.join(map(str, sorted(nearest)))}." if nearest else ""
    return f"Lane {lane.name} has no para {para} that the console knows.{known}"


def _lag_plot(kept: KeptPara | None) -> Markup | None:
    """Return how many blocks the watermark was behind, by headroom record."""
    records = [] if kept is None else [record for record in kept.records if record["valid"]]
    if len(records) < 2:
        return None
    first, last = records[0]["block"], records[-1]["block"]
    wide = max(1, last - first)
    points = [((record["block"] - first) / wide, _float(_watermark_lag(record))) for record in records]
    label = f"Blocks that the watermark was behind, from block {count(first)} to {count(last)}"
    return plot([Curve("s-ok", points)], (count(first), count(last)), label, lambda value: f"{value:,.0f}")


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


def stored_page(console: ConsoleContext, path: dict[str, str], _query: Query) -> Page:
    """A para in the job's checkpoint, as `validator state show` has it."""
    lane, para = console.lane(path["lane"]), int(path["para"])
    if para > U32_MAX:
        raise Missing(_unknown(lane, para))
    problem, document = "", None
    try:
        document = console.stored.para(lane.name, para)
    except UserError as error:
        problem = str(error)
    return Page(
        "stored.html", {**console.common("paras", lane), "para": para, "document": document, "problem": problem}
    )
