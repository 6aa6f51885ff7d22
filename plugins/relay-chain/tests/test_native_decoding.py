# SPDX-License-Identifier: Apache-2.0
"""Events decode in the library's native code: one type for which it has a class in Python slows down every event of a chain."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from relay_recordings import RECORDED, needs_recordings
from relay_world import metadata
from test_blocks import RUNTIMES, recorded_runtime
from validator_relay_chain import metadata as reading
from validator_relay_chain.metadata import MAGIC, Runtime
from validator_relay_chain.rules import features_of

PUBLISHED = "@polkadot/types-support"
"""A package of npm with metadata of many chains."""


def slow_types(runtime: Runtime) -> list[str]:
    """Return the types of a runtime that the library decodes in Python."""
    decoder = runtime._config.get_value_decoder
    return ["::".join(each["path"]) for at, each in runtime._types.items() if decoder(f"scale_info::{at}") is None]


@needs_recordings
def test_no_recorded_metadata_is_left_out() -> None:
    assert sorted(RUNTIMES) == sorted(each.name.removesuffix(".scale.gz") for each in (RECORDED / "metadata").iterdir())


@needs_recordings
@pytest.mark.parametrize("name", RUNTIMES)
def test_every_type_of_recorded_metadata_is_fast(name: str) -> None:
    runtime = recorded_runtime(name)
    assert runtime.has_fast_events
    assert slow_types(runtime) == []


def test_types_that_are_left_out_are_those_that_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slow_types(Runtime("polkadot", 9430, metadata())) == []
    monkeypatch.setattr(reading, "IN_PYTHON", ())
    assert "pallet_conviction_voting::vote::Vote" in slow_types(Runtime("polkadot", 9430, metadata()))


def published(folder: Path) -> dict[str, bytes]:
    """Return the newest metadata of relay chains that npm has, by chain; skips the test without npm or network."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    packed = subprocess.run(
        ["npm", "pack", PUBLISHED, "--silent"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"npm does not give {PUBLISHED}: {packed.stderr.strip()[:200]}")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    found = {}
    for chain in ("polkadot", "kusama"):
        text = (folder / "package" / "metadata" / "v15" / f"{chain}-hex.js").read_text(encoding="utf-8")
        raw = bytes.fromhex(re.findall(r"'0x([0-9a-f]+)'", text)[0])
        found[chain] = raw[raw.index(MAGIC) :]  # it is the answer of a call: an option of bytes
    return found


@pytest.mark.long
def test_newest_published_metadata_is_fast_and_has_the_rules_of_its_time(tmp_path: Path) -> None:
    for chain, raw in published(tmp_path).items():
        runtime = Runtime(chain, 2_000_000, raw)
        assert runtime.has_fast_events, chain
        assert slow_types(runtime) == [], chain
        assert {"ump_signals", "as_the_chain", "forced_requests"} <= set(features_of(runtime))
