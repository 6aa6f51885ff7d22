# SPDX-License-Identifier: Apache-2.0
"""An export is complete or not there: what an interrupted one has written cannot be taken for a lane's history."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import pytest
from validator_simulators.settings import SimulationSettings

from tests.cli.follower import invoke
from tests.unit.lanes.chains import chain, config_of, inputs_of
from validator import exit_codes
from validator.cli import export as command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from validator.core.inputs import DeadLetter, Input

LANE = "polkadot"
FILES = ["blocks.jsonl", "candidates.jsonl", "channel-requests.jsonl", "downward-messages.jsonl"]
FILE_BYTES_MAX = 20_000


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None, BaseException | None], None]:
    """Return what lets a lane's inputs end with an exception after some of them."""
    simulated = chain(SimulationSettings(seed=31, blocks=25, lane=LANE))
    config = config_of(simulated, job={"directory": "nowhere"})
    monkeypatch.setattr(command, "load_config", lambda _path: config)
    monkeypatch.setattr(command, "kafka_table", lambda _config: {})
    items = sorted(inputs_of(simulated.records), key=lambda item: item.block)

    def end(count: int | None, error: BaseException | None) -> None:
        def inputs(*_: Any) -> Iterator[Input | DeadLetter]:
            yield from items[:count]
            if error is not None:
                raise error

        monkeypatch.setattr(command, "recorded_inputs", inputs)

    return end


def exported(folder: Path) -> Any:
    return invoke("export", f"--lane={LANE}", f"--out={folder}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_interrupted_export_leaves_no_files(
    ends_with: Callable[..., None], tmp_path: Path, error: BaseException
) -> None:
    ends_with(60, error)
    assert exported(tmp_path).exit_code != exit_codes.OK
    assert names(tmp_path) == []
    ends_with(None, None)
    assert exported(tmp_path).exit_code == exit_codes.OK, "the next export is not in its way"
    assert names(tmp_path) == FILES
    again = exported(tmp_path)
    assert (again.exit_code, again.stderr) == (
        exit_codes.USER_ERROR,
        f"validator: {tmp_path}/blocks.jsonl: exists already: expected a folder without files of an earlier export\n",
    )
    assert names(tmp_path) == FILES


def test_full_disk_is_one_line(ends_with: Callable[..., None], tmp_path: Path) -> None:
    ends_with(None, None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, before[1]))
    try:
        done = exported(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.exit_code == exit_codes.USER_ERROR
    assert done.stderr == f"validator: {tmp_path}/downward-messages.jsonl.partial: cannot be written: File too large\n"
    assert names(tmp_path) == []


def test_leftovers_of_a_killed_export_are_named(ends_with: Callable[..., None], tmp_path: Path) -> None:
    ends_with(None, None)
    (tmp_path / "channel-requests.jsonl.partial").write_text("of another one\n")
    done = exported(tmp_path)
    assert done.exit_code == exit_codes.USER_ERROR
    assert "channel-requests.jsonl.partial: exists already: another export writes it, or was killed" in done.stderr
    assert names(tmp_path) == ["channel-requests.jsonl.partial"]
