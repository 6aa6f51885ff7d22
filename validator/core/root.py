# SPDX-License-Identifier: Apache-2.0
"""The state root: a Merkle tree over the hashes of state pages."""

from __future__ import annotations

from collections.abc import Mapping

from validator.core.hashing import blake2b_256
from validator.core.limits import U32_MAX
from validator.core.types import Hash

_LEAF, _NODE, _ROOT = b"\x00", b"\x01", b"\x02"


def merkle_root(common_page_hash: Hash, page_hashes: Mapping[int, Hash]) -> Hash:
    """Return the root over the common page and the pages of owners: paras, and whatever else a protocol has pages for.

    Leaves, in order: ``H(00 ++ common)``, then ascending by owner ``H(00 ++ u32_le(para) ++ page_hash)`` for paras and ``H(00 ++
    u64_le(owner) ++ page_hash)`` for owners above them. A node is ``H(01 ++ left ++ right)``; an odd last node moves up unchanged. The root
    is ``H(02 ++ u32_le(number of leaves) ++ top)``. H is BLAKE2b-256.
    """
    level = [blake2b_256(_LEAF + common_page_hash)]
    level += [blake2b_256(_LEAF + _owner(owner) + page_hashes[owner]) for owner in sorted(page_hashes)]
    leaves = len(level)
    while len(level) > 1:
        nodes = [blake2b_256(_NODE + level[at] + level[at + 1]) for at in range(0, len(level) - 1, 2)]
        if len(level) % 2:
            nodes.append(level[-1])
        level = nodes
    return blake2b_256(_ROOT + leaves.to_bytes(4, "little") + level[0])


def _owner(owner: int) -> bytes:
    return owner.to_bytes(4 if owner <= U32_MAX else 8, "little")
