# SPDX-License-Identifier: Apache-2.0
"""Formats output records as table rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.cli.table import cut
from validator.codec.json_form import error_fields
from validator.core.limits import UNREACHED
from validator.effects import effects, ranges
from validator.hexadecimal import bare
from validator.visible import printable

if TYPE_CHECKING:
    from collections.abc import Callable

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = tuple[str, ...]

ACCEPTED: Final = "✔"
REJECTED: Final = "✘"

HASH_CHARACTERS: Final = 16
SHORT_CHARACTERS: Final = {
    "payload": 32,
    "root": HASH_CHARACTERS,
    "state root": HASH_CHARACTERS,
    "runtime": HASH_CHARACTERS,
    "details": 160,
}
"""Characters of long cells on a terminal, by heading; a pipe gets all of them."""


def shortened(headings: Row, row: Row) -> Row:
    """Return a row for a terminal: with the beginnings of payloads and hashes."""
    limits = (SHORT_CHARACTERS.get(heading) for heading in headings)
    return tuple(cut(cell, limit) if limit else cell for cell, limit in zip(row, limits, strict=True))


def why(error: Json) -> str:
    """Return the error's kind, then its fields."""
    fields = ", ".join(f"{name} {_plain(value)}" for name, value in error_fields(error).items())
    return f"{error['kind']}  {fields}" if fields else str(error["kind"])


def _plain(value: Any) -> str:
    """Format a channel as sender→recipient, and any other value as a person writes it."""
    if isinstance(value, dict):
        return "→".join(map(_plain, value.values()))
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    return {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def _left(value: int, what: str) -> str:
    """Describe what is left of a limit; half of the greatest number is no limit that anybody reaches."""
    return f"any number of {what}" if value > UNREACHED else f"{value} {what}"


def _verdict(record: Json) -> Row:
    mark = ACCEPTED if record["ok"] else REJECTED
    place = record["lane"], str(record["block"]), record["kind"], str(record["index"]), str(record["para_id"])
    if record["ok"]:
        return *place, mark, "", ", ".join(effects(record))
    return *place, mark, why(record["error"]), str(record["error"].get("clause", ""))


def _dispatch(record: Json) -> Row:
    payload = record["payload"]
    shown = f"{len(bare(payload)) // 2} bytes {payload}"
    place = record["lane"], str(record["block"]), str(record["index"]), str(record["para_id"])
    mark = ACCEPTED if record["outcome"] == "ok" else REJECTED
    return *place, mark, str(record["weight"]), shown, _outcome(record)


def _outcome(record: Json) -> str:
    """Describe how a message was processed, if not well."""
    if record["outcome"] == "ok":
        return ""
    words = record["outcome"].replace("_", " ")
    return f"{words}: {record['failure']}" if record["failure"] else words


def _event(record: Json) -> Row:
    place = record["lane"], str(record["block"]), str(record["session"])
    ends = record["sender"], record["recipient"]
    channel = f"{ends[0]}→{ends[1]}" if ends[0] != ends[1] else f"para {ends[0]}"
    return *place, record["event"], channel, record["reason"] or "", moved(record)


def moved(record: Json) -> str:
    """Describe the deposits that an event moved and the messages that it dropped."""
    parts = [f"dropped {ranges(record['dropped'])}"] if record["dropped"] else []
    for side in ("sender", "recipient"):
        for verb in ("reserved", "returned"):
            amount = record[f"{side}_{verb}"]
            if amount:
                parts.append(f"{side} {'+' if verb == 'returned' else '-'}{amount}")
    return ", ".join(parts)


def _ingress(record: Json) -> Row:
    place = record["lane"], str(record["block"]), str(record["index"])
    channel = f"{record['sender']}→{record['recipient']}"
    return *place, record["event"], channel, str(record["sent_at"]), str(record["size"]), record["root"]


def _headroom(record: Json) -> Row:
    if "para_id" in record:
        watermarks = ", ".join(map(str, record["valid_watermarks"]))
        left = f"upward {_left(record['upward_count_left'], 'messages')}, {_left(record['upward_bytes_left'], 'bytes')}"
        watermark = _plain(record["watermark"])
        more = f"{record['downward_pending']} downward pending; watermark {watermark}; messages at {watermarks or 'no block'}"
        who, valid = f"para {record['para_id']}", record["valid"]
    else:
        full = "full: " if not record["places_left"] or not record["bytes_left"] else ""
        left = f"{full}{_left(record['places_left'], 'places')}, {_left(record['bytes_left'], 'bytes')}"
        more = f"at most {_left(record['message_size_max'], 'bytes')} per message"
        who, valid = f"channel {record['sender']}→{record['recipient']}", record["open"]
    return record["lane"], str(record["block"]), who, left if valid else "gone", more if valid else ""


def _receipt(record: Json) -> Row:
    numbers = ("accepted", "rejected", "enacted", "dispatched", "weight_used")
    place = record["lane"], str(record["block"]), str(record["session"])
    roots = record["state_root"] or "", record["runtime_digest"]
    return *place, *(str(record[name]) for name in numbers), *roots


def _dead_letter(record: Json) -> Row:
    where = f"{record['topic']}[{record['partition']}]@{record['offset']}"
    block = "" if record["block"] is None else str(record["block"])
    return record["lane"], block, record["reason"], where, record["detail"]


def _lane(record: Json) -> Row:
    """Describe what a lane says of itself: its status, why it is parked, or the fault that the audit has found."""
    if "check" in record:
        block, says, detail = record["block"], "audit fault", f"{record['check']}: {record['detail']}"
    elif "fault" in record:
        reason = record["reason"].removeprefix(f"lane {record['lane']}: ")
        why_parked = [each for each in (record["fault"], reason) if each]
        block, says, detail = record["since_block"], record["state"], ": ".join(why_parked)
    else:
        block, says, detail = record["executed_block"], "executed", record["waiting_for"] or ""
    return record["lane"], "" if block is None else str(block), says, detail


COLUMNS: Final[dict[str, Row]] = {
    "verdicts": ("lane", "block", "kind", "index", "para", "ok", "why", "effect, or broken clause"),
    "dispatches": ("lane", "block", "index", "para", "ok", "weight", "payload", "outcome"),
    "channel-events": ("lane", "block", "session", "event", "channel", "reason", "deposits, messages"),
    "ingress-events": ("lane", "block", "index", "event", "channel", "sent at", "bytes", "root"),
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
    "lanes": ("lane", "block", "state", "detail"),
}
"""Column headings by topic."""


def _visible(cells: Callable[[Json], Row]) -> Callable[[Json], Row]:
    return lambda record: tuple(map(printable, cells(record)))


ROWS: Final[dict[str, Callable[[Json], Row]]] = {
    "verdicts": _visible(_verdict),
    "dispatches": _visible(_dispatch),
    "channel-events": _visible(_event),
    "ingress-events": _visible(_ingress),
    "headroom": _visible(_headroom),
    "receipts": _visible(_receipt),
    "dead-letters": _visible(_dead_letter),
    "lanes": _visible(_lane),
}
"""Functions that turn a record into its cells, by topic; every cell is `printable`."""

NUMBERS: Final = frozenset(
    {
        "block",
        "after block",
        "index",
        "para",
        "session",
        "accepted",
        "rejected",
        "enacted",
        "dispatched",
        "weight",
        "sent at",
        "bytes",
    }
)
"""Headings of right-aligned columns."""
