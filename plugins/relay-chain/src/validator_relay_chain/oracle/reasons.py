# SPDX-License-Identifier: Apache-2.0
"""Why a lane and its relay chain differ: known reasons, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Who is to be asked about a disagreement."""

    OURS = "ours"
    """No known reason explains it: decoding, the seed, the rules or the node are wrong."""
    WATERMARK_REPEATED = "watermark-repeated"
    """Chains since 2023 allow a watermark that repeats the last one; the profile of the lane does not."""
    DOWNWARD_ORDER = "downward-order"
    """The chain queues downward messages before candidates and asks when each was sent; the lane takes them after candidates."""
    UPWARD_DISPATCH = "upward-dispatch"
    """The chain dispatches upward messages in another order and with weights that no event has."""
    CHANNELS_WITHOUT_EVENT = "channels-without-event"
    """A channel opened or closed without an event, and storage alone shows it."""
    DOWNWARD_RESET = "downward-reset"
    """Something other than messages has changed a downward queue, and no record brings it to a lane."""
    NOT_DECODED = "not-decoded"
    """Something of the chain could not be decoded, and the lane continues without it."""


KNOWN: Final = {
    "HrmpWatermark/AdvancementRule": Reason.WATERMARK_REPEATED,
    "ProcessedDownwardMessages/AdvancementRule": Reason.DOWNWARD_ORDER,
    "UpwardMessages/CapacityExceeded": Reason.UPWARD_DISPATCH,
    "UpwardMessages/TotalSizeExceeded": Reason.UPWARD_DISPATCH,
}
"""Rules that refuse what a chain accepts for a known reason, if the numbers of the refusal agree (`reason_of`)."""

DOWNWARD_BLOCKS_MAX: Final = 4
"""Blocks in which the relay parent of a candidate can be older than a downward message: the chain then asks for no progress."""


def reason_of(kind: str, details: Mapping[str, object], blocks_since_downward: int | None) -> Reason:
    """Return the reason of a refused candidate, from the rule it broke and its numbers.

    ``blocks_since_downward`` is how long ago its para last got a downward message, as far as that is known.
    """
    reason = KNOWN.get(kind, Reason.OURS)
    if reason is Reason.WATERMARK_REPEATED and details.get("new_watermark") != details.get("last_watermark"):
        return Reason.OURS
    if reason is Reason.DOWNWARD_ORDER and (
        blocks_since_downward is None or blocks_since_downward > DOWNWARD_BLOCKS_MAX
    ):
        return Reason.OURS
    return reason
