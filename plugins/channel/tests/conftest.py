# SPDX-License-Identifier: Apache-2.0
"""Lets tests import their sibling modules and be coroutines; property tests use the project's profile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import hypothesis_profile

sys.path.insert(0, str(Path(__file__).resolve().parent))
from channel_tls import Pki, pytest_pyfunc_call  # noqa: F401

hypothesis_profile.load()


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "ca")
