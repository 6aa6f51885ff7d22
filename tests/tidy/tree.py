# SPDX-License-Identifier: Apache-2.0
"""The files that git tracks: what the rules of the tree apply to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked_names(root: Path = ROOT) -> list[str]:
    """Return the tracked files that exist, relative to ``root``; raises `NotADirectoryError` outside a git checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise NotADirectoryError(f"{root}: expected a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def tracked_or_skip() -> list[str]:
    """Return `tracked_names` of the repository; skips the test outside a git checkout."""
    try:
        return tracked_names()
    except NotADirectoryError as error:
        pytest.skip(str(error))
