# SPDX-License-Identifier: Apache-2.0
"""All limits of the comparison of lanes with their relay chains, with their units."""

from __future__ import annotations

from typing import Final

RECORD_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a record of facts, and of a disagreement: facts of a session change name all channels."""

WAITING_BLOCKS_MAX: Final = 2_000
"""Executed blocks of a lane that wait for the chain's facts; the oldest beyond that is not compared."""

ROUND_RECORDS_MAX: Final = 5_000
"""Records of lanes that are read before they are compared and the position is committed."""

DISAGREEMENTS_MAX: Final = 1_000
"""Disagreements that are reported of a block; the rest is counted."""

TEXT_CHARACTERS_MAX: Final = 1_000
"""Characters of one side of a disagreement."""

LINE_CHARACTERS_MAX: Final = 200
"""Characters of one side of a disagreement that are shown in a line."""

CAUSES_MAX: Final = 10_000
"""Paras of which it is remembered that a disagreement makes later ones."""
