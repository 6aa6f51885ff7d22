# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.stored_job import Job, maker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Make a job whose checkpoint `validator state` reads."""
    return maker(tmp_path, kafka, monkeypatch)
