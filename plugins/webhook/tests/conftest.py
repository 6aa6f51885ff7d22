# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this plugin import their sibling modules; property tests use the project's profile."""

from __future__ import annotations

import sys
from pathlib import Path

from tests import hypothesis_profile

sys.path.insert(0, str(Path(__file__).resolve().parent))

hypothesis_profile.load()
