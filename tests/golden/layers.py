# SPDX-License-Identifier: Apache-2.0
"""Records and checks the in-process layer; `job.py` does so for the layer through the real job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden.comparison import differences, summary
from tests.golden.documents import comparable, documents, without_environment
from tests.golden.inputs import Inputs, make_inputs
from tests.golden.play import Played, play
from tests.golden.product import UserError, decode_bytes
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


def record_documents(folder: Path = FOLDER) -> str:
    """Write the documents alone, made from the recorded inputs, and return their summary."""
    lines = list(documents(_played(folder)))
    path = path_of(DOCUMENTS, folder)
    write_lines(path, lines)
    return f"{path.name}: {summary(lines)}; {path.stat().st_size:,} bytes"


def check_process(folder: Path = FOLDER) -> list[str]:
    """Return the differences from the recording of the in-process layer, one line for each group that differs."""
    return [*check_simulator(folder), *check_lanes(folder), *check_documents(folder)]


def check_simulator(folder: Path = FOLDER) -> list[str]:
    """Return where the simulators no longer generate the recorded inputs; the lanes get the recorded ones anyway.

    Rows are compared by what they mean: the recorded ones stay in the versions of the schemas in which they were written.
    """
    recorded = map(_meaning, read_lines(path_of(INPUTS, folder)))
    return [f"simulator: {each}" for each in differences(recorded, map(_meaning, make_inputs().lines()), decode_bytes)]


def _meaning(line: Line) -> Line:
    """Return an input's line with its record as JSON, without absent members; a row that cannot be decoded keeps its bytes."""
    value = line["value"]
    if line["group"].startswith("row/") and value is not None:
        with suppress(UserError):
            value = decode_bytes(line["group"], bytes.fromhex(value))
    return {**line, "value": _present(value)}


def _present(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _present(each) for name, each in value.items() if each is not None}
    return [_present(each) for each in value] if isinstance(value, list) else value


def check_lanes(folder: Path = FOLDER) -> list[str]:
    """Return where the lanes' records, markers or stored bytes differ."""
    return differences(read_lines(path_of(LANES, folder)), _played(folder).lines, decode_bytes)


def check_documents(folder: Path = FOLDER) -> list[str]:
    """Return where suites, replays, views of states or runtimes differ."""
    every, found = read_lines(path_of(DOCUMENTS, folder)), list(documents(_played(folder)))
    recorded, now = comparable(every, found), comparable(found, every)
    return differences(without_environment(recorded, now), without_environment(now, recorded), decode_bytes)


def _played(folder: Path) -> Played:
    return _played_inputs(path_of(INPUTS, folder).resolve())


@cache
def _played_inputs(path: Path) -> Played:
    return play(Inputs.of_lines(read_lines(path)))
