# SPDX-License-Identifier: Apache-2.0
"""Fuzzing: the targets of `fuzz/` by hypothesis always, and by coverage where atheris is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from subprocess import run
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.limits import Settings

from tests import hypothesis_profile

FOLDER = Path(__file__).resolve().parents[1] / "fuzz"


def load() -> ModuleType:
    spec = spec_from_file_location("validator_channel_fuzz_targets", FOLDER / "targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TARGETS = load()
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.binary(max_size=6)), max_size=4)


@pytest.mark.parametrize("name", TARGETS.TARGETS)
def test_seeds(name: str) -> None:
    inputs = list(TARGETS.seeds(name))
    assert inputs
    for data in inputs:
        TARGETS.TARGETS[name](data)


@hypothesis_profile.examples(200)
@given(st.sampled_from(sorted(TARGETS.TARGETS)), st.binary(max_size=300))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS.TARGETS[name](data)


@hypothesis_profile.examples(400)
@given(st.sampled_from(sorted(TARGETS.TARGETS)), st.integers(0, 9), EDITS)
def test_edited_seeds(name: str, number: int, edits: list[tuple[int, int, bytes]]) -> None:
    inputs = list(TARGETS.seeds(name))
    data = inputs[number % len(inputs)]
    for position, removed, added in edits:
        at = position % (len(data) + 1)
        data = data[:at] + added + data[at + removed :]
    TARGETS.TARGETS[name](data)


@hypothesis_profile.examples(200)
@given(st.integers(0, 7), st.lists(st.tuples(st.integers(0, 15), st.binary(min_size=8, max_size=14)), max_size=40))
def test_long_sessions_with_a_hostile_peer(flags: int, acts: list[tuple[int, bytes]]) -> None:
    TARGETS.session(bytes([flags]) + b"".join(bytes([what]) + rest for what, rest in acts))


def test_a_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The targets do fail: here the core keeps more messages than the window that they know."""
    monkeypatch.setattr(TARGETS, "Settings", _twice_the_window)
    acts = [bytes([0, 4, 0, index, 0, 0]) for index in range(4, 100, 2)]
    with pytest.raises(AssertionError):
        TARGETS.session(bytes([5]) + b"".join(acts))


def _twice_the_window(*, window: int, **settings: Any) -> Settings:
    return Settings(window=2 * window, **settings)


def test_atheris_harness_runs(tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    for name in TARGETS.TARGETS:
        done = run(
            [sys.executable, FOLDER / "run.py", name, tmp_path / name, "-runs=300", "-seed=1"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Done 300 runs" in done.stderr
