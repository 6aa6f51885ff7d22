# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this plugin import the modules beside them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
