# SPDX-License-Identifier: Apache-2.0
"""What a block's candidates will need is looked up before the first of them is judged.

The channels of a large chain are in no cache of the processor. A rule that needs one waits for its row, then for its entry, then for the
channel. Looked up one right after the other, those of a whole block arrive at the same time, and the rules find them in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from validator.protocols.router.records import Candidate
from validator.protocols.router.state import NO_CHANNELS, HrmpChannel, RouterState

RECIPIENTS_MIN: Final = 500
"""The channels of a chain with fewer recipients stay in the cache."""


def look_up_channels(state: RouterState, candidates: Sequence[Candidate]) -> list[HrmpChannel | None]:
    """Return the channel of each horizontal message of a large chain's candidates; nothing if the chain is small."""
    inbound = state.hrmp_channels.inbound
    if len(inbound) < RECIPIENTS_MIN:
        return []
    messages = [
        (candidate.para_id, each.recipient) for candidate in candidates for each in candidate.horizontal_messages
    ]
    rows = [inbound.get(recipient, NO_CHANNELS) for _, recipient in messages]
    return [*map(dict.get, rows, [sender for sender, _ in messages])]
