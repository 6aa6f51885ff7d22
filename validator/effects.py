# SPDX-License-Identifier: Apache-2.0
"""Says what an input did, by the fields of its verdict: in tables of commands and on pages of the console.

A field of which nothing is known here is shown by its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

NAMED_MAX: Final = 5
"""Recipients that a text names."""
_ELSEWHERE: Final = frozenset(
    {"lane", "block", "kind", "index", "para_id", "ok", "error", "enacted"} | {"candidate_hash", "runtime_digest", "id"}
)
"""Fields with their own place in rows and on pages."""


def effects(record: Json, number: Callable[[int], str] = str) -> list[str]:
    """Return what a verdict in JSON form says of its input besides the outcome, one text for each field that says something."""
    texts = ["not enacted yet"] if record["ok"] and record["kind"] == "candidate" and not record["enacted"] else []
    for name, value in record.items():
        if name in _ELSEWHERE or value is None or value == []:
            continue
        words = _WORDS.get(name)
        shown = number(value) if type(value) is int else str(value)
        texts.append(f"{name.replace('_', ' ')} {shown}" if words is None else words(value, number))
    return [text for text in texts if text]


def recipients(paras: list[int]) -> str:
    """Return the first recipients, and how many more there are."""
    more = len(paras) - NAMED_MAX
    return f"{', '.join(map(str, paras[:NAMED_MAX]))}{f' and {more} more' if more > 0 else ''}"


def _messages(messages: list[Json], number: Callable[[int], str]) -> str:
    count = f"{number(len(messages))} message{'s' if len(messages) > 1 else ''}"
    return f"{count} queued for {recipients([each['recipient'] for each in messages])}"


def ranges(given: list[Json], number: Callable[[int], str] = str) -> str:
    """Return which messages left which queues, such as ``2 to 4 from 2000, downward 7``."""
    return ", ".join(_range(each, number) for each in given)


def _range(given: Json, number: Callable[[int], str]) -> str:
    first, last = number(given["first"]), number(given["last"])
    numbers = first if first == last else f"{first} to {last}"
    return f"downward {numbers}" if given["sender"] is None else f"{numbers} from {given['sender']}"


def _signals(signals: list[Json], _number: Callable[[int], str]) -> str:
    return f"signals {' and '.join(map(_signal, signals))}"


def _signal(signal: Json) -> str:
    match signal["kind"]:
        case "SelectCore":
            return f"core {signal['selector']} at offset {signal['offset']}"
        case "ApprovedPeer":
            return f"peer {signal['peer']}"
        case other:
            return str(other)


_WORDS: Final[dict[str, Callable[[Any, Callable[[int], str]], str]]] = {
    "messages": _messages,
    "received": lambda received, number: f"received {ranges(received, number)}",
    "signals": _signals,
    "effective_session": lambda session, number: f"from session {number(session)}",
    "expires_session": lambda session, number: f"expires at session {number(session)}",
}
