# SPDX-License-Identifier: Apache-2.0
"""Which code judged which block: runtime digests, plugins, dispatches of upward messages, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.console.context import ConsoleContext, Page, Query
from validator.console.limits import LIST_MAX
from validator.errors import UserError
from validator.lanes.configured import job_directory
from validator.lanes.kept_start import kept_starts

if TYPE_CHECKING:
    from validator.lanes.kept_start import LaneStart


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
