# SPDX-License-Identifier: Apache-2.0
"""Formats output records as table rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.cli.visible import printable

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[str, ...]

ACCEPTED: Final = "✔"
REJECTED: Final = "✘"

PAYLOAD_CHARACTERS: Final = 24


def why(error: Json) -> str:
    """Return the error's kind, then its fields."""
    fields = ", ".join(f"{name} {_plain(value)}" for name, value in error.items() if name != "kind")
    return f"{error['kind']}  {fields}" if fields else str(error["kind"])


def _plain(value: Any) -> str:
    """Format a channel as sender→recipient, and any other value unchanged."""
    return "→".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _effect(record: Json) -> str:
    if not record["ok"]:
        return f"{record.get('clause', '')}"
    parts = [] if record["enacted"] or record["kind"] != "candidate" else ["not enacted yet"]
    if record["effective_session"] is not None:
        parts.append(f"from session {record['effective_session']}")
    if record["expires_session"] is not None:
        parts.append(f"expires at session {record['expires_session']}")
    messages = len(record["messages"])
    if messages:
        parts.append(f"{messages} message{'s' if messages > 1 else ''} queued")
    return ", ".join(parts)


def _verdict(record: Json) -> Row:
    mark = ACCEPTED if record["ok"] else REJECTED
    place = record["lane"], str(record["block"]), record["kind"], str(record["index"]), str(record["para_id"])
    return *place, mark, "" if record["ok"] else why(record["error"]), _effect(record)


def _dispatch(record: Json) -> Row:
    payload = record["payload"]
    size = f"{len(payload) // 2} bytes "
    shown = payload if len(payload) <= PAYLOAD_CHARACTERS else payload[: PAYLOAD_CHARACTERS - 1] + "…"
    place = record["lane"], str(record["block"]), str(record["index"]), str(record["para_id"])
    mark = ACCEPTED if record["outcome"] == "ok" else REJECTED
    return *place, mark, str(record["weight"]), size + shown, record["failure"] or ""


def _event(record: Json) -> Row:
    place = record["lane"], str(record["block"]), str(record["session"])
    channel = f"{record['sender']}→{record['recipient']}"
    return *place, record["event"], channel, record["reason"] or "", deposits(record)


def deposits(record: Json) -> str:
    """Describe the deposits that an event moved."""
    parts = []
    for side in ("sender", "recipient"):
        for verb in ("reserved", "returned"):
            amount = record[f"{side}_{verb}"]
            if amount:
                parts.append(f"{side} {'+' if verb == 'returned' else '-'}{amount}")
    return ", ".join(parts)


def _headroom(record: Json) -> Row:
    if "para_id" in record:
        watermarks = ", ".join(map(str, record["valid_watermarks"][:8])) + (
            " …" if len(record["valid_watermarks"]) > 8 else ""
        )
        left = f"upward {record['upward_count_left']} messages, {record['upward_bytes_left']} bytes"
        more = f"{record['downward_pending']} downward pending; watermark {record['watermark']}; messages at {watermarks or 'no block'}"
        who, valid = f"para {record['para_id']}", record["valid"]
    else:
        left = f"{record['places_left']} places, {record['bytes_left']} bytes"
        more = f"at most {record['message_size_max']} bytes per message"
        who, valid = f"channel {record['sender']}→{record['recipient']}", record["open"]
    return record["lane"], str(record["block"]), who, left if valid else "gone", more if valid else ""


def _receipt(record: Json) -> Row:
    numbers = ("accepted", "rejected", "enacted", "dispatched", "weight_used")
    place = record["lane"], str(record["block"]), str(record["session"])
    root = record["state_root"]
    return (
        *place,
        *(str(record[name]) for name in numbers),
        f"{root[:16]}…" if root else "",
        f"{record['runtime_digest'][:16]}…",
    )


def _dead_letter(record: Json) -> Row:
    where = f"{record['topic']}[{record['partition']}]@{record['offset']}"
    block = "" if record["block"] is None else str(record["block"])
    return record["lane"], block, record["reason"], where, record["detail"]


COLUMNS: Final[dict[str, Row]] = {
    "verdicts": ("lane", "block", "kind", "index", "para", "", "why", "effect, or broken clause"),
    "dispatches": ("lane", "block", "index", "para", "", "weight", "payload", "failure"),
    "channel-events": ("lane", "block", "session", "event", "channel", "reason", "deposits"),
    "headroom": ("lane", "after block", "para or channel", "left", "details"),
    "receipts": (
        "lane",
        "block",
        "session",
        "accepted",
        "rejected",
        "enacted",
        "dispatched",
        "weight",
        "state root",
        "runtime",
    ),
    "dead-letters": ("lane", "block", "reason", "read from", "detail"),
}
"""Column headings by topic."""


def _visible(cells: Callable[[Json], Row]) -> Callable[[Json], Row]:
    return lambda record: tuple(map(printable, cells(record)))


ROWS: Final[dict[str, Callable[[Json], Row]]] = {
    "verdicts": _visible(_verdict),
    "dispatches": _visible(_dispatch),
    "channel-events": _visible(_event),
    "headroom": _visible(_headroom),
    "receipts": _visible(_receipt),
    "dead-letters": _visible(_dead_letter),
}
"""Functions that turn a record into its cells, by topic; every cell is `printable`."""

NUMBERS: Final = frozenset(
    {"block", "after block", "index", "para", "session", "accepted", "rejected", "enacted", "dispatched", "weight"}
)
"""Headings of right-aligned columns."""
