# SPDX-License-Identifier: Apache-2.0
"""How pages write numbers, hashes, times and the fields of records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from validator.core.limits import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

UNREACHED: Final = U32_MAX // 2
"""Messages or bytes of a limit beyond which it is no limit that anybody reaches."""
KIB: Final = 1024
NOTHING: Final = "\u2013"
"""A number that is not known."""


def count(value: int | None) -> str:
    """Return an integer with separators, all digits shown."""
    return NOTHING if value is None else f"{value:,}"


def left(value: int) -> str:
    """Return what is left of a limit."""
    return "any number" if value > UNREACHED else count(value)


def size(value: int | None) -> str:
    """Return a number of bytes: exact below 10 KiB, then in KiB or MiB."""
    if value is None:
        return NOTHING
    if value > UNREACHED:
        return "any number of bytes"
    if value < 10 * KIB:
        return f"{value:,} B"
    if value < 10 * KIB * KIB:
        return f"{value / KIB:,.1f} KiB"
    return f"{value / KIB / KIB:,.1f} MiB"


def sizes(values: Iterable[int]) -> dict[int, str]:
    """Return numbers of bytes as texts that can be compared: all in one unit, and exact if two of them would look the same."""
    rounded = {value: size(value) for value in values}
    reached = [text for value, text in rounded.items() if value <= UNREACHED]
    if len({text.rpartition(" ")[2] for text in reached}) <= 1 and len(set(reached)) == len(reached):
        return rounded
    return {value: text if value > UNREACHED else f"{value:,} B" for value, text in rounded.items()}


def plural(value: int, what: str) -> str:
    """Return a count of things, such as ``1 block`` and ``2 blocks``."""
    return f"{value:,} {what}" if value == 1 else f"{value:,} {what}s"


def short_hex(text: str) -> str:
    """Return the beginning and the end of a hash in hex."""
    return text if len(text) <= 16 else f"{text[:8]}…{text[-4:]}"


def at(time_ms: int) -> str:
    """Return a Kafka timestamp as a time of the day in UTC, with the date."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time_ms > 0 else NOTHING


def clock(time_ms: int) -> str:
    """Return a Kafka timestamp as a time of the day in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%M:%S") if time_ms > 0 else NOTHING


def duration(milliseconds: float) -> str:
    """Return a duration with a unit that suits it."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.1f} s"
    return f"{milliseconds / 60_000:,.0f} min"


def plain(value: Any) -> str:
    """Return the value of a field as a person writes it: a channel as ``sender → recipient``."""
    if isinstance(value, dict):
        return " → ".join(map(plain, value.values()))
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def hex_dump(data: bytes, bytes_max: int) -> str:
    """Return lines with an offset, 16 bytes in hex and their ASCII characters."""
    lines = []
    for start in range(0, min(len(data), bytes_max), 16):
        row = data[start : min(start + 16, bytes_max)]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{start:06x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)
