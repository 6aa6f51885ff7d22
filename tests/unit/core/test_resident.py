# SPDX-License-Identifier: Apache-2.0
"""What the formula says of a lane's records is what a real process needs for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from validator.core.inputs import Input, RecordKind, Source
from validator.core.lane import Lane

def private_bytes():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty:"))

def fields(shape, at):
    if shape == "small":
        return (10**6 + at, 2 * 10**6 + at, 3 * 10**6 + at)
    if shape == "nested":
        return (10**6 + at, tuple((10**6 + at + each, bytes([each]) * 9) for each in range(20)), None, "text")
    return (10**6 + at, bytes([at % 256]) * 3000)

def item(shape, number, index):
    at = 300 + index
    raw = bytes([at % 251, at // 251 % 251, index % 251]) * (1000 if shape == "large" else 9)
    source = Source("test.candidates", 0, 10**6 + number * 1000 + index)
    return Input(RecordKind.CANDIDATE, number, at, raw[:3] + b"12345", source, raw, fields(shape, at))

shape, blocks, records = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lane = Lane("lane", None, 1000)
lane.add(item(shape, 1001, 0))
before = private_bytes()
counted = lane.resident_bytes()
for number in range(1002, 1002 + blocks):
    for index in range(records):
        lane.add(item(shape, number, index))
print(private_bytes() - before, lane.resident_bytes() - counted)
"""


@pytest.mark.parametrize(
    ("shape", "blocks", "records"),
    [("small", 200, 200), ("small", 20_000, 1), ("nested", 50, 200), ("large", 20, 200)],
)
def test_counted_bytes_are_those_of_a_process(shape: str, blocks: int, records: int) -> None:
    command = [sys.executable, "-c", PROGRAM, shape, str(blocks), str(records)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    measured, counted = map(int, ended.stdout.split())
    assert 0.7 < counted / measured < 1.3, f"{counted:,} bytes are counted, {measured:,} measured"
