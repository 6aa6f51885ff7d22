# SPDX-License-Identifier: Apache-2.0
"""Python imports this module at its start if this folder is on PYTHONPATH: in the job's driver and in its workers."""

from __future__ import annotations

import os

if os.environ.get("CRASH_POINTS"):
    import crash_failpoints  # type: ignore[import-not-found]

    crash_failpoints.install(os.environ["CRASH_POINTS"])
