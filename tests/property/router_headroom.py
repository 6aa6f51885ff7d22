# SPDX-License-Identifier: Apache-2.0
"""The headroom that the naive model leaves, recomputed by a scan of its state."""

from __future__ import annotations

from collections.abc import Iterable

from validator_simulators import size_of
from validator_simulators.router.model import Channel, NaiveRouter

from tests.property.shapes import Json

WATERMARKS_MAX = 64
"""Watermarks that the record of a para lists."""


def headroom_of(naive: NaiveRouter, emitted: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], Json]:
    """Return the headroom of all paras and channels, by id: those that exist, and those in ``emitted``, which may be gone."""
    ids = {(para,) for para in naive.kinds} | naive.channels.keys() | set(emitted)
    return {each: _of_channel(naive, each) if len(each) == 2 else _of_para(naive, each[0]) for each in ids}


def _of_para(naive: NaiveRouter, para: int) -> Json:
    gone = {
        "para_id": para,
        "valid": False,
        "upward_count_left": 0,
        "upward_bytes_left": 0,
        "downward_pending": 0,
        "watermark": None,
        "valid_watermarks": (),
    }
    if para not in naive.kinds:
        return gone
    waiting = naive.upward_waiting(para)
    return {
        **gone,
        "valid": True,
        "upward_count_left": max(0, naive.config["max_upward_queue_count"] - len(waiting)),
        "upward_bytes_left": max(0, naive.config["max_upward_queue_size"] - sum(map(size_of, waiting))),
        "downward_pending": len(naive.dmq.get(para, [])),
        "watermark": naive.watermarks.get(para),
        "valid_watermarks": tuple(_valid_watermarks(naive, para)[:WATERMARKS_MAX]),
    }


def _valid_watermarks(naive: NaiveRouter, para: int) -> list[int]:
    landings = sorted({block for block, _ in naive.digests.get(para, [])})
    last = naive.watermarks.get(para)
    if naive.has("relaxed_watermark") or naive.has("watermark_may_stay"):
        landings = [block for block in landings if last is None or block > last]
    return [last, *landings] if naive.has("watermark_may_stay") and last is not None else landings


def _of_channel(naive: NaiveRouter, channel: Channel) -> Json:
    sender, recipient = channel
    found = naive.channels.get(channel)
    limits = found or {"limit_used_places": 0, "limit_used_bytes": 0, "limit_message_size": 0}
    return {
        "sender": sender,
        "recipient": recipient,
        "open": found is not None,
        "places_left": limits["limit_used_places"] - (naive.used_places(channel) if found else 0),
        "bytes_left": limits["limit_used_bytes"] - (naive.used_bytes(channel) if found else 0),
        "message_size_max": limits["limit_message_size"],
    }
