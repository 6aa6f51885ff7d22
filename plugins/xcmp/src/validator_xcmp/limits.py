# SPDX-License-Identifier: Apache-2.0
"""Every limit of the plugin that the protocol itself does not configure, with its unit."""

from __future__ import annotations

from typing import Final

from validator.plugin.protocol_api import U32_MAX

BITFIELD_BITS_MAX: Final = 65_536
"""Bits of a candidate's bitfield that decode accepts, before it is held against the row."""

TREE_LEAVES_MAX: Final = U32_MAX
"""Leaves of a Merkle tree: their number is bound into the root as a u32."""
PROOF_PATH_HASHES_MAX: Final = 32
"""Hashes of a Merkle proof: a tree of `TREE_LEAVES_MAX` leaves is no deeper."""
PROOF_LINKS_MAX: Final = 65_536
"""Links of one channel's chain that a proof of processing may open: over four days of blocks of six seconds."""
PROOF_BODY_PAYLOADS_MAX: Final = 65_536
"""Payloads of one logical message in a proof of processing."""
PROOF_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of all payloads of one logical message in a proof of processing."""

ROW_TREE_COLUMNS_MIN: Final = 8
"""Columns of a row from which on the nodes of its tree are kept, so that a change costs its paths and not the row."""
ROW_TREES_COLUMNS_MAX: Final = 262_144
"""Columns of all rows whose nodes are kept, about 300 bytes each; the row that has waited longest for a change goes first."""
