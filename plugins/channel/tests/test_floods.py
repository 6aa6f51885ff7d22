# SPDX-License-Identifier: Apache-2.0
"""Floods that stay within the budget: the session lives, and its memory does not grow. Source: channel_rules 1.2.8, 3.3."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest
from channel_world import ACK, APPLICATION, ERROR, REGISTER, World, listener, text

STALE_LIMIT: Final = 50
WARM_UP: Final = 100
FRAMES: Final = 1_000
GROWTH_BYTES_MAX: Final = 16_384
"""What may change by chance; one small object per frame would be three times as much."""

FLOODS: Final[dict[str, Callable[[World, int], bytes]]] = {
    "duplicates": lambda world, at: world.frame(APPLICATION, 0, 2, b"x" * 50),
    "the same bytes": lambda world, at: world.frame(APPLICATION, 0, 2, b"x" * 50, counter=2),
    "refused duplicates": lambda world, at: world.frame(APPLICATION, 3, 0, b"x" * 50),
    "acknowledgements": lambda world, at: world.frame(ACK, 0, 1, b"{}"),
    "errors": lambda world, at: world.frame(ERROR, 0, 1, text({"code": f"X{at}", "fatal": False})),
    "old acknowledgements": lambda world, at: world.frame(ACK, 0, 1, b"{}", counter=3),
    "unknown topics": lambda world, at: world.frame(APPLICATION, 10 + at, 4, b"x" * 50),
    "beyond the window": lambda world, at: world.frame(APPLICATION, 0, 2_000 + 2 * at, b"x" * 50),
    "held again": lambda world, at: world.frame(APPLICATION, 0, 8, b"x" * 50),
    "old counters of new messages": lambda world, at: world.frame(APPLICATION, 0, 20 + 2 * at, b"x" * 50, counter=3),
}


def attacked() -> World:
    """A session that has delivered a message, refused one on topic 3, holds one, and tolerates one frame a second."""
    world = listener(stale_limit=STALE_LIMIT, stale_period=float(STALE_LIMIT)).online()
    world.receive(APPLICATION, 0, 2)
    world.receive(REGISTER, 0, 4, text({"topic": 3}))
    assert world.receive(APPLICATION, 3, 0).ids == [(ERROR, 3, 0)]
    assert world.receive(APPLICATION, 0, 8) == ([], [])
    return world


def kept_bytes() -> int:
    """Return what the core keeps; other tests may have left threads."""
    own = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(inclusive=True, filename_pattern="*/validator_channel/*")]
    )
    return sum(each.size for each in own.traces)


@pytest.mark.parametrize("name", FLOODS)
def test_memory_is_flat(name: str) -> None:
    """Frames come exactly as fast as the budget allows; what the session keeps after many is what it kept after a few."""
    world = attacked()
    flood = FLOODS[name]
    kept = []
    tracemalloc.start()
    try:
        for at in range(WARM_UP + FRAMES):
            world.now += 1.0
            out = world.feed(flood(world, at))
            assert out.events == []
            if at in {WARM_UP - 1, WARM_UP + FRAMES - 1}:
                del out
                gc.collect()
                kept.append(kept_bytes())
    finally:
        tracemalloc.stop()
    assert world.session.state == "ONLINE"
    assert kept[1] - kept[0] < GROWTH_BYTES_MAX


@pytest.mark.parametrize("name", FLOODS)
def test_faster_floods_end_the_session(name: str) -> None:
    world = attacked()
    for at in range(STALE_LIMIT):
        assert world.feed(FLOODS[name](world, at)).events == []
    out = world.feed(FLOODS[name](world, STALE_LIMIT))
    world.assert_fails(out, "LIMIT_EXCEEDED", None if name == "errors" else (0, 0xFFFFFFFF))
