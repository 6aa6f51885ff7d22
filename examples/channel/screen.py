# SPDX-License-Identifier: Apache-2.0
"""What a run looks like: the live screen, at a terminal of 80 columns or more, and plain lines elsewhere."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from traffic import Peer, Traffic

TAPE_ROWS = 7
TITLE_ROWS: Final = 1
PANEL_ROWS: Final = 3
"""Rows of a team's panel besides its events: two borders, and the bytes on the wire."""

COLUMNS: Final[dict[str, str]] = {
    "peer": "",
    "paras": "that it speaks for",
    "sent": "records submitted",
    "acked": "of these, in Kafka",
    "resent": "sent again in a new session, since the gateway died before it acknowledged them",
    "refused": "by the gateway",
    "ack ms": "median from sending to acknowledgement",
    "kB out": "",
    "kB in": "bytes on the wire, sealed",
    "verdicts": "received",
    "bad": "of these, rejected by the rules",
}
"""The headings of the table, and what they mean if they do not say so themselves."""

NOTES: Final = "  ".join(f"[b]{name}[/b]: {meaning}." for name, meaning in COLUMNS.items() if meaning)


def draw(traffic: Traffic, status: str, seconds: float, height: int | None = None) -> RenderableType:
    """Return the screen as it is now; ``height`` are the rows of the terminal, if it matters."""
    title = Text.assemble(("Channel", "bold"), f"  {traffic.blocks_sent} blocks  {seconds:.0f} s  ", (status, "yellow"))
    title.no_wrap, title.overflow = True, "ellipsis"
    teams = [peer for peer in traffic.peers if peer.files.paras is not None]
    rows = TAPE_ROWS if height is None else _rows(height, len(traffic.peers), len(teams))
    notes = Text.from_markup(NOTES, style="dim")
    return Group(title, _peers(traffic), notes, *(_panel(peer, rows) for peer in teams))


def progress_line(traffic: Traffic) -> str:
    """Return how far a run is, in one line without decoration."""
    peers = traffic.peers
    sent, acknowledged, resent = (
        sum(getattr(peer, name) for peer in peers) for name in ("sent", "acknowledged", "resubmitted")
    )
    # every verdict reaches the relay chain's node, and those of teams their teams, too
    verdicts, rejected = traffic.relay.verdicts, traffic.relay.rejected
    return (
        f"{traffic.blocks_sent} blocks: {sent} records sent, {acknowledged} acknowledged, {resent} of them resent;"
        f" {verdicts} verdicts, {rejected} of them rejected"
    )


def _rows(height: int, peers: int, teams: int) -> int:
    """Return the events that each panel has room for: the notes take four rows at 80 columns, and the cursor one."""
    left = height - TITLE_ROWS - (peers + 1) - 4 - 1
    return max(1, min(TAPE_ROWS, left // teams - PANEL_ROWS))


def _peers(traffic: Traffic) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for at, heading in enumerate(COLUMNS):
        table.add_column(heading, justify="left" if at < 2 else "right", no_wrap=True)
    for peer in traffic.peers:
        paras = "all" if peer.files.paras is None else ", ".join(map(str, peer.files.paras))
        latency = "" if peer.latency_ms is None else f"{peer.latency_ms:.0f}"
        numbers = (peer.sent, peer.acknowledged, peer.resubmitted, peer.refused)
        sizes = (f"{peer.wire.sent // 1000:,}", f"{peer.wire.received // 1000:,}")
        table.add_row(peer.name, paras, *map(str, numbers), latency, *sizes, str(peer.verdicts), str(peer.rejected))
    return table


def _panel(peer: Peer, rows: int) -> Panel:
    tape = [Text.from_markup(line) for line in list(peer.tape)[-rows:]]
    blank = [Text("") for _ in range(rows - len(tape))]
    sealed = Text.assemble(("on the wire  ", "dim"), (peer.wire.last.hex(" "), "magenta"), (" ...", "dim"))
    lines = [*tape, *blank, sealed]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Panel(Group(*lines), title=f"{peer.name}", title_align="left", border_style="cyan")
