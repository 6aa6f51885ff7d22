# SPDX-License-Identifier: Apache-2.0
"""Every limit of the transport that answers dry runs, with its unit."""

from __future__ import annotations

from typing import Final

REQUESTS_PER_COMMIT_MAX: Final = 100
"""Requests whose answers are committed together."""
REQUEST_BYTES_PER_COMMIT_MAX: Final = 32 * 1024 * 1024
"""Bytes of these requests after which no further one is taken."""
WAIT_S: Final = 1.0
"""Seconds that the transport waits for a request before it looks whether it should stop."""
PER_SECOND_DEFAULT: Final = 200
"""Requests that are answered in a second."""
PER_SECOND_MAX: Final = 100_000
"""The greatest value of that."""
WAITING_MAX_DEFAULT: Final = 10_000
"""Requests that may wait behind one of the same partition; with more of them it is refused instead of judged."""
WAITING_MAX_MAX: Final = 1_000_000
"""The greatest value of that."""
REFRESH_S_DEFAULT: Final = 2
"""Seconds between two looks for a newer state of a lane."""
REFRESH_S_MAX: Final = 3_600
"""The greatest value of that."""
REFRESH_SHARE_MAX: Final = 0.25
"""The share of the time in which a lane's states are read: reading a large state takes longer, so it happens less often."""
