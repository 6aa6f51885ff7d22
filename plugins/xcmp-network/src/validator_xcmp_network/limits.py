# SPDX-License-Identifier: Apache-2.0
"""All limits of the plugin that are not part of the protocol's configuration, with their units."""

from __future__ import annotations

from typing import Final

from validator.plugin.protocol_api import MESSAGES_PER_CANDIDATE_MAX

OUTBOX_MESSAGES_MAX: Final = MESSAGES_PER_CANDIDATE_MAX
"""Maximum logical messages of a candidate in the decode stage."""
ACKS_MAX: Final = 65_536
"""Maximum acknowledgements of a candidate in the decode stage."""
OPEN_CHANNELS_MAX: Final = 1_048_576
"""Maximum fixed channels that a configuration may list."""
SHOWN_MAX: Final = 1_024
"""Maximum messages that an error lists: the first ones in queue order. A verdict must fit into a record."""
REMEMBERED_MAX: Final = 512
"""Acknowledged messages that each recipient's queue remembers, to distinguish them from messages that were never sent (N-I09)."""
