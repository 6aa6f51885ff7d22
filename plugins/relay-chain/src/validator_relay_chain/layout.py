# SPDX-License-Identifier: Apache-2.0
"""The shape of types in a runtime's metadata, as short texts.

Payloads are read by position (`storage`, `candidates`), because a SCALE library that turns bytes into text where they happen to be valid
UTF-8 would lose the difference. The metadata says whether the positions still hold: a runtime whose shape is another is refused.

A text has no names: ``(u32,bytes)`` is a struct of two fields, ``[..]`` a list, ``b32`` 32 bytes, ``opt(..)`` an option, ``<0:u32|1:>`` an
enum by index. A struct with one field is that field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

DESCRIPTOR: Final = "descriptor"
"""A candidate's descriptor, whatever its name and later fields are, if it takes `DESCRIPTOR_BYTES` and begins with para and relay parent.
Since version 2 it has version, core, session and reserved bytes where version 1 has collator and signature."""
DESCRIPTOR_BYTES: Final = 4 + 7 * 32 + 64

COMMITMENTS: Final = "([bytes],[(u32,bytes)],opt(bytes),bytes,u32,u32)"
BITFIELDS: Final = "[(bits,u32,b64)]"
BACKED: Final = f"[(({DESCRIPTOR},{COMMITMENTS}),[<1:b64|2:b64>],bits)]"

_PENDING_TAIL: Final = "bits,bits,u32,u32,u32"

STORAGE: Final[Mapping[tuple[str, str], str]] = {
    ("Hrmp", "HrmpChannels"): "(u32,u32,u32,u32,u32,opt(b32),u128,u128)",
    ("Hrmp", "HrmpChannelContents"): "[(u32,bytes)]",
    ("Hrmp", "HrmpChannelDigests"): "[(u32,[u32])]",
    ("Hrmp", "HrmpWatermarks"): "u32",
    ("Hrmp", "HrmpIngressChannelsIndex"): "[u32]",
    ("Hrmp", "HrmpEgressChannelsIndex"): "[u32]",
    ("Hrmp", "HrmpOpenChannelRequests"): "(bool,u32,u128,u32,u32,u32)",
    ("Hrmp", "HrmpOpenChannelRequestsList"): "[(u32,u32)]",
    ("Hrmp", "HrmpCloseChannelRequests"): "()",
    ("Hrmp", "HrmpCloseChannelRequestsList"): "[(u32,u32)]",
    ("Dmp", "DownwardMessageQueues"): "[(u32,bytes)]",
    ("Dmp", "DownwardMessageQueueMeta"): "(u64,u64)",
    ("Dmp", "DownwardMessageQueuePages"): "(u32,bytes)",
    ("Dmp", "DownwardMessageQueueHeads"): "b32",
    ("Paras", "ParaLifecycles"): "<0:|1:|2:|3:|4:|5:|6:>",
    ("ParaInclusion", "PendingAvailability"): f"(u32,b32,{DESCRIPTOR},{_PENDING_TAIL})",
    ("ParaInclusion", "PendingAvailabilityCommitments"): COMMITMENTS,
    ("ParaInclusion", "V1"): f"[(u32,b32,{DESCRIPTOR},{COMMITMENTS},{_PENDING_TAIL})]",
    ("Ump", "RelayDispatchQueues"): "[bytes]",
    ("MessageQueue", "BookStateFor"): "(u32,u32,u32,opt((<0:<0:u32>>,<0:<0:u32>>)),u64,u64)",
    ("MessageQueue", "Pages"): "(u32,u32,u32,u32,u32,bytes)",
    ("MessageQueue", "ServiceHead"): "<0:<0:u32>>",
}
"""Shapes of the storage items that are read by position. An item that a runtime does not have is not checked."""

DOWNWARD: Final = (("Dmp", "DownwardMessageQueues"),)
DOWNWARD_PAGES: Final = (("Dmp", "DownwardMessageQueueMeta"), ("Dmp", "DownwardMessageQueuePages"))
"""Where downward queues are: one value for each, or, since 2026, pages."""

FOLLOWED: Final = (
    ("Dmp", "DownwardMessageQueueHeads"),
    ("Paras", "ParaLifecycles"),
    ("System", "Events"),
)
"""Without these and `DOWNWARD` or `DOWNWARD_PAGES`, or with other shapes of them, a chain cannot be followed."""

SEEDED: Final = (
    ("Hrmp", "HrmpChannels"),
    ("Hrmp", "HrmpChannelContents"),
    ("Hrmp", "HrmpChannelDigests"),
)
"""Without these, or with other shapes in `STORAGE`, a lane cannot join. One that follows already continues, without comparing them."""

REQUIRED: Final = (*SEEDED, *FOLLOWED, *DOWNWARD, ("Configuration", "ActiveConfig"))
"""What this plugin reads of every runtime."""

DEPTH_MAX: Final = 32
"""Levels of a type."""
PARTS_MAX: Final = 4_096
"""Parts of a type, each counted wherever it stands: those that are read have about twenty."""
DESCRIPTOR_FIELDS_MIN: Final = 9
"""Fields of a descriptor: those of version 1."""
SCHEDULING_PARENT_AT: Final = 4 + 5 * 32
"""The byte of a descriptor behind para, relay parent, what names core and session, and three hashes."""
_BYTES: Final = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}
_NAMED: Final = re.compile(r"<(\d+:\|?)+>")
"""An enum without fields: one byte."""


def shape(types: Mapping[int, Any], type_id: int) -> str:
    """Return the shape of a type of the portable registry.

    Raises ``ValueError`` if it is too deep or has too many parts, ``KeyError`` if it is unknown.
    """
    return _shape(types, type_id, 0, count(1))


def _shape(types: Mapping[int, Any], type_id: int, depth: int, parts_seen: Iterator[int]) -> str:
    if depth > DEPTH_MAX:
        raise ValueError(f"type {type_id}: expected at most {DEPTH_MAX} levels")
    if next(parts_seen) > PARTS_MAX:
        raise ValueError(f"type {type_id}: expected at most {PARTS_MAX} parts")

    def of(each: int) -> str:
        return _shape(types, each, depth + 1, parts_seen)

    found = types[type_id]
    ((kind, body),) = found["def"].items()
    match kind:
        case "primitive":
            return str(body)
        case "sequence":
            item = of(body["type"])
            return "bytes" if item == "u8" else f"[{item}]"
        case "array":
            item = of(body["type"])
            return f"b{body['len']}" if item == "u8" else f"[{item};{body['len']}]"
        case "tuple":
            return f"({','.join(map(of, body))})"
        case "compact":
            return f"compact({of(body['type'])})"
        case "composite":
            parts = [each for each in (of(field["type"]) for field in body["fields"]) if each != "()"]
            if _is_descriptor(parts):
                return DESCRIPTOR
            return parts[0] if len(parts) == 1 else f"({','.join(parts)})"
        case "variant" if found["path"] == ["Option"]:
            return f"opt({of(body['variants'][1]['fields'][0]['type'])})"
        case "variant":
            arms = (
                f"{arm['index']}:{','.join(of(field['type']) for field in arm['fields'])}" for arm in body["variants"]
            )
            return f"<{'|'.join(arms)}>"
        case "bitsequence":
            return "bits"
    return str(kind)


def check_bounded(types: Mapping[int, Any], type_id: int) -> None:
    """Raise ``ValueError`` for a type with a list of items that take no byte: a few bytes could then stand for billions of items."""
    seen: set[int] = set()
    empty: dict[int, bool] = {}
    waiting = [type_id]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        ((kind, body),) = types[at]["def"].items()
        if kind in ("sequence", "array") and _is_empty(types, body["type"], empty):
            raise ValueError(f"type {at}: a list of items without bytes")
        waiting += _parts(kind, body)


def _parts(kind: str, body: Any) -> list[int]:
    match kind:
        case "composite":
            return [field["type"] for field in body["fields"]]
        case "variant":
            return [field["type"] for arm in body["variants"] for field in arm["fields"]]
        case "sequence" | "array" | "compact":
            return [body["type"]]
        case "tuple":
            return list(body)
    return []


def _is_empty(types: Mapping[int, Any], type_id: int, known: dict[int, bool]) -> bool:
    """Return whether a value takes no byte; a type that contains itself counts as such. ``known`` has what was found out."""
    if type_id not in known:
        known[type_id] = True
        known[type_id] = _takes_no_byte(types, type_id, known)
    return known[type_id]


def _takes_no_byte(types: Mapping[int, Any], type_id: int, known: dict[int, bool]) -> bool:
    ((kind, body),) = types[type_id]["def"].items()
    if kind == "array" and body["len"] == 0:
        return True
    if kind not in ("composite", "tuple", "array", "compact"):
        return False
    return all(_is_empty(types, each, known) for each in _parts(kind, body))


def _is_descriptor(parts: Sequence[str]) -> bool:
    return list(parts[:2]) == ["u32", "b32"] and sum(map(_bytes, parts)) == DESCRIPTOR_BYTES


def _bytes(part: str) -> int:
    """Return how many bytes a part of a descriptor takes; 0 for one that no descriptor has."""
    if _NAMED.fullmatch(part):
        return 1
    return int(part[1:]) if part[0] == "b" and part[1:].isdecimal() else _BYTES.get(part, 0)


def has_signals(types: Mapping[int, Any]) -> bool:
    """Return whether a runtime separates signals from upward messages: it does so since descriptors name their core (RFC 103)."""
    return any(_with_core(types, each) for each in types.values())


def has_scheduling_parents(types: Mapping[int, Any]) -> bool:
    """Return whether descriptors have a scheduling parent behind the erasure root: in version 2 there are 64 reserved bytes."""
    for each in types.values():
        at = 0
        for part in _with_core(types, each):
            if at == SCHEDULING_PARENT_AT:
                return part == "b32"
            at += _bytes(part)
    return False


def _with_core(types: Mapping[int, Any], found: Any) -> list[str]:
    """Return the fields of a descriptor with version and core behind the relay parent, where there was a collator of 32 bytes.

    Another type has none.
    """
    fields = found["def"].get("composite", {}).get("fields", ())
    if not DESCRIPTOR_FIELDS_MIN <= len(fields) <= DESCRIPTOR_BYTES:
        return []
    try:
        parts = [shape(types, each["type"]) for each in fields[:4]]
        if parts[:2] != ["u32", "b32"] or _bytes(parts[2]) != 1 or parts[3] != "u16":
            return []
        parts += [shape(types, each["type"]) for each in fields[4:]]
    except (LookupError, ValueError):
        return []
    return parts if _is_descriptor(parts) else []
