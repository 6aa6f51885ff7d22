# SPDX-License-Identifier: Apache-2.0
"""Summaries of the XCMs that a payload holds: they are read, never executed."""

from __future__ import annotations

from typing import Any, NamedTuple

from validator.plugin.protocol_api import DecodeError, blake2b_256
from validator_journeys.xcm_types import LIMITS, READERS, Cursor

HOLDING = frozenset(
    (
        "WithdrawAsset",
        "ReserveAssetDeposited",
        "ReceiveTeleportedAsset",
        "TransferAsset",
        "TransferReserveAsset",
        "ClaimAsset",
    )
)
"""The instructions whose first field is the assets that a summary names."""
ROW, BLOBS, SIGNAL_ROW, ROW_WITH_LENGTHS = range(4)
"""The forms of a horizontal payload, which its first byte says; later runtimes write the length of each XCM before it."""
SIGNALS = ("suspend", "resume")


class XcmAsset(NamedTuple):
    """An asset: its location as a path (``.`` is the executing chain, ``..`` its parent), and its amount or its instance's text."""

    location: str
    amount: int | str


class Xcm(NamedTuple):
    """A summary of one XCM.

    ``id`` is the topic of a final ``SetTopic``, else the BLAKE2b-256 of the versioned message. ``instructions`` are the names of
    the outermost ones, ``calls`` the bytes of the call of each ``Transact``, nested ones included. An XCM that cannot be read
    has a ``reason`` with the offset in the payload, no ``id``, and the instructions before that offset.
    """

    version: int | None
    id: bytes | None
    instructions: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    assets: tuple[XcmAsset, ...] = ()
    reason: str | None = None


class Payload(NamedTuple):
    """What a payload holds: ``form`` is ``xcm``, ``blobs``, ``signals`` or ``unknown``; a ``reason`` says why reading ended early."""

    form: str
    messages: tuple[Xcm, ...] = ()
    blobs: int = 0
    signals: tuple[str, ...] = ()
    reason: str | None = None


def read_payload(kind: str, payload: bytes) -> Payload:
    """Return what a horizontal, upward or downward payload holds; bytes that cannot be read give a reason."""
    if len(payload) > LIMITS.payload_bytes:
        return Payload("unknown", reason=f"offset 0: {len(payload)} bytes, at most {LIMITS.payload_bytes}")
    if kind != "horizontal":
        message, end = read_xcm(payload, 0)
        reason = message.reason or (
            f"offset {end}: {len(payload) - end} bytes left over" if end < len(payload) else None
        )
        return Payload("xcm", (message,), reason=reason)
    if not payload:
        return Payload("unknown", reason="offset 0: no byte that says the form")
    if payload[0] in {ROW, ROW_WITH_LENGTHS}:
        return _row_of_xcms(payload)
    if payload[0] == BLOBS:
        return _blobs(payload)
    if payload[0] == SIGNAL_ROW:
        return _signals(payload)
    return Payload("unknown", reason=f"offset 0: no form of a horizontal payload is {payload[0]}")


def _row_of_xcms(payload: bytes) -> Payload:
    messages: list[Xcm] = []
    position, reason = 1, None
    while position < len(payload) and reason is None:
        if len(messages) == LIMITS.messages:
            reason = f"offset {position}: more than {LIMITS.messages} messages"
            break
        if payload[0] == ROW_WITH_LENGTHS:
            message, position, reason = _with_length(payload, position)
        else:
            message, position = read_xcm(payload, position)
            reason = message.reason
        messages.append(message)
    return Payload("xcm", tuple(messages), reason=reason)


def _with_length(payload: bytes, start: int) -> tuple[Xcm, int, str | None]:
    cursor = Cursor(payload, start)
    try:
        cursor.blob()
    except DecodeError as error:
        return Xcm(None, None, reason=str(error)), start, str(error)
    end = cursor.position
    cursor.position = start
    size = cursor.compact()
    message, read_to = read_xcm(payload[:end], end - size)
    left = f"offset {read_to}: {end - read_to} bytes left over" if read_to < end else None
    return message, end, message.reason or left


def _blobs(payload: bytes) -> Payload:
    cursor, count, reason = Cursor(payload, 1), 0, None
    try:
        while cursor.position < len(payload):
            if count == LIMITS.messages:
                raise DecodeError(f"offset {cursor.position}: more than {LIMITS.messages} blobs")
            cursor.blob()
            count += 1
    except DecodeError as error:
        reason = str(error)
    return Payload("blobs", blobs=count, reason=reason)


def _signals(payload: bytes) -> Payload:
    found: list[str] = []
    for offset, signal in enumerate(payload[1 : 1 + LIMITS.messages], 1):
        if signal >= len(SIGNALS):
            return Payload("signals", signals=tuple(found), reason=f"offset {offset}: no signal has index {signal}")
        found.append(SIGNALS[signal])
    left = len(payload) - 1 - len(found)
    return Payload(
        "signals", signals=tuple(found), reason=f"offset {1 + len(found)}: {left} signals too many" if left else None
    )


def read_xcm(data: bytes, start: int) -> tuple[Xcm, int]:
    """Return the summary of the versioned XCM at ``start``, and the offset at which reading it ended."""
    if start >= len(data):
        return Xcm(None, None, reason=f"offset {start}: no byte that says the version"), start
    version = data[start]
    read = READERS.get(version)
    if read is None:
        return Xcm(version, None, reason=f"offset {start}: no XCM has version {version}"), start
    cursor = Cursor(data, start + 1)
    try:
        instructions = read(cursor)
    except DecodeError as error:
        return Xcm(version, None, tuple(cursor.names), tuple(cursor.calls), reason=str(error)), cursor.position
    last: tuple[Any, ...] = instructions[-1] if instructions else ("",)
    message_id = last[1] if last[0] == "SetTopic" else blake2b_256(data[start : cursor.position])
    assets = [asset for found in instructions if found[0] in HOLDING for asset in found[1]][: LIMITS.assets]
    return (
        Xcm(version, message_id, tuple(cursor.names), tuple(cursor.calls), tuple([_asset(asset) for asset in assets])),
        cursor.position,
    )


def _asset(asset: Any) -> XcmAsset:
    identity, (kind, value) = asset
    if identity[0] == "Concrete":
        location = _location(identity[1])
    elif identity[0] == "Abstract":
        location = f"Abstract({_key(identity[1])})"
    else:
        location = _location(identity)
    return XcmAsset(location, value if kind == "Fungible" else _short(value))


def _location(location: Any) -> str:
    parents, interior = location
    steps = [".."] * parents + [_short(junction) for junction in interior[1:]]
    return "/".join(steps) or "."


def _short(value: Any) -> str:
    """Return the text of a junction or an instance; the network of an account is left out."""
    if value[0] == "GeneralKey":
        key = value[-1] if len(value) == 2 else value[2][: value[1]]
        return f"GeneralKey({_key(key)})"
    if len(value) == 1:
        return str(value[0])
    field = value[-1]
    if isinstance(field, tuple):
        return f"{value[0]}({','.join(_short(part) for part in value[1:])})"
    return f"{value[0]}({_key(field) if isinstance(field, bytes) else field})"


def _key(key: bytes) -> str:
    return key.hex() if len(key) <= LIMITS.key_bytes else f"{key[: LIMITS.key_bytes].hex()}..."
