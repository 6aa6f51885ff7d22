# SPDX-License-Identifier: Apache-2.0
"""How `validator messages` shows messages and queues: JSON lines, a table on a terminal, else a line for each."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.live import Live
from rich.table import Table

from validator.cli.command_api import VisibleConsole
from validator_xcmp_bodies.follow import Delivery

Message: TypeAlias = tuple[Delivery, list[bytes]]
"""What is handed over, and the payloads of its body."""

COLUMNS: Final = ("block", "sender", "payloads", "bytes", "root", "acks", "watermark", "acked at it")
TABLE_FRAME_LINES: Final = 3
"""Lines of a terminal that the rows of a live table leave free."""


def show_messages(
    lane: str, messages: Iterable[Message], *, as_json: bool, follow: bool, console: Console | None = None
) -> None:
    """Show a recipient's messages as they come; ``follow`` redraws the table for each, else it is printed at the end."""
    console = VisibleConsole() if console is None else console
    if as_json:
        _print(json.dumps(message_document(lane, *message)) for message in messages)
    elif not console.is_terminal:
        _print(_line(*message) for message in messages)
    elif follow:
        _show_live(messages, console)
    else:
        console.print(_table(_cells(*message) for message in messages))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _show_live(messages: Iterable[Message], console: Console) -> None:
    rows: deque[tuple[str, ...]] = deque(maxlen=max(1, console.height - TABLE_FRAME_LINES))
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for message in messages:
            rows.append(_cells(*message))
            live.update(_table(rows), refresh=True)


def message_document(lane: str, delivery: Delivery, payloads: list[bytes]) -> dict[str, Any]:
    """Return a message as JSON: what `follow --json` prints, and what an inbox gets."""
    held = delivery.held
    return {
        "lane": lane,
        "recipient": held.recipient,
        "sent_at": held.sent_at,
        "sender": held.sender,
        "root": held.root.hex(),
        "size": held.size,
        "payloads": [payload.hex() for payload in payloads],
        "position": f"{held.sent_at}/{held.sender}",
        "acks": [list(name) for name in delivery.acks],
        "watermark": {"block": delivery.watermark.block, "acked": list(delivery.watermark.acked)},
    }


def _line(delivery: Delivery, payloads: list[bytes]) -> str:
    held, watermark = delivery.held, delivery.watermark
    acked = f" and {', '.join(map(str, watermark.acked))} at it" if watermark.acked else ""
    return (
        f"{held.sent_at}/{held.sender}: {len(payloads)} payloads, {held.size} bytes, root {held.root.hex()[:16]}; "
        f"acknowledge {len(delivery.acks)}: everything below {watermark.block}{acked}"
    )


def _cells(delivery: Delivery, payloads: list[bytes]) -> tuple[str, ...]:
    held, watermark = delivery.held, delivery.watermark
    numbers = (held.sent_at, held.sender, len(payloads), held.size)
    rest = (f"{held.root.hex()[:16]}...", str(len(delivery.acks)), str(watermark.block))
    return (*map(str, numbers), *rest, ", ".join(map(str, watermark.acked)))


def _table(rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in COLUMNS:
        left = name in ("root", "acked at it")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def show_statuses(rows: list[dict[str, Any]]) -> None:
    """Print a table of queues."""
    table = Table("chain", "para", "height", "unread", "missing", "waiting bytes", "front", "age", "alarm", box=None)
    for row in rows:
        front = row["front"]
        where = "" if front is None else f"{front['sent_at']}/{front['sender']}{'' if front['held'] else ' (missing)'}"
        numbers = (row["height"], row["unread"], row["missing"], row["waiting_bytes"])
        age = "" if row["front_age_blocks"] is None else str(row["front_age_blocks"])
        alarm = "ALARM" if row["alarm"] else ""
        table.add_row(row["lane"], str(row["recipient"]), *map(str, numbers), where, age, alarm)
    VisibleConsole(soft_wrap=True).print(table)
