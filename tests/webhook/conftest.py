# SPDX-License-Identifier: Apache-2.0
"""Lets these tests import the helpers of the plugin's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "webhook" / "tests"))
