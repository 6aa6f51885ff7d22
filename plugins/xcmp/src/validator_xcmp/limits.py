# SPDX-License-Identifier: Apache-2.0
"""All limits of the plugin that are not part of the protocol's configuration, with their units."""

from __future__ import annotations

from typing import Final

from validator.plugin.protocol_api import U32_MAX

BITFIELD_BITS_MAX: Final = 65_536
"""Maximum bits of a candidate's bitfield in the decode stage. Acceptance then compares it with the row."""

TREE_LEAVES_MAX: Final = U32_MAX
"""Maximum leaves of a Merkle tree; the root binds their number as a u32."""
PROOF_PATH_HASHES_MAX: Final = 32
"""Maximum hashes of a Merkle proof: the depth of a tree with `TREE_LEAVES_MAX` leaves."""
PROOF_LINKS_MAX: Final = 65_536
"""Maximum links of one channel's chain in a proof of processing: over four days of six-second blocks."""
PROOF_BODY_PAYLOADS_MAX: Final = 65_536
"""Maximum payloads of one logical message in a proof of processing."""
PROOF_BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum total bytes of the payloads of one logical message in a proof of processing."""

ROW_TREE_COLUMNS_MIN: Final = 8
"""Minimum columns of a row whose tree nodes are cached, so that a change costs only its paths, not the full row."""
ROW_TREES_COLUMNS_MAX: Final = 262_144
"""Maximum columns of all cached rows, about 300 bytes each; the least recently changed row is evicted first."""
