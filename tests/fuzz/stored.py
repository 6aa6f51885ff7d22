# SPDX-License-Identifier: Apache-2.0
"""Targets that read what the product keeps: pages of each protocol, journal, heads, rules and kept files."""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from validator_simulators import SimulationSettings

from tests.fuzz.records import PROTOCOLS
from tests.fuzz.target import BINARY_WORDS, TEXT_WORDS, Target, refused
from tests.unit.lanes.backend import Attempt, Store
from tests.unit.lanes.batches import run
from tests.unit.lanes.chains import Chain, chain, config_of, definition_of, inputs_of
from validator.codec.encode import BlockOutput, OutputRecord
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.core.scale import DecodeError
from validator.errors import UserError
from validator.lanes import keyed
from validator.lanes.apart.wire import Nonsense, outputs_of_bytes, outputs_to_bytes
from validator.lanes.definition import JournalUnreadable, LaneDefinition, keep_genesis, read_genesis
from validator.lanes.kept_start import keep_start, kept_starts, start_of
from validator.lanes.marker import Marker
from validator.lanes.processor import LaneProcessor
from validator.lanes.slots import load_lane
from validator.lanes.store import HEAD, Head, LaneCache, decode_entry, encode_entry, restore_lane
from validator.metrics.own import PluginMetric, exported
from validator.metrics.report import KEY, LANE, TRANSPORT, Report
from validator.metrics.store import MetricStore
from validator.plugin.runtime import RulesOutdated
from validator.topics import OUTPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSALS = (DecodeError, JournalUnreadable)


@cache
def _chain(protocol: str = "router") -> Chain:
    return chain(SimulationSettings(seed=3, blocks=12, candidates_per_block=4, session_length_blocks=5), protocol)


@cache
def _definition(protocol: str = "router") -> LaneDefinition:
    return definition_of(_chain(protocol))


@cache
def _committed(protocol: str = "router") -> Attempt:
    """Return a lane's store with saved pages in the middle of the chain."""
    store = Store()
    records = inputs_of(_chain(protocol).records, protocol)
    cache_ = LaneCache()
    run(_definition(protocol), store, cache_, records[: len(records) // 2])
    run(_definition(protocol), store, cache_, records[len(records) // 2 :])
    return store.committed


def _entries() -> list[bytes]:
    return list(_committed().journal)


def _check_journal(data: bytes) -> bool:
    try:
        inputs, dead = decode_entry(_definition().codec, data)
    except REFUSALS:
        return False
    letter = DeadLetter("", DeadReason.UNDECODABLE, "", Source("", 0, 0), b"")
    assert encode_entry([*inputs, *[letter] * min(dead, 1_000)]) == data or dead > 1_000
    return True


def _check_head(data: bytes) -> bool:
    try:
        head = Head.decode(data)
        _definition().under(head.rules)
    except (DecodeError, RulesOutdated, UserError):
        return False
    assert head.encode() == data or data[0] != HEAD.version
    return True


def _check_rules(data: bytes) -> bool:
    try:
        under = _definition().under(data)
    except (DecodeError, RulesOutdated, UserError):
        return False
    assert under.encode_rules() == data or data[0] != _definition().encode_rules()[0]
    return True


def _check_keyed_head(data: bytes) -> bool:
    try:
        head = keyed.Head.decode(data)
    except DecodeError:
        return False
    assert head.encode() == data
    return True


def _keyed_heads() -> list[bytes]:
    return [keyed.FIRST.encode(), keyed.Head(7, {("a", 0): 5, ("a", 1): 2**40, ("b", 0): 0}, bytes(16)).encode()]


# --- pages --------------------------------------------------------------------------------------------------------------------------------


def _framed(slots: dict[int, bytes]) -> bytes:
    return b"".join(
        number.to_bytes(2, "little") + len(data).to_bytes(4, "little") + data for number, data in slots.items()
    )


def _unframed(data: bytes) -> dict[int, bytes]:
    slots, at = {}, 0
    while at + 6 <= len(data):
        number, size = int.from_bytes(data[at : at + 2], "little"), int.from_bytes(data[at + 2 : at + 6], "little")
        slots[number] = data[at + 6 : at + 6 + size]
        at += 6 + size
    return slots


def _pages(protocol: str) -> list[bytes]:
    return [_framed(_committed(protocol).slots)]


def _check_pages(protocol: str, data: bytes) -> bool:
    slots = _unframed(data)
    try:
        processor, _ = load_lane(_definition(protocol), slots, 1024)
    except REFUSALS:
        return False
    snapshot = processor.snapshot()
    again = _definition(protocol).restore(processor.lane.snapshot())
    assert again.snapshot() == processor.lane.snapshot()
    assert snapshot
    return True


def _stores() -> list[bytes]:
    kept = _committed()
    return [
        _framed(
            {
                0: kept.head or b"",
                **{number + 2: data for number, data in kept.slots.items()},
                **{2_000 + at: each for at, each in enumerate(kept.journal)},
            }
        )
    ]


def _check_store(data: bytes) -> bool:
    """Restore a lane from a damaged store: a line with what to do, never another lane."""
    parts = _unframed(data)
    slots = {number - 2: page for number, page in parts.items() if 2 <= number < 2_000}
    attempt = Attempt(parts.get(0), slots, [page for number, page in sorted(parts.items()) if number >= 2_000])
    try:
        processor = restore_lane(_definition(), attempt)
    except UserError as error:
        return refused(str(error), "--rebuild")
    if processor is not None:
        expected = restore_lane(_definition(), _committed())
        assert expected is not None
        assert processor.snapshot() == expected.snapshot()
    return True


# --- files --------------------------------------------------------------------------------------------------------------------------------


def _in_file(read: Callable[[Path], object], name: str, data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            read(path)
        except (UserError, DecodeError):
            return False
    return True


def _file(write: Callable[[Path], object], name: str) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return [(Path(folder) / name).read_bytes()]


def _write_start(path: Path) -> None:
    keep_start(path.parent, "lane", start_of(config_of(_chain()), _definition_named()))


def _definition_named() -> LaneDefinition:
    return _definition()


def _check_marker(data: bytes) -> bool:
    try:
        marker = Marker.decode(data)
    except UserError:
        return False
    assert Marker.decode(marker.encode("lane").value or b"") == marker
    return True


def _markers() -> list[bytes]:
    return [marker.encode("lane").value or b"" for marker in (Marker(), Marker(7, {("a", 0): 5, ("a", 1): 2**40}))]


def _check_report(data: bytes) -> bool:
    try:
        report = Report.decode(data)
    except ValueError:
        return False
    assert Report.decode(report.encode()) == report
    store = MetricStore(["lane"])
    store.take(report)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(store)
    list(text_string_to_metric_families(generate_latest(registry).decode()))
    return True


def _reports() -> list[bytes]:
    of_lane, of_transport = Report(LANE, "lane"), Report(TRANSPORT, "mail")
    of_lane.put("validator_lane_executed_block", 7)
    of_lane.put("validator_channel_used_messages", 3, 2000, 2004)
    of_lane.add["validator_lane_rejections_total"] = {("OutboundHrmp/NoSuchChannel",): 2}
    of_transport.put("validator_transport_written_records_total", 2.5, "blocks")
    of_key = Report(KEY, "polkadot/bodies/0-8")
    own = exported("bodies", KEY, [PluginMetric("held_bytes", "Bytes that are held.", ("kind",))])
    of_key.own = {metric.name: metric for metric in own.values()}
    of_key.put("validator_plugin_bodies_held_bytes", 7, "body")
    return [of_lane.encode(), of_transport.encode(), of_key.encode()]


def _emitted() -> list[bytes]:
    items, key = inputs_of(_chain().records), _chain().lane.encode()
    letter = DeadLetter(_chain().lane, DeadReason.UNDECODABLE, "made so", Source("x", 0, 1), b"\xff")
    outputs = list(LaneProcessor.create(_definition()).process([*items[:40], letter]))
    return [outputs_to_bytes(outputs), outputs_to_bytes([BlockOutput(None, [OutputRecord("metrics", key, b"")])])]


def _check_emitted(data: bytes) -> bool:
    """Check that what the process of a lane says names this lane, whatever it says."""
    lane = _chain().lane
    try:
        outputs = outputs_of_bytes(bytearray(data), lane)
    except Nonsense:
        return False
    for record in (record for _, records in outputs for record in records):
        assert record.key.split(b"/")[0] == lane.encode()
        assert record.topic == "metrics" or (record.topic in OUTPUT_TOPICS and record.topic != "markers")
    assert outputs_to_bytes(outputs) == data
    return True


TARGETS = (
    Target("lane-process", _emitted, _check_emitted, BINARY_WORDS, per_test=4_000),
    Target("metric-report", _reports, _check_report, TEXT_WORDS, per_test=2_000),
    Target("journal", _entries, _check_journal, per_test=1_000),
    Target("head", lambda: [_committed().head or b""], _check_head, per_test=4_000),
    Target("rules", lambda: [_definition().encode_rules()], _check_rules, per_test=1_000),
    Target("keyed-head", _keyed_heads, _check_keyed_head),
    Target("marker", _markers, _check_marker),
    *(
        Target(f"pages-{each}", partial(_pages, each), partial(_check_pages, each), per_test=4_000)
        for each in PROTOCOLS
    ),
    Target("store", _stores, _check_store, per_test=4_000),
    Target(
        "genesis",
        lambda: _file(lambda path: keep_genesis(path, (1, (b"a", b"bc"))), "lane-0123456789abcdef.genesis"),
        partial(_in_file, read_genesis, "x"),
        per_test=4_000,
    ),
    Target(
        "kept-start",
        lambda: _file(_write_start, "lane.start"),
        partial(_in_file, lambda path: kept_starts(path.parent), "lane.start"),
        TEXT_WORDS,
        per_test=4_000,
    ),
)
