# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this plugin import it and their sibling modules; property tests use the project's profile."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import hypothesis_profile

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

hypothesis_profile.load()
