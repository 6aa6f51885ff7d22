# SPDX-License-Identifier: Apache-2.0
"""The inputs of the golden recording: lanes, and Kafka's rows in batches.

The recording contains the encoded rows, so a changed simulator does not change the lanes' inputs; `check` also generates them again and
reports separately whether they are still the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden import product, scripted
from tests.golden.product import INPUT_TOPICS, SimulationSettings
from tests.golden.recording_file import Line
from tests.golden.scripted import Row

PREFIX = "golden."
JOB = {"headroom_interval_blocks": 3, "root_interval_blocks": 5, "duplicate_window_blocks": 12}
JOURNAL_BYTES = 30_000
TRANSACTION_BYTES = 6_000
ROWS_PER_BATCH = 420
STATE_AFTER_BLOCK = 14
"""The block of the simulated chain whose state another lane starts from."""

SIMULATED: dict[str, tuple[str, dict[str, Any]]] = {
    "immediate": ("router", {"seed": 101, "blocks": 30, "preset": "tight", "violation_share": 0.2}),
    "on-inclusion": (
        "router",
        {
            "seed": 102,
            "blocks": 30,
            "preset": "tight",
            "topology": "kusama",
            "violation_share": 0.2,
            "enactment": "on-inclusion",
            "notifications": True,
            "unlimited_balances": True,
        },
    ),
    "notified": (
        "router",
        {"seed": 103, "blocks": 20, "preset": "tight", "violation_share": 0.3, "notifications": True},
    ),
    "real-limits": (
        "router",
        {"seed": 104, "blocks": 16, "violation_share": 0.02, "first_block": 20_000_001, "enactment": "on-inclusion"},
    ),
    "imported": ("router", {"seed": 105, "blocks": 26, "preset": "tight", "violation_share": 0.1}),
    "noisy": ("router", {"seed": 106, "blocks": 12, "preset": "tight", "violation_share": 0.15}),
    "early": ("early-hrmp", {"seed": 107, "blocks": 40, "violation_share": 0.2, "enactment": "on-inclusion"}),
    "early-immediate": ("early-hrmp", {"seed": 108, "blocks": 25, "violation_share": 0.2}),
    "xcmp": ("xcmp", {"seed": 109, "blocks": 40, "violation_share": 0.2}),
    "xcmp-inclusion": ("xcmp", {"seed": 110, "blocks": 25, "violation_share": 0.2, "enactment": "on-inclusion"}),
}
SHARED_SETTINGS: dict[str, Any] = {"candidates_per_block": 5, "session_length_blocks": 6}

REFUSED_ROWS = 9
"""Rows at the end, which one lane refuses because of blocks that it has executed."""

HANDLED, GAPS, NOISY, IMPORTED = "handled", "gaps", "noisy", "imported"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Lanes by name, as tables of a configuration, and rows in order of arrival with their batch."""

    tables: dict[str, dict[str, Any]]
    states: dict[str, dict[str, Any]]
    """By lane, the STATE.json that it starts from; the tables of these lanes name no state."""
    rows: list[dict[str, Any]]
    """``batch``, ``topic`` without the prefix, ``partition``, ``offset``, ``key``, ``value``."""

    def lines(self) -> Iterator[Line]:
        """Yield the inputs as lines of a recording."""
        for lane, table in self.tables.items():
            yield {"group": f"table/{lane}", "at": lane, "value": table}
        for lane, state in self.states.items():
            yield {"group": f"state/{lane}", "at": lane, "value": state}
        for at, row in enumerate(self.rows):
            key, value = (None if row[name] is None else row[name].hex() for name in ("key", "value"))
            place = {name: row[name] for name in ("batch", "topic", "partition", "offset")}
            yield {"group": f"row/{row['topic']}", "at": at, **place, "key": key, "value": value}

    @classmethod
    def of_lines(cls, lines: list[Line]) -> Inputs:
        """Return the inputs of the lines."""
        tables, states, rows = {}, {}, []
        for line in lines:
            kind = line["group"].split("/")[0]
            if kind == "row":
                parts = {name: None if line[name] is None else bytes.fromhex(line[name]) for name in ("key", "value")}
                rows.append({**{name: line[name] for name in ("batch", "topic", "partition", "offset")}, **parts})
            else:
                (tables if kind == "table" else states)[line["at"]] = line["value"]
        return cls(tables, states, rows)


def make_inputs() -> Inputs:
    """Make the inputs of the recording; takes a few seconds."""
    tables: dict[str, dict[str, Any]] = {}
    rows: dict[str, list[tuple[int, Row]]] = {}
    for lane, (protocol, settings) in SIMULATED.items():
        simulation = product.simulation_of(protocol, SimulationSettings(lane=lane, **{**SHARED_SETTINGS, **settings}))
        tables[lane] = product.chain_table(simulation.chain())
        rows[lane] = [
            (block.block, (topic, lane.encode(), product.encode_input(INPUT_TOPICS[topic], body, protocol)))
            for block in simulation.blocks()
            for topic, body in block.records
        ]
    states = {IMPORTED: _import(tables, rows)}
    tables |= {HANDLED: scripted.HANDLED, GAPS: scripted.GAPS}
    rows |= {HANDLED: list(scripted.handled_rows(HANDLED)), GAPS: list(scripted.gap_rows(GAPS))}

    last = rows[NOISY][-1][0]
    good = _first(rows[NOISY])
    before = [*scripted.unreadable(NOISY, good, ("xcmp", _first(rows["xcmp"]))), *scripted.early(NOISY, last)]
    refused = list(scripted.refused(NOISY, last, good))
    assert len(refused) == REFUSED_ROWS
    after = [*scripted.next_block(NOISY, last), *(row for _, row in rows[NOISY]), *refused]
    main = [*_mixed(rows, before)]
    main = [main[at : at + ROWS_PER_BATCH] for at in range(0, len(main), ROWS_PER_BATCH)]
    return Inputs(tables, states, list(_placed([*main, after])))


def _import(tables: dict[str, dict[str, Any]], rows: dict[str, list[tuple[int, Row]]]) -> dict[str, Any]:
    """Let a lane begin in mid-chain: return its state there, and keep only the later rows."""
    played = [row for block, row in rows[IMPORTED] if block <= STATE_AFTER_BLOCK]
    rows[IMPORTED] = [(block, row) for block, row in rows[IMPORTED] if block > STATE_AFTER_BLOCK]
    with TemporaryDirectory() as folder:
        state = product.state_file(IMPORTED, tables[IMPORTED], played, Path(folder))
    del tables[IMPORTED]["genesis_paras"]
    return state


def _first(rows: list[tuple[int, Row]]) -> bytes:
    """Return the first candidate."""
    value = next(value for _, (topic, _, value) in rows if topic == "candidates")
    assert value is not None
    return value


def _mixed(rows: dict[str, list[tuple[int, Row]]], others: list[Row]) -> Iterator[Row]:
    """Yield all lanes' rows, each lane's nearly in order: some rows come a few blocks early, and some come twice."""
    random = Random(7)
    arrivals: list[tuple[float, int, Row]] = []
    for of_lane in rows.values():
        first, last = of_lane[0][0], of_lane[-1][0]
        for block, row in of_lane:
            time = (block - first + random.random() * 3) / (last - first + 1)
            arrivals.append((time, len(arrivals), row))
            if random.random() < 0.03:
                arrivals.append((time + random.random() / 4, len(arrivals), row))
    for row in others:
        arrivals.append((random.random() / 2, len(arrivals), row))
    for _, _, row in sorted(arrivals, key=lambda each: each[:2]):
        yield row


def _placed(batches: list[list[Row]]) -> Iterator[dict[str, Any]]:
    """Give each row its offset; candidates have two partitions."""
    offsets: Counter[tuple[str, int]] = Counter()
    for number, batch in enumerate(batches):
        for topic, key, value in batch:
            partition = len(value or b"") % 2 if topic == "candidates" else 0
            offset = offsets[topic, partition]
            offsets[topic, partition] += 1
            yield {
                "batch": number,
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "key": key,
                "value": value,
            }
