# SPDX-License-Identifier: Apache-2.0
"""A recording with any difference is refused, and the error names the place and the first field."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from tests.golden.comparison import differences, first_field
from tests.golden.layers import check_lanes
from tests.golden.product import decode_bytes
from tests.golden.recording_file import FOLDER, INPUTS, LANES, Line, path_of, read_lines, write_lines

VERDICTS, DEAD = "record/immediate/verdicts", "record/noisy/dead-letters"
SLOTS = "stored/handled/slots"
GROUPS = (VERDICTS, DEAD, SLOTS)


@pytest.fixture(scope="module")
def recorded_lanes() -> list[Line]:
    return read_lines(path_of(LANES))


@pytest.fixture(scope="module")
def lanes(recorded_lanes: list[Line]) -> list[Line]:
    """Return some groups of the recording: copying all of it for each test would be slow."""
    return [line for line in recorded_lanes if line["group"] in GROUPS]


def of_group(lines: list[Line], group: str, at: int = 0) -> Line:
    return [line for line in lines if line["group"] == group][at]


def mutated(line: Line, byte: int, name: str = "value") -> None:
    data = bytearray.fromhex(line[name])
    data[byte] ^= 1
    line[name] = data.hex()


def test_equal_recordings_have_no_difference(lanes: list[Line]) -> None:
    assert differences(lanes, deepcopy(lanes), decode_bytes) == []


def test_changed_output_is_found(recorded_lanes: list[Line], tmp_path: Path) -> None:
    path_of(INPUTS, tmp_path).symlink_to(path_of(INPUTS, FOLDER))  # the same file: its lanes run once in this process
    changed = deepcopy(recorded_lanes)
    mutated(of_group(changed, VERDICTS, 7), -1)
    mutated(of_group(changed, SLOTS, 3), 10)
    write_lines(path_of(LANES, tmp_path), changed)
    verdict, slot = check_lanes(tmp_path)
    assert verdict.startswith(f"{VERDICTS}[7]: id: recorded '")
    assert "; 1 of " in verdict
    assert slot.startswith(f"{SLOTS}[")
    assert ": byte 10: recorded " in slot


@pytest.mark.parametrize("name", ["key", "batch", "transaction"])
def test_other_members_of_a_line_are_compared(lanes: list[Line], name: str) -> None:
    changed = deepcopy(lanes)
    line = of_group(changed, VERDICTS)
    if name == "key":
        mutated(line, 0, name)
    else:
        line[name] += 1
    (found,) = differences(lanes, changed, decode_bytes)
    assert found.startswith(f"{VERDICTS}[0]: {name}: recorded ")


def test_header_is_compared(lanes: list[Line]) -> None:
    changed = deepcopy(lanes)
    of_group(changed, DEAD)["headers"][0][1] += "00"
    (found,) = differences(lanes, changed, decode_bytes)
    assert found.startswith(f"{DEAD}[0]: headers[0][1]: recorded ")


def test_missing_and_additional_records_are_named(lanes: list[Line]) -> None:
    last = of_group(lanes, VERDICTS, -1)
    fewer = [line for line in lanes if line is not last]
    (missing,) = differences(lanes, fewer, decode_bytes)
    (additional,) = differences(fewer, lanes, decode_bytes)
    assert missing.startswith(f"{VERDICTS}[{last['at']}]: missing now: {{'lane': 'immediate'")
    assert additional.startswith(f"{VERDICTS}[{last['at']}]: not in the recording: {{'lane': 'immediate'")


def test_order_of_records_is_compared(lanes: list[Line]) -> None:
    changed = deepcopy(lanes)
    one, other = of_group(changed, VERDICTS, 1), of_group(changed, VERDICTS, 2)
    one["value"], other["value"] = other["value"], one["value"]
    (found,) = differences(lanes, changed, decode_bytes)
    assert found.startswith(f"{VERDICTS}[1]: ")
    assert "2 of " in found


@pytest.mark.parametrize(
    ("recorded", "now", "expected"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: recorded 2, now 3"),
        ({"a": 1}, {"b": 1}, "a: recorded 1, now absent"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "value: recorded in the order ['a', 'b'], now ['b', 'a']"),
        ([1], [1, 2], ": recorded 1 items, now 2"),
        (1, True, "value: recorded 1, now True"),
        ({"a": None}, {"a": None}, None),
    ],
)
def test_first_field_is_named(recorded: object, now: object, expected: str | None) -> None:
    assert first_field(recorded, now) == expected
