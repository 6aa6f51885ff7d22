# SPDX-License-Identifier: Apache-2.0
"""What tests of nodes as they are share: a lane that is prepared, a chain with many paras."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from relay_world import LANE, World, empty_chain
from validator_relay_chain.prepare import Prepared, prepare
from validator_simulators.relay_chain.made import PARACHAIN, MadeChain

JOINED = 108
"""The block after which the lane joins."""
A_MINUTE_S = 60.0


def prepared(world: World, folder: Path) -> Prepared:
    """Prepare a lane that joins after `JOINED`."""
    followed = world.chain()
    try:
        return prepare(followed, LANE, folder / LANE, from_block=JOINED + 1, tell=world.tell)
    finally:
        followed.pool.close()


def waited_s(world: World) -> float:
    """Return the seconds of all pauses."""
    return sum(world.time.pauses)


@cache
def crowded() -> MadeChain:
    """Return a chain with more paras than one small answer holds."""
    made = empty_chain()
    made.state.lifecycles |= dict.fromkeys(range(3000, 3060), PARACHAIN)
    while made.number <= JOINED:
        made.add(downward=[(made.number + 2900, b"x")])
    return made
