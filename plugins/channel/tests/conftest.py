# SPDX-License-Identifier: Apache-2.0
"""Lets tests import their sibling modules and be coroutines; property tests use the project's profile."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import hypothesis_profile

if TYPE_CHECKING:
    from channel_tls import Pki

sys.path.insert(0, str(Path(__file__).resolve().parent))

hypothesis_profile.load()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from channel_tls import run

    names = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    from channel_tls import Pki

    return Pki(tmp_path / "ca")
