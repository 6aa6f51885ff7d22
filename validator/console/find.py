# SPDX-License-Identifier: Apache-2.0
"""Finds the page of a para, a block, a channel, a verdict's id or a candidate's hash."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from validator.console.context import link_of

if TYPE_CHECKING:
    from validator.console.kept import KeptVerdict
    from validator.console.lane import LaneModel
    from validator.console.model import Model

_CHANNEL: Final = re.compile(r"(\d{1,10})\s*(?:→|->|,|>)\s*(\d{1,10})")
HASH_DIGITS_MIN: Final = 16


def find(model: Model, lane_name: str, wanted: str) -> str | None:
    """Return the address of what is wanted, None if nothing here has it. The chosen lane is searched first."""
    with model.lock:
        lanes = sorted(model.lanes.values(), key=lambda lane: lane.name != lane_name)
        number = wanted.replace(",", "").removeprefix("#")
        for lane in lanes:
            link = link_of(lane.name)
            if channel := _CHANNEL.fullmatch(wanted):
                return f"{link}/channels/{int(channel[1])}/{int(channel[2])}"
            if number.isascii() and number.isdecimal() and len(number) <= 10:
                if int(number) in lane.paras:
                    return f"{link}/paras/{int(number)}"
                if any(block.block == int(number) for block in lane.blocks):
                    return f"{link}/verdicts?block={int(number)}"
            if (verdict := _by_hash(lane, wanted)) is not None:
                return f"{link}/verdicts/{verdict.block}/{quote(verdict.kind, safe='')}/{verdict.index}"
            if any(wanted in (error, error.rpartition("/")[2]) for error in lane.tally.error):
                error = next(error for error in lane.tally.error if wanted in (error, error.rpartition("/")[2]))
                return f"{link}/verdicts?rule={quote(error, safe='')}"
    return None


def _by_hash(lane: LaneModel, wanted: str) -> KeptVerdict | None:
    """Return the verdict whose record holds a hash or its beginning: an id, a candidate's hash, an MQC head."""
    digits = wanted.removeprefix("0x").lower()
    if len(digits) < HASH_DIGITS_MIN or len(digits) % 2 or not re.fullmatch("[0-9a-f]+", digits):
        return None
    needle = bytes.fromhex(digits)
    return next((verdict for verdict in lane.newest() if needle in verdict.value), None)
