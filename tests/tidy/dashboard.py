# SPDX-License-Identifier: Apache-2.0
"""Writes the Grafana dashboard `deploy/grafana/validator.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "validator.json"

COLUMNS: Final = 24
HEIGHT: Final = 8
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}

_LANE: Final = 'lane=~"$lane"'
_PARA: Final = f'{_LANE}, para=~"$para"'
_CHANNEL: Final = f"{_LANE}"


class Panel(NamedTuple):
    """A panel: what it is called and shows; ``queries`` are expressions with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 8
    kind: str = "timeseries"
    note: str = ""


def _rate(name: str, labels: str = _LANE) -> str:
    return f"rate({name}{{{labels}}}[$__rate_interval])"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Now": (
        Panel("Job", "short", (("validator_job_ready", "ready"), ("validator_job_outage", "outage")), 4, "stat"),
        Panel("Lanes parked", "short", (("count(validator_lane_parked) or vector(0)", "parked"),), 4, "stat"),
        Panel("Behind", "s", ((f"validator_lane_seconds_behind{{{_LANE}}}", "{{lane}}"),), 4, "stat"),
        Panel("Records left for the next batch", "short", (("validator_job_unread_records", "records"),), 4, "stat"),
        Panel("What lanes wait for", "short", ((f"validator_lane_waits{{{_LANE}}}", "{{lane}}: {{what}}"),), 8, "stat"),
    ),
    "Lanes": (
        Panel("Blocks behind", "short", ((f"validator_lane_blocks_behind{{{_LANE}}}", "{{lane}}"),)),
        Panel(
            "Records by outcome",
            "cps",
            ((f"sum by (lane, outcome) ({_rate('validator_lane_records_total')})", "{{lane}} {{outcome}}"),),
        ),
        Panel(
            "Rejections by error kind",
            "cps",
            ((f"sum by (lane, kind) ({_rate('validator_lane_rejections_total')})", "{{lane}} {{kind}}"),),
        ),
        Panel("Executed block", "none", ((f"validator_lane_executed_block{{{_LANE}}}", "{{lane}}"),)),
        Panel("Waiting records", "short", ((f"validator_lane_waiting_records{{{_LANE}}}", "{{lane}}"),)),
        Panel(
            "Memory of waiting records and fingerprints",
            "bytes",
            (
                (f"validator_lane_waiting_memory_bytes{{{_LANE}}}", "{{lane}} waiting"),
                (f"validator_lane_window_memory_bytes{{{_LANE}}}", "{{lane}} fingerprints"),
            ),
        ),
        Panel(
            "State",
            "bytes",
            (
                (f"validator_lane_pages_bytes{{{_LANE}}}", "{{lane}} pages"),
                (f"validator_lane_journal_bytes{{{_LANE}}}", "{{lane}} journal"),
            ),
        ),
        Panel(
            "Recoveries",
            "short",
            (
                (
                    f"sum by (lane, how) (increase(validator_lane_recoveries_total{{{_LANE}}}[$__rate_interval]))",
                    "{{lane}} {{how}}",
                ),
            ),
        ),
        Panel(
            "Transactions",
            "cps",
            (
                (_rate("validator_lane_transactions_total"), "{{lane}} committed"),
                (_rate("validator_lane_transaction_aborts_total"), "{{lane}} aborted"),
            ),
        ),
        Panel(
            "Channel requests",
            "short",
            (
                (f"validator_lane_requests{{{_LANE}}}", "{{lane}} {{state}}"),
                (f"validator_lane_requests_expiring{{{_LANE}}}", "{{lane}} about to expire"),
            ),
        ),
        Panel(
            "Candidates that are not enacted", "short", ((f"validator_lane_pending_candidates{{{_LANE}}}", "{{lane}}"),)
        ),
        Panel(
            "Time of batches in the worker",
            "percentunit",
            (
                (
                    f"sum by (lane, part) ({_rate('validator_lane_batch_part_seconds_total')})",
                    "{{lane}} {{part}}",
                ),
            ),
        ),
    ),
    "Paras": (
        Panel(
            "Watermark lag",
            "none",
            ((f"validator_para_watermark_lag_blocks{{{_PARA}}}", "{{lane}} {{para}}"),),
            note="blocks",
        ),
        Panel(
            "Age of the oldest downward message",
            "none",
            ((f"validator_para_downward_oldest_age_blocks{{{_PARA}}}", "{{lane}} {{para}}"),),
            note="blocks",
        ),
        Panel(
            "Age of the first upward message",
            "none",
            ((f"validator_para_upward_head_age_blocks{{{_PARA}}}", "{{lane}} {{para}}"),),
            note="dispatch rounds",
        ),
        Panel(
            "Upward queue used",
            "percentunit",
            (
                (f"validator_para_upward_messages_used_ratio{{{_PARA}}}", "{{lane}} {{para}} messages"),
                (f"validator_para_upward_bytes_used_ratio{{{_PARA}}}", "{{lane}} {{para}} bytes"),
            ),
        ),
        Panel(
            "Messages dispatched and sent down",
            "cps",
            (
                (_rate("validator_para_upward_dispatched_total", _PARA), "{{lane}} {{para}} up"),
                (_rate("validator_para_downward_sent_total", _PARA), "{{lane}} {{para}} down"),
            ),
        ),
        Panel(
            "Rejections",
            "cps",
            ((_rate("validator_para_rejections_total", _PARA), "{{lane}} {{para}} {{kind}}"),),
        ),
    ),
    "Channels": (
        Panel(
            "Fullest channels",
            "percentunit",
            (
                (
                    f"topk(10, validator_channel_messages_used_ratio{{{_CHANNEL}}})",
                    "{{sender}} → {{recipient}} messages",
                ),
                (f"topk(10, validator_channel_bytes_used_ratio{{{_CHANNEL}}})", "{{sender}} → {{recipient}} bytes"),
            ),
        ),
        Panel(
            "Most messages",
            "cps",
            ((f"topk(10, {_rate('validator_channel_messages_total', _CHANNEL)})", "{{sender}} → {{recipient}}"),),
        ),
        Panel(
            "Most bytes",
            "Bps",
            ((f"topk(10, {_rate('validator_channel_message_bytes_total', _CHANNEL)})", "{{sender}} → {{recipient}}"),),
        ),
        Panel(
            "Oldest messages",
            "none",
            ((f"topk(10, validator_channel_oldest_age_blocks{{{_CHANNEL}}})", "{{sender}} → {{recipient}}"),),
            note="blocks",
        ),
    ),
    "Job": (
        Panel(
            "Duration of batches",
            "s",
            (
                (
                    "histogram_quantile(0.5, rate(validator_job_batch_duration_seconds_bucket[$__rate_interval]))",
                    "median",
                ),
                (
                    "histogram_quantile(0.95, rate(validator_job_batch_duration_seconds_bucket[$__rate_interval]))",
                    "95 %",
                ),
            ),
        ),
        Panel(
            "Time of batches by part",
            "percentunit",
            (("rate(validator_job_batch_part_seconds_total[$__rate_interval])", "{{part}}"),),
        ),
        Panel("Records", "cps", (("rate(validator_job_records_total[$__rate_interval])", "read"),)),
        Panel(
            "Dead letters", "short", (("increase(validator_job_dead_letters_total[$__rate_interval])", "{{reason}}"),)
        ),
        Panel("Restarts", "short", (("increase(validator_job_restarts_total[$__rate_interval])", "restarts"),)),
    ),
    "Transports": (
        Panel(
            "Records written",
            "cps",
            (("rate(validator_transport_written_records_total[$__rate_interval])", "{{transport}} {{topic}}"),),
        ),
        Panel(
            "Records received",
            "cps",
            (("rate(validator_transport_received_records_total[$__rate_interval])", "{{transport}} {{topic}}"),),
        ),
        Panel(
            "Not confirmed, not acknowledged, refused",
            "short",
            (
                ("validator_transport_unconfirmed_records", "{{transport}} not confirmed"),
                ("validator_transport_unacknowledged_records", "{{transport}} not acknowledged"),
                ("increase(validator_transport_refused_records_total[$__rate_interval])", "{{transport}} refused"),
            ),
        ),
    ),
    "Chains that are followed": (
        Panel(
            "Behind the finalised head, and blocks not compared",
            "short",
            (
                ("validator_plugin_relay_chain_blocks_behind", "{{lane}} behind its node"),
                (
                    (
                        "max by (lane) (validator_plugin_relay_chain_followed_block)"
                        " - max by (lane) (validator_plugin_relay_chain_judge_compared_block)"
                    ),
                    "{{lane}} not compared",
                ),
            ),
        ),
        Panel(
            "Disagreements with the chain",
            "short",
            (
                (
                    "sum by (lane, kind, reason) (increase(validator_plugin_relay_chain_judge_disagreements_total[$__rate_interval])) > 0",
                    "{{lane}} {{kind}} ({{reason}})",
                ),
            ),
        ),
        Panel(
            "Compared",
            "cps",
            (
                (
                    "sum by (lane, what) (rate(validator_plugin_relay_chain_judge_compared_total[$__rate_interval]))",
                    "{{lane}} {{what}}",
                ),
            ),
        ),
        Panel(
            "Requests to nodes",
            "cps",
            (
                (
                    "sum by (lane) (rate(validator_plugin_relay_chain_node_requests_total[$__rate_interval]))",
                    "{{lane}} answered",
                ),
                (
                    "sum by (lane, reason) (rate(validator_plugin_relay_chain_node_retries_total[$__rate_interval]))",
                    "{{lane}} {{reason}}",
                ),
            ),
        ),
    ),
    "Bodies of XCMP messages": (
        Panel(
            "Queues",
            "short",
            (
                ("sum(validator_plugin_xcmp_bodies_unread_messages)", "unread"),
                ("sum(validator_plugin_xcmp_bodies_missing_bodies)", "without a body"),
                ("sum(validator_plugin_xcmp_bodies_alarms)", "alarms"),
            ),
        ),
        Panel(
            "Bodies",
            "cps",
            (
                ("sum(rate(validator_plugin_xcmp_bodies_held_bodies_total[$__rate_interval]))", "held"),
                (
                    "sum by (kind) (rate(validator_plugin_xcmp_bodies_refused_records_total[$__rate_interval]))",
                    "refused: {{kind}}",
                ),
                ("sum(rate(validator_plugin_xcmp_bodies_requests_total[$__rate_interval]))", "requested"),
            ),
        ),
    ),
    "Journeys of messages": (
        Panel(
            "Messages that wait",
            "short",
            (
                ("sum by (kind) (validator_plugin_journeys_waiting_messages)", "{{kind}}"),
                ("max by (key) (validator_plugin_journeys_oldest_age_blocks)", "{{key}}: oldest, blocks"),
            ),
        ),
        Panel(
            "Messages that ended",
            "cps",
            (
                (
                    "sum by (kind, outcome) (rate(validator_plugin_journeys_ended_messages_total[$__rate_interval]))",
                    "{{kind}} {{outcome}}",
                ),
                ("sum(rate(validator_plugin_journeys_overdue_messages_total[$__rate_interval]))", "overdue"),
            ),
        ),
    ),
    "Channel gateways": (
        Panel(
            "Sessions and feeds",
            "short",
            (
                ("validator_plugin_channel_sessions", "{{transport}} sessions"),
                ("validator_plugin_channel_feeds", "{{transport}} feeds"),
                ("validator_plugin_channel_feeds_catching_up", "{{transport}} feeds behind"),
            ),
        ),
        Panel(
            "Records",
            "cps",
            (
                ("rate(validator_plugin_channel_received_records_total[$__rate_interval])", "{{transport}} received"),
                ("rate(validator_plugin_channel_delivered_records_total[$__rate_interval])", "{{transport}} delivered"),
                ("rate(validator_plugin_channel_refused_total[$__rate_interval])", "{{transport}} refused: {{reason}}"),
            ),
        ),
        Panel(
            "Time of handshakes and acknowledgements",
            "s",
            (
                (
                    (
                        "rate(validator_plugin_channel_handshake_seconds_total[$__rate_interval])"
                        " / rate(validator_plugin_channel_handshakes_total[$__rate_interval])"
                    ),
                    "{{transport}} handshake",
                ),
                (
                    (
                        "rate(validator_plugin_channel_acknowledgement_seconds_total[$__rate_interval])"
                        " / rate(validator_plugin_channel_acknowledged_records_total[$__rate_interval])"
                    ),
                    "{{transport}} acknowledgement",
                ),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({
            "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        })  # fmt: skip
        y, x = y + 1, 0
        for panel in row:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            panels.append(_panel(panel, len(panels) + 1, x, y))
            x += panel.width
        y += HEIGHT
    return {
        "uid": "validator", "title": "validator", "tags": ["validator"], "schemaVersion": 39, "version": 1, "editable": True,
        "timezone": "browser", "refresh": "15s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            _variable("lane", "label_values(validator_lane_state, lane)"),
            _variable("para", f"label_values(validator_para_upward_messages{{{_LANE}}}, para)"),
        ]},
        "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for at, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number, "type": panel.kind, "title": f"{panel.title}, {panel.note}" if panel.note else panel.title, "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }  # fmt: skip


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "refresh": 2,
        "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def made() -> dict[Path, str]:
    """Return the file's text."""
    return {DASHBOARD: json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"}
