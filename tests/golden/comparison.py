# SPDX-License-Identifier: Apache-2.0
"""Compares a recording with the current output, and names the first difference of each group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, TypeAlias

from tests.golden.recording_file import Line

Decode: TypeAlias = Callable[[str, bytes], Any]
"""Returns the bytes of a group as JSON, or None if they have no such form."""

SHOWN_CHARACTERS_MAX = 120
SHOWN_BYTES = 12


def differences(recorded: Iterable[Line], now: Iterable[Line], decode: Decode) -> list[str]:
    """Return one line for each group that differs: its first position, and the first field or byte that differs there."""
    before, after = _grouped(recorded), _grouped(now)
    found = []
    for group in dict.fromkeys([*before, *after]):
        difference = _first_difference(group, before.get(group, []), after.get(group, []), decode)
        if difference is not None:
            found.append(difference)
    return found


def first_field(recorded: Any, now: Any, path: str = "") -> str | None:
    """Return the first field in which two JSON values differ, with both values; None if they are equal."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*recorded, *now]):
            there = f"{path}.{name}" if path else name
            if name not in now or name not in recorded:
                return f"{there}: {_side(recorded, name)}, {_side(now, name, now=True)}"
            if (found := first_field(recorded[name], now[name], there)) is not None:
                return found
        if list(recorded) != list(now):
            return f"{path or 'value'}: recorded in the order {_shown(list(recorded))}, now {_shown(list(now))}"
        return None
    if isinstance(recorded, list) and isinstance(now, list):
        for at, (one, other) in enumerate(zip(recorded, now, strict=False)):
            if (found := first_field(one, other, f"{path}[{at}]")) is not None:
                return found
        if len(recorded) != len(now):
            return f"{path}: recorded {len(recorded)} items, now {len(now)}"
        return None
    if type(recorded) is type(now) and recorded == now:
        return None
    return f"{path or 'value'}: recorded {_shown(recorded)}, now {_shown(now)}"


def _grouped(lines: Iterable[Line]) -> dict[str, list[Line]]:
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["group"], []).append(line)
    return groups


def _first_difference(group: str, recorded: list[Line], now: list[Line], decode: Decode) -> str | None:
    if _same(recorded, now):
        return None
    differing = sum(not _same(one, other) for one, other in zip_longest(recorded, now))
    counts = f"{differing} of {len(recorded)} recorded lines differ"
    if len(recorded) != len(now):
        counts += f", there are {len(now)} now"
    for one, other in zip_longest(recorded, now):
        if _same(one, other):
            continue
        if one is None or other is None:
            line, what = (other, "not in the recording") if one is None else (one, "missing now")
            return f"{group}[{line['at']}]: {what}: {_shown(_opened(group, line, decode))}; {counts}"
        return f"{group}[{one['at']}]: {_between(group, one, other, decode)}; {counts}"
    return None


def _between(group: str, recorded: Line, now: Line, decode: Decode) -> str:
    """Return how two lines differ: first in the decoded value, then in its bytes, then in the other members."""
    if recorded.get("at") != now.get("at"):
        return f"recorded at {recorded.get('at')}, now at {now.get('at')}"
    one, other = recorded.get("value"), now.get("value")
    if not _same(one, other):
        found = first_field(_opened(group, recorded, decode), _opened(group, now, decode))
        bytes_differ = _first_byte(one, other) if isinstance(one, str) and isinstance(other, str) else None
        return ", ".join(part for part in (found, bytes_differ) if part)
    return first_field({**recorded, "value": None}, {**now, "value": None}) or "the order of members"


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON text; the order of members counts."""
    return json.dumps(one) == json.dumps(other)


def _opened(group: str, line: Line, decode: Decode) -> Any:
    value = line.get("value")
    if isinstance(value, str):
        try:
            opened = decode(group, bytes.fromhex(value))
        except Exception as error:  # noqa: BLE001  # any error in decoding wrong bytes
            return {"undecodable": f"{type(error).__name__}: {error}"}
        return {} if opened is None else opened
    return value


def _first_byte(recorded: str, now: str) -> str:
    """Return where two strings of hex differ, with some bytes from that position."""
    ends = min(len(recorded), len(now))
    at = next((at for at in range(ends) if recorded[at] != now[at]), ends) // 2
    here = slice(at * 2, (at + SHOWN_BYTES) * 2)
    sizes = f"{len(recorded) // 2} bytes recorded, {len(now) // 2} now"
    return f"byte {at}: recorded {recorded[here] or 'the end'}, now {now[here] or 'the end'} ({sizes})"


def _side(value: dict[str, Any], name: str, *, now: bool = False) -> str:
    return f"{'now' if now else 'recorded'} {_shown(value[name]) if name in value else 'absent'}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."


def summary(lines: Iterable[Line]) -> str:
    """Return the number of lines of each kind."""
    kinds = Counter(line["group"].split("/")[0] for line in lines)
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
