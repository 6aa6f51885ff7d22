# SPDX-License-Identifier: Apache-2.0
"""Recorded blocks decode to the last byte, as others have decoded them, and a changed one is refused."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from relay_recordings import LONG_RUN, RECORDED, needs_recordings
from relay_world import load, runtime, shipped
from validator_relay_chain import layout, rules
from validator_relay_chain.block import RawBlock, decode_block, read_block
from validator_relay_chain.candidates import read_inherent
from validator_relay_chain.convert import candidate_record
from validator_relay_chain.errors import BadAnswer, ChainContradiction, UndecodableBlock
from validator_relay_chain.header import Header
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.rules import features_of
from validator_relay_chain.trie import ordered_root
from validator_simulators.relay_chain.made import MadeCandidate, _candidate_event, inherent

from validator.plugin.api import DecodeError, Writer

EVENTS = RECORDED.parents[1] / "real_events.jsonl"
RUNTIMES = {"9430": 9430, "1000001": 1_000_001, "1002005": 1_002_005, "1003003.v15": 1_003_003}


def recorded_runtime(name: str) -> Runtime:
    raw = gzip.decompress((RECORDED / "metadata" / f"{name}.scale.gz").read_bytes())
    return load("polkadot", RUNTIMES[name], raw)


@cache
def recorded(file: str) -> tuple[tuple[int, RawBlock], ...]:
    found = []
    for line in gzip.decompress((RECORDED / file).read_bytes()).splitlines():
        block = json.loads(line)
        if block["chain_getHeader"] is not None:
            (events,) = block["state_getStorage"].values()
            block_hash = bytes.fromhex(block["chain_getBlockHash"][2:])
            found.append((block["number"], read_block(block["chain_getBlock"], events, block_hash)))
    return tuple(found)


@cache
def decoded_by_others() -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for line in EVENTS.read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        if fact.get("chain") == "polkadot" and fact["kind"] in ("relay_block", "candidate"):
            number = fact["number"] if fact["kind"] == "relay_block" else fact["relay_block"]
            block = found.setdefault(number, {"candidates": []})
            if fact["kind"] == "candidate":
                block["candidates"].append(fact)
            else:
                block["included"] = [(each["para"], each["commitments_hash"]) for each in fact["events"]]
    return found


@needs_recordings
@pytest.mark.parametrize(
    ("file", "name"),
    [(LONG_RUN, "9430"), ("17773280-17773282.jsonl.gz", "9430"), ("19505060-19505061.jsonl.gz", "1000001")],
)
def test_recorded_blocks_equal_what_others_have_decoded(file: str, name: str) -> None:
    known = decoded_by_others()
    for number, raw in recorded(file):
        block = decode_block(raw, recorded_runtime(name))
        expected = known[number]
        assert [(each.para_id, each.commitments_hash.hex()) for each in block.included] == expected["included"]
        found = [
            {
                "para": each.para_id,
                "hrmp_watermark": each.hrmp_watermark,
                "upward_messages": [message.hex() for message in each.upward_messages],
                "processed_downward_messages": each.processed_downward_messages,
                "horizontal_messages": [
                    {"recipient": message.recipient, "data": message.data.hex()} for message in each.horizontal_messages
                ],
                "commitments_hash": each.commitments_hash.hex(),
            }
            for each in block.candidates
        ]
        assert found == [{field: fact[field] for field in found[0]} for fact in expected["candidates"]]
        assert (block.dropped, block.new_session, block.timed_out) == (0, False, ())


@needs_recordings
@pytest.mark.parametrize("name", RUNTIMES)
def test_metadata_has_the_shapes_that_are_read_by_position(name: str) -> None:
    found = recorded_runtime(name)
    assert found.enter == b"\x36\x00"
    assert not found.has_signals
    present = [place for place in layout.STORAGE if found.has(*place)]
    assert len(present) >= len(layout.STORAGE) - 5


@needs_recordings
def test_rules_follow_from_metadata_and_version() -> None:
    first, last = (set(features_of(recorded_runtime(name))) for name in ("9430", "1003003.v15"))
    assert {"message_queue", "relaxed_watermark", "force_open_channel_plain", "dmq_length_limit"} <= first
    assert not first & {"establish_system_channel", "dmp_by_relay_parent", "force_open_channel"}
    assert {
        "establish_channel_with_system",
        "dmp_by_relay_parent",
        "force_open_channel",
        "poke_channel_deposits",
    } <= last
    assert not last & {"watermark_may_stay", "downward_needs_head", "hrmp_notifications", "versioned_notifications"}


def test_page_lists_the_features_that_metadata_does_not_show() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "follow-a-chain.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`.* \| (\d{4,}) \| (\d{4,}) \|$", page, re.MULTILINE)
    assert {name: rules.Since(int(first), int(others)) for name, first, others in rows} == rules.UNSEEN
    taken = re.findall(r"^\| (\w[^|`]*) \| (\d{4,}) \|$", page, re.MULTILINE)
    assert taken == [(name, str(version)) for version, name, _ in rules._TAKEN_FOR]


def test_every_feature_is_one_of_the_router() -> None:
    from validator.protocols.router.features.table import FEATURES

    assert set(rules._ORDER) == {each.name for each in FEATURES if "notifications" not in each.name}
    assert {*rules._SEEN, *rules.UNSEEN} == set(rules._ORDER)


def first_block() -> RawBlock:
    recording = shipped()
    block = recording.at(recording.canonical[recording.first + 1])
    assert block is not None
    (events,) = (value for key, value in block.storage.items() if key.startswith("0x26aa394eea5630e0"))
    return read_block(block.body, events, bytes.fromhex(block.hash[2:]))


def test_changed_block_is_refused() -> None:
    raw = first_block()
    assert len(decode_block(raw, runtime()).candidates) == 22
    with pytest.raises(BadAnswer, match="expected extrinsics with root 0x"):
        decode_block(replace(raw, extrinsics=raw.extrinsics[::-1]), runtime())
    with pytest.raises(UndecodableBlock, match="an event does not decode"):
        decode_block(replace(raw, events=raw.events + b"\0"), runtime())
    with pytest.raises(UndecodableBlock, match="an event does not decode"):
        decode_block(replace(raw, events=raw.events[:-1]), runtime())
    commitments = decode_block(raw, runtime()).candidates[3].commitments_hash
    changed = raw.events.replace(commitments, bytes(32))
    with pytest.raises(ChainContradiction, match="expected a candidate of the inherent with commitments 0x00"):
        decode_block(replace(raw, events=changed), runtime())


def test_candidates_that_the_runtime_drops_are_counted() -> None:
    dropped, kept = (MadeCandidate(para, bytes(32), 99) for para in (2000, 2004))
    extrinsics = (inherent([dropped, kept]),)
    events = b"\x04" + _candidate_event("Backed", kept)
    raw = RawBlock(Header(100, bytes(32), bytes(32), ordered_root(extrinsics), ()), extrinsics, events)
    block = decode_block(raw, runtime())
    assert (block.candidates, block.dropped) == ((kept.backed(),), 1)


def test_signals_stand_behind_an_empty_message_and_are_sent_where_the_lane_knows_them() -> None:
    def extrinsic(*upward: bytes) -> bytes:
        out = Writer()
        out.buffer += b"\x04\x36\x00\x00"
        out.compact(1)
        out.buffer += bytes(layout.DESCRIPTOR_BYTES)
        out.compact(len(upward))
        for message in upward:
            out.bytes(message)
        out.buffer += bytes(1 + 1 + 1 + 4 + 4 + 1 + 1)
        whole = Writer()
        whole.bytes(bytes(out.buffer))
        return bytes(whole.buffer)

    def candidate(*upward: bytes, signals: bool = True) -> Any:
        found = read_inherent(extrinsic(*upward), b"\x36\x00", signals=signals)
        assert found is not None
        return found[0]

    with_signals, without = candidate(b"a", b"", b"signal"), candidate(b"a")
    assert (with_signals.upward_messages, with_signals.messages) == ((b"a", b"", b"signal"), 1)
    assert (without.upward_messages, without.messages) == ((b"a",), 1)

    def sent(found: Any, *, sends_signals: bool) -> list[str]:
        record = candidate_record("polkadot", 7, 0, found, 6, sends_signals=sends_signals)
        upward: list[str] = record["upward_messages"]
        return upward

    assert sent(with_signals, sends_signals=True) == ["61", "", b"signal".hex()]
    assert sent(with_signals, sends_signals=False) == ["61"]
    assert sent(candidate(b"a", b""), sends_signals=True) == ["61", ""]
    assert with_signals.commitments_hash != without.commitments_hash
    assert candidate(b"a", b"", signals=False).messages == 2
    with pytest.raises(DecodeError):
        read_inherent(extrinsic(b"a")[:-1], b"\x36\x00", signals=True)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "expected metadata V14, V15 or V16"),
        (b"meta\x0d", "expected metadata V14"),
        (b"meta\x0e\x04", "does not decode"),
    ],
)
def test_bytes_that_are_no_metadata_are_refused_in_one_line(raw: bytes, text: str) -> None:
    with pytest.raises(UndecodableBlock, match=f"runtime polkadot 1: .*{text}"):
        Runtime("polkadot", 1, raw)
