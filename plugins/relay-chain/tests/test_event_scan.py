# SPDX-License-Identifier: Apache-2.0
"""Events that are only scanned give what the library gives; what the scan accepts, the library accepts."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from relay_recordings import LONG_RUN, needs_recordings
from relay_world import busy_chain, runtime
from test_blocks import first_block, recorded, recorded_runtime
from validator_relay_chain import keys
from validator_relay_chain.block import Receipt, _receipt
from validator_relay_chain.errors import UndecodableBlock
from validator_relay_chain.event_scan import UNUSUAL, EventScanner, _Skips, _Unsupported
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import LANE_PALLETS, CandidateEvent, Event, Runtime

MUTATIONS = 300
RECORDED_BLOCKS = (
    (LONG_RUN, "9430"),
    ("17773280-17773282.jsonl.gz", "9430"),
    ("19505060-19505061.jsonl.gz", "1000001"),
)


def comparable(events: list[Event | CandidateEvent]) -> list[tuple[str, str, Receipt | tuple[Any, ...]]]:
    """Return pallet and name of events, with the candidate that each names or its fields."""
    return [
        (each.pallet, each.name, each.fields)
        if isinstance(each, Event) and not each.name.startswith("Candidate")
        else (each.pallet, each.name, _receipt(each))
        for each in events
    ]


def of_library(decoder: Runtime, raw: bytes) -> list[Event | CandidateEvent]:
    return [each for each in decoder.events(raw) if each.pallet in LANE_PALLETS]


def is_scanned(decoder: Runtime, raw: bytes) -> bool:
    """Return whether the scan accepts events; if so, compare them with the library's."""
    assert decoder._scanner is not None
    if decoder._scanner.scan(raw) is None:
        return False
    assert comparable(decoder.lane_events(raw)) == comparable(of_library(decoder, raw))
    return True


@needs_recordings
@pytest.mark.parametrize(("file", "name"), RECORDED_BLOCKS)
def test_recorded_events_are_scanned(file: str, name: str) -> None:
    left = {number for number, raw in recorded(file) if not is_scanned(recorded_runtime(name), raw.events)}
    assert left <= {19_505_060}  # it has an event with a message inside a message


def test_made_up_events_are_scanned() -> None:
    recording = busy_chain().recording
    for block_hash in recording.canonical.values():
        block = recording.at(block_hash)
        assert block is not None
        value = recording.value(block, to_hex(keys.SYSTEM_EVENTS))
        if value is not None:
            assert is_scanned(runtime(), bytes.fromhex(value[2:]))


def test_what_the_scan_accepts_of_damaged_events_the_library_accepts() -> None:
    random, whole = Random(11), first_block().events
    accepted = 0
    for _ in range(MUTATIONS):
        changed = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.choice((0, 1, 2, 3, 4, 0x80, 0xFF, random.randrange(256)))
        accepted += is_scanned(
            runtime(), bytes(changed[: random.choice((len(changed), random.randrange(len(changed))))])
        )
    assert 0 < accepted < MUTATIONS


@pytest.mark.parametrize("raw", [b"", b"\4", b"\4\0\0\0\0\0", b"\1\0", b"\0\0"])
def test_what_is_no_list_of_events_is_left_to_the_library(raw: bytes) -> None:
    assert not is_scanned(runtime(), raw)
    if raw != b"\1\0":  # the library takes a long zero
        with pytest.raises(UndecodableBlock, match="an event does not decode"):
            runtime().lane_events(raw)


def test_without_a_scanner_the_library_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = first_block().events
    scanned = comparable(runtime().lane_events(raw))
    monkeypatch.setattr(EventScanner, "scan", lambda *_: None)
    assert comparable(runtime().lane_events(raw)) == scanned


def types(**defs: Any) -> Mapping[int, Any]:
    """Return a registry: ``t0``, ``t1`` and so on are types by their numbers."""
    return {int(name[1:]): {"path": [], "def": each} for name, each in defs.items()}


U8, U32, U128 = ({"primitive": name} for name in ("u8", "u32", "u128"))


def end(registry: Mapping[int, Any], raw: bytes) -> int | None:
    """Return where a value of type 0 ends, or None if it is unusual."""
    try:
        return _Skips(registry).of(0)(raw, 0)
    except UNUSUAL:
        return None


@pytest.mark.parametrize(
    ("registry", "raw", "expected"),
    [
        (types(t0={"primitive": "bool"}), b"\1", 1),
        (types(t0={"primitive": "bool"}), b"\2", None),
        (types(t0={"array": {"len": 3, "type": 1}}, t1=U32), b"", 12),
        (types(t0={"array": {"len": 2, "type": 1}}, t1={"compact": {"type": 2}}, t2=U32), b"\x04\x01\x01", 3),
        (types(t0={"sequence": {"type": 1}}, t1=U32), b"\x08", 9),
        (types(t0={"sequence": {"type": 1}}, t1=U8), b"\x01\x01", 66),
        (types(t0={"sequence": {"type": 1}}, t1=U8), b"\x01\x00", None),
        (types(t0={"sequence": {"type": 1}}, t1=U8), b"\x02\x00\x01\x00", 16_388),
        (types(t0={"sequence": {"type": 1}}, t1=U8), b"\x02\x01\x00\x00", None),
        (types(t0={"sequence": {"type": 1}}, t1=U8), b"\x03\x00\x00\x00\x40", None),
        (types(t0={"compact": {"type": 1}}, t1=U128), b"\x03\x00\x00\x00\x40", 5),
        (types(t0={"compact": {"type": 1}}, t1=U128), b"\x03\x00\x00\x00\x3f", None),
        (types(t0={"compact": {"type": 1}}, t1=U128), b"\x07\x00\x00\x00\x00\x01", 6),
        (types(t0={"compact": {"type": 1}}, t1=U128), b"\x07\x00\x00\x00\x01\x00", None),
        (types(t0={"compact": {"type": 1}}, t1=U32), b"\x07\x00\x00\x00\x00\x01", None),
        (types(t0={"tuple": [1, 2, 1]}, t1=U8, t2={"sequence": {"type": 1}}), b"\0\4\0\0", 4),
        (types(t0={"tuple": []}), b"", 0),
        (types(t0={"composite": {"fields": [{"type": 1}]}}, t1=U8), b"", 1),
        (types(t0={"variant": {"variants": [{"index": 7, "fields": [{"type": 1}]}]}}, t1=U8), b"\7\0", 2),
        (types(t0={"variant": {"variants": [{"index": 7, "fields": []}]}}), b"\6", None),
    ],
)
def test_values_are_stepped_over(registry: Mapping[int, Any], raw: bytes, expected: int | None) -> None:
    assert end(registry, raw) == expected


@pytest.mark.parametrize(
    "registry",
    [
        types(t0={"primitive": "str"}),
        types(t0={"compact": {"type": 1}}, t1=U8),
        types(t0={"bitsequence": {}}),
        types(t0={"sequence": {"type": 0}}),
        {0: {"path": ["sp_runtime", "generic", "era", "Era"], "def": {"variant": {"variants": []}}}},
    ],
)
def test_types_that_are_left_to_the_library(registry: Mapping[int, Any]) -> None:
    with pytest.raises(_Unsupported):
        _Skips(registry).of(0)
