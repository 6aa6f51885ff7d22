# SPDX-License-Identifier: Apache-2.0
"""What `--accept-change` says: which changes since the last start are on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from validator.core.limits import U32_MAX
from validator.core.types import BlockNumber
from validator.errors import UserError

OPTION = "--accept-change"
GENESIS, REMOVED = "genesis", "removed"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted changes of one start."""

    genesis: frozenset[str] = frozenset()
    """Lanes whose configured beginning may differ from the one that they had."""
    removed: frozenset[str] = frozenset()
    """Lanes that are no longer configured."""
    blocks: Mapping[str, BlockNumber] = field(default_factory=dict)
    """By lane, the first block that the changed configuration may judge."""

    def options(self) -> dict[str, str]:
        """Return each change as the option's value, with its lane."""
        return {
            **{f"{lane}:{GENESIS}": lane for lane in sorted(self.genesis)},
            **{f"{lane}:{REMOVED}": lane for lane in sorted(self.removed)},
            **{f"{lane}:{block}": lane for lane, block in sorted(self.blocks.items())},
        }


NOTHING = Accepted()


def read_accepted(texts: Iterable[str]) -> Accepted:
    """Return the changes that values of `--accept-change` name.

    Errors, in order: a value is not LANE:genesis, LANE:removed or LANE:BLOCK; a lane has two blocks.
    """
    genesis, removed, blocks = set(), set(), dict[str, BlockNumber]()
    for text in texts:
        lane, _, what = text.rpartition(":")
        if lane and what == GENESIS:
            genesis.add(lane)
        elif lane and what == REMOVED:
            removed.add(lane)
        elif lane and what.isascii() and what.isdecimal() and 1 <= int(what) <= U32_MAX:
            if blocks.setdefault(lane, int(what)) != int(what):
                raise UserError(f"{OPTION}: expected one block for lane {lane}, found {blocks[lane]} and {what}")
        else:
            raise UserError(
                f"{OPTION}: expected LANE:{GENESIS}, LANE:{REMOVED} or LANE:BLOCK with a block from 1 on, found {text!r}"
            )
    return Accepted(frozenset(genesis), frozenset(removed), blocks)
