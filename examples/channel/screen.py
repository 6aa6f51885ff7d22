# SPDX-License-Identifier: Apache-2.0
"""The live screen: both sides of each session, from the record to the verdict."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from traffic import Peer, Traffic

TAPE_ROWS = 7


def draw(traffic: Traffic, status: str, seconds: float, rows: int = TAPE_ROWS) -> RenderableType:
    """Return the screen as it is now, with this many rows of each team's latest events."""
    title = Text.assemble(("Channel", "bold"), f"  {traffic.blocks_sent} blocks  {seconds:.0f} s  ", (status, "yellow"))
    return Group(
        title, _peers(traffic), *(_panel(peer, rows) for peer in traffic.peers if peer.files.paras is not None)
    )


def _peers(traffic: Traffic) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    headings = (
        "peer",
        "speaks for",
        "sent",
        "acknowledged",
        "again",
        "refused",
        "p50 ms",
        "wire out",
        "wire in",
        "verdicts",
        "ok",
        "rejected",
    )
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at < 2 else "right")
    for peer in traffic.peers:
        paras = "the relay chain" if peer.files.paras is None else ", ".join(map(str, peer.files.paras))
        latency = "" if peer.latency_ms is None else f"{peer.latency_ms:.1f}"
        numbers = (peer.sent, peer.acknowledged, peer.resubmitted, peer.refused)
        results = (peer.verdicts, peer.accepted, peer.rejected)
        sizes = (f"{peer.wire.sent:,}", f"{peer.wire.received:,}")
        table.add_row(peer.name, paras, *map(str, numbers), latency, *sizes, *map(str, results))
    return table


def _panel(peer: Peer, rows: int) -> Panel:
    tape = [Text.from_markup(line, overflow="ellipsis") for line in list(peer.tape)[-rows:]]
    sealed = Text.assemble(
        ("on the wire  ", "dim"), (peer.wire.last.hex(" "), "magenta"), (" ...", "dim"), overflow="ellipsis"
    )
    blank = [Text("")] * (rows - len(tape))
    return Panel(Group(*tape, *blank, sealed), title=f"{peer.name}", title_align="left", border_style="cyan")
