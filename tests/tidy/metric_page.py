# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of `docs/metrics.md` from the definitions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from validator_channel.gateway.plugin import METRICS as GATEWAY
from validator_journeys.closed_job import JOB as CLOSED_JOB
from validator_journeys.closed_job import METRICS as CLOSED
from validator_journeys.job import JOB as JOURNEYS_JOB
from validator_journeys.job import METRICS as JOURNEYS
from validator_relay_chain.figures import FOLLOWED, JUDGED
from validator_webhook.figures import METRICS as WEBHOOKS
from validator_xcmp_bodies.job import JOB
from validator_xcmp_bodies.job import METRICS as BODIES

from validator.metrics.definitions import METRICS, Metric, Origin
from validator.metrics.own import exported
from validator.metrics.report import KEY, TRANSPORT

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"

GROUPS: Final[dict[str, str]] = {
    "The job": "job|build|metrics",
    "Lanes": "lane",
    "Paras": "para",
    "Channels": "channel",
    "Transports": "transport",
    "Channel gateways": "plugin_channel",
    "Bodies of XCMP messages": "plugin_xcmp_bodies",
    "Journeys of messages": "plugin_journeys",
    "Chains that are followed": "plugin_relay_chain",
    "Webhooks": "plugin_webhook",
}
"""Headings, with how the names of their metrics begin."""

OF_PLUGINS: Final = (
    *exported("channel", TRANSPORT, GATEWAY).values(),
    *exported(JOB, KEY, BODIES).values(),
    *exported(JOURNEYS_JOB, KEY, JOURNEYS).values(),
    *exported(CLOSED_JOB, KEY, CLOSED).values(),
    *exported("relay-chain", TRANSPORT, FOLLOWED).values(),
    *exported("relay-chain.judge", TRANSPORT, JUDGED).values(),
    *exported("webhook", TRANSPORT, WEBHOOKS).values(),
)
"""What the plugins of this tree declare."""

_KNOWN_BY: Final = {
    Origin.JOB: "driver",
    Origin.TOPICS: "driver",
    Origin.WORKER: "worker",
    Origin.TRANSPORT: "transport",
}


def tables() -> str:
    """Return all tables with their headings, as Markdown."""
    parts = []
    for heading, starts in GROUPS.items():
        rows = [_row(metric) for metric in (*METRICS, *OF_PLUGINS) if re.match(rf"validator_({starts})_", metric.name)]
        header = ["| metric | kind | labels | known by | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"### {heading}", *header, *rows]))
    return "\n\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {_KNOWN_BY[metric.origin]} | {metric.help} |"


def made() -> dict[Path, str]:
    """Return the page with the present tables, which are its end."""
    text = PAGE.read_text(encoding="utf-8")
    return {PAGE: re.sub(r"^### The job\n.*", lambda _: tables() + "\n", text, count=1, flags=re.MULTILINE | re.DOTALL)}
