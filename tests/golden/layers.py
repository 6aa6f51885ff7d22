# SPDX-License-Identifier: Apache-2.0
"""Records and checks the in-process layer; `job.py` does so for the layer through the real job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.golden.comparison import differences, summary
from tests.golden.documents import documents, present, without_environment
from tests.golden.inputs import Inputs, make_inputs
from tests.golden.play import Played, play
from tests.golden.product import decode_bytes
from tests.golden.recording_file import DOCUMENTS, FOLDER, INPUTS, LANES, Line, path_of, read_lines, write_lines


def record_process(folder: Path = FOLDER) -> Iterator[str]:
    """Write the recording of the in-process layer, and yield its summary."""
    inputs = make_inputs()
    played = play(inputs)
    for name, lines in (
        (INPUTS, list(inputs.lines())),
        (LANES, played.lines),
        (DOCUMENTS, list(documents(played))),
    ):
        path = path_of(name, folder)
        write_lines(path, lines)
        yield f"{path.name}: {summary(lines)}; {path.stat().st_size:,} bytes"


def check_process(folder: Path = FOLDER) -> list[str]:
    """Return the differences from the recording of the in-process layer, one line for each group that differs."""
    return [*check_simulator(folder), *check_lanes(folder), *check_documents(folder)]


def check_simulator(folder: Path = FOLDER) -> list[str]:
    """Return where the simulators no longer generate the recorded inputs; the lanes get the recorded ones anyway."""
    recorded = read_lines(path_of(INPUTS, folder))
    return [f"simulator: {each}" for each in differences(recorded, make_inputs().lines(), decode_bytes)]


def check_lanes(folder: Path = FOLDER) -> list[str]:
    """Return where the lanes' records, markers or stored bytes differ."""
    return differences(read_lines(path_of(LANES, folder)), _played(folder).lines, decode_bytes)


def check_documents(folder: Path = FOLDER) -> list[str]:
    """Return where suites, replays, views of states or runtimes differ."""
    recorded = present(read_lines(path_of(DOCUMENTS, folder)))
    now: list[Line] = list(documents(_played(folder)))
    return differences(without_environment(recorded, now), without_environment(now, recorded), decode_bytes)


@cache
def _played(folder: Path) -> Played:
    return play(Inputs.of_lines(read_lines(path_of(INPUTS, folder))))
