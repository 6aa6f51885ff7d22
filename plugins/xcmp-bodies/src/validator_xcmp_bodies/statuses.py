# SPDX-License-Identifier: Apache-2.0
"""How old the front of each queue is, also while the operator does not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def aged(queues: Iterable[Mapping[str, Any]], executed: Mapping[str, int], alarm_blocks: int) -> list[dict[str, Any]]:
    """Return the last record of each queue with the age of its front in blocks, by chain and recipient.

    The age counts to the last block that the chain has executed (``executed``, by chain) or the operator has seen, whichever is higher.
    So a front raises the alarm at ``alarm_blocks`` even if the operator has seen none of the blocks in which it grew old.
    """
    rows = {(row["lane"], row["recipient"]): dict(row) for row in queues}
    heights = dict(executed)
    for row in rows.values():
        heights[row["lane"]] = max(heights.get(row["lane"], 0), row["height"])
    for row in rows.values():
        lane, front = row["lane"], row["front"]
        age = None if front is None else heights[lane] - front["sent_at"]
        late = age is not None and age >= alarm_blocks
        row |= {"front_age_blocks": age, "alarm": row["alarm"] or late}
    return [row for _, row in sorted(rows.items())]
