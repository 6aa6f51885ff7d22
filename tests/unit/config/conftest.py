# SPDX-License-Identifier: Apache-2.0
"""Whoever runs the tests may have settings of the product in the environment."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("VALIDATOR_"):
            monkeypatch.delenv(name)
