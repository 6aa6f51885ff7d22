# SPDX-License-Identifier: Apache-2.0
"""The form in which the core runs: pure Python, or compiled by mypyc (the build hook of this distribution)."""

from __future__ import annotations

from typing import Final

from validator_channel import session

IS_COMPILED: Final = not str(session.__file__).endswith(".py")
"""Whether the core was compiled; the behaviour is the same."""


def name() -> str:
    """Return the form in words."""
    return "compiled" if IS_COMPILED else "pure Python"
