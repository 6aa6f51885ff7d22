# SPDX-License-Identifier: Apache-2.0
"""The cost of a handler's calls, in integers, so that two machines never disagree on what a message may do.

The table is part of the plugin API: changing a number changes verdicts, and with them the runtime digest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CallWeights:
    """Weight of each call on a `Context`; ``byte`` is added for every byte of keys, values, events and messages."""

    read: int = 100
    write: int = 200
    emit: int = 50
    channel: int = 1_000
    queue_downward_message: int = 500
    free_balance: int = 100
    transfer: int = 500
    byte: int = 1


CALL_WEIGHTS: Final = CallWeights()
