# SPDX-License-Identifier: Apache-2.0
"""What the next start of the job would say against the configuration of a lane, without starting it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from validator.checkpoint.files import has_checkpoint
from validator.config import configuration_meaning
from validator.errors import UserError
from validator.job.look import checkpoint_of
from validator.lanes.accepted import NOTHING
from validator.lanes.configured import definition_beside, started_chain
from validator.lanes.kept_rules import kept_rules, refuse_changed_past
from validator.lanes.kept_start import LaneStart, StartedEpoch, differences, refuse_changes, start_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validator.config import Config
    from validator.core.types import BlockNumber


def refusal_of(
    config: Config,
    lane: str,
    before: LaneStart,
    configured: Sequence[StartedEpoch] | None,
    executed: BlockNumber | None,
) -> str | None:
    """Return the line with which a start without options refuses a lane that has taken records, or None.

    ``before`` is what the lane began with, ``configured`` the epochs that the configuration means. The lane's state is read only if either
    differs. Without a checkpoint a start asks for `--rebuild` first, and compares the lane's output instead.
    """
    if not has_checkpoint(checkpoint_of(config)):
        return None
    try:
        meaning = json.loads(json.dumps(configuration_meaning(started_chain(config, lane)), default=str))
        if meaning == before.meaning and configured == before.epochs:
            return None
        definition = definition_beside(config, lane)
        changed = differences(lane, before, start_of(config, definition))
        refuse_changes(lane, changed, NOTHING, executed, rebuild=False)
        kept = kept_rules({lane: before})
        refuse_changed_past(kept, {lane: definition}, lambda _: executed, checkpoint=True)
    except UserError as error:
        return str(error)
    return None
