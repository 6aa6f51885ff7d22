# SPDX-License-Identifier: Apache-2.0
"""Lets these tests import the helpers of the plugin's own tests, and be coroutines."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "channel" / "tests"))
from channel_tls import pytest_pyfunc_call  # noqa: F401
