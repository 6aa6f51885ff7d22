# SPDX-License-Identifier: Apache-2.0
"""Tables of `validator simulate network`, and the JSON Schema of its reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass
from rich.table import Table

from validator_simulators.network import COLUMNS, Group, Report, figures

if TYPE_CHECKING:
    from validator_simulators.network.command import Played


@dataclass(frozen=True, kw_only=True)
class Line(Report):
    """One line. `published` and `differs` are there only with --reference: the table's figures by column, and the columns that differ."""

    case: str
    published: dict[str, str] | None = None
    differs: list[str] | None = None


def json_schema() -> dict[str, Any]:
    """Return the schema; it allows no other members than those of the report."""
    schema = TypeAdapter(Line).json_schema()
    for part in (schema, *schema["$defs"].values()):
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


_PLACES = {"mean": 2, "p99": 0, "oldest": 0, "jain": 3, "refused": 3, "stalled": 0}


def report_tables(report: Report) -> list[Table]:
    """Return what was measured, next to what theory expects, and the bytes of each transport."""
    return [_measured(report), _transports(report)]


def reference_table(played: Iterable[Played]) -> Table:
    """Return the reference table: each figure with the published one behind it, marked if the two differ."""
    table = Table(
        title="Reference table: measured (published)",
        title_justify="left",
        caption="*: differs",
        caption_justify="left",
    )
    table.add_column("case", no_wrap=True)
    for heading in ("lag, mean", "lag, p99", "oldest unread", "Jain, bytes", "refused", "stalled", "law: lag, refused"):
        table.add_column(heading, justify="right")
    for each in played:
        measured = figures(each.report)
        cells = []
        for column in COLUMNS:
            text = f"{measured[column]:,.{_PLACES[column]}f}"
            if published := each.case.published.get(column):
                text += f" ({published})"
            cells.append(f"[yellow]* {text}[/yellow]" if column in each.differs else text)
        law = each.report.law
        table.add_row(each.case.name, *cells, f"{law.lag_blocks_max:.1f}, {law.refused_share:.3f}")
    return table


def _measured(report: Report) -> Table:
    settings = report.settings
    kind = f"traffic {settings.traffic}, policy {settings.policy}, seed {settings.seed}"
    table = Table(title=f"{settings.paras:,} paras, {settings.blocks:,} blocks, {kind}", title_justify="left")
    table.add_column("measured", no_wrap=True)
    groups = {"all": report.total}
    if report.honest and report.greedy:
        groups |= {"honest": report.honest, "greedy": report.greedy}
    columns = {name: _cells(group) for name, group in groups.items()}
    for name in columns:
        table.add_column(f"{name} recipients", justify="right")
    table.add_column("law", justify="right")
    laws = {
        "acknowledgement lag, mean [blocks]": f"up to {report.law.lag_blocks_max:,.1f}",
        "refused share": f"{report.law.refused_share:.3f}",
    }
    for row in columns["all"]:
        table.add_row(row, *(cells[row] for cells in columns.values()), laws.get(row, ""))
    return table


def _cells(group: Group) -> dict[str, str]:
    lag, delivery = group.lag_blocks, group.delivery_ms
    return {
        "recipients": f"{group.recipients:,}",
        "load": f"{group.load:.3f}",
        "messages offered": f"{group.offered_messages:,}",
        "messages acknowledged": f"{group.acknowledged_messages:,}",
        "refused share": f"{group.refused_share:.3f}",
        "refused, channel full": f"{group.refused_full_messages:,}",
        "refused, sender's bytes": f"{group.refused_size_messages:,}",
        "acknowledgement lag, mean [blocks]": f"{lag.mean:,.2f}",
        "acknowledgement lag, p50 / p99 / max [blocks]": f"{lag.p50:,} / {lag.p99:,} / {lag.max:,}",
        "delivery, mean [ms]": f"{delivery.mean:,.0f}",
        "delivery, p50 / p99 / max [ms]": f"{delivery.p50:,} / {delivery.p99:,} / {delivery.max:,}",
        "Jain's index of bytes": f"{group.jain_bytes:.4f}",
        "Jain's index of mean lag": f"{group.jain_lag:.4f}",
        "oldest unread message [blocks]": f"{group.oldest_unread_blocks:,}",
        "starved channels": f"{group.starved_channels:,}",
        "unread messages of a recipient, mean / max": f"{group.queue_messages_mean:,.1f} / {group.queue_messages_max:,}",
        "stalled blocks / blocks built": f"{group.stalled_blocks:,} / {group.builds:,}",
        "re-requests": f"{group.re_requests:,}",
    }


def _transports(report: Report) -> Table:
    settings = report.settings
    names = {
        "optimum": "one transfer for each body (optimum)",
        "direct": "direct, with re-requests",
        "kafka": f"Kafka, replication factor {settings.replication_factor}, consumer groups {settings.consumer_groups}",
        "tree": f"a tree to all of {settings.mesh_nodes:,} nodes",
        "flooding": f"flooding a mesh of {settings.mesh_nodes:,} nodes with {settings.mesh_degree} neighbours",
    }
    table = Table(title="Bytes moved for the bodies", title_justify="left")
    table.add_column("transport")
    table.add_column("GB", justify="right")
    table.add_column("times the optimum", justify="right")
    for cost in report.costs:
        table.add_row(names[cost.transport], f"{cost.bytes / 1e9:,.1f}", f"{cost.amplification:,.2f}")
    return table
