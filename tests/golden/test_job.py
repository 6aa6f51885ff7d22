# SPDX-License-Identifier: Apache-2.0
"""The golden recording through the real job: readers of committed records see the recorded bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.golden.recording_file import JOB, path_of, read_lines

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
def test_job_matches_the_recording(kafka: dict[str, str]) -> None:
    # a separate process, as a person runs it
    command = [sys.executable, "-m", "tests.golden", "check", "--layer", "job", "--kafka", json.dumps(kafka)]
    ended = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_recording_of_the_job_has_every_topic_and_protocol() -> None:
    topics, lanes = Counter[str](), Counter[str]()
    for line in read_lines(path_of(JOB)):
        _, lane, topic = line["group"].split("/")
        topics[topic] += 1
        lanes[lane] += topic == "verdicts"
    assert set(topics) == {
        "verdicts", "dispatches", "channel-events", "headroom", "receipts", "dead-letters", "lanes", "markers",
    }  # fmt: skip
    assert {lane for lane, verdicts in lanes.items() if verdicts} == {
        "noisy",
        "handled",
        "on-inclusion",
        "early",
        "xcmp",
    }
