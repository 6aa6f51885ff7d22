# SPDX-License-Identifier: Apache-2.0
"""The rules that a job last started with, kept in its folder, so that a change of the past is refused before the job runs.

The store itself refuses it too (`validator.lanes.store`), but only with a lane's first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition, journal_under_others
from validator.lanes.kept_start import LaneStart
from validator.plugin.registry import PluginError
from validator.plugin.runtime import RulesOutdated, make_runtime


def kept_rules(starts: Mapping[str, LaneStart]) -> dict[str, bytes]:
    """Return, by lane, what `LaneDefinition.encode_rules` returned at the last start."""
    return {lane: bytes.fromhex(start.rules) for lane, start in starts.items()}


def rules_changed(kept: Mapping[str, bytes], definitions: Mapping[str, LaneDefinition]) -> bool:
    """Return whether any lane has other rules or handlers than those kept, whichever blocks they are for."""
    return any(_changed(kept, lane, definition) is not None for lane, definition in definitions.items())


def refuse_changed_past(
    kept_by_lane: Mapping[str, bytes],
    definitions: Mapping[str, LaneDefinition],
    executed_block: Callable[[str], BlockNumber | None],
    *,
    checkpoint: bool = False,
) -> None:
    """Raise `UserError` for the first lane whose rules or handlers differ from the kept ones in blocks that are executed.

    ``executed_block`` is asked only for lanes that changed. With a ``checkpoint``, rules that this program or its plugins do not have any
    more are an error, too, since the journal was written under them. Other bytes that cannot be compared are left to the store.
    """
    for lane, definition in definitions.items():
        kept = _changed(kept_by_lane, lane, definition)
        if kept is None:
            continue
        try:
            before = definition.under(kept)
        except (PluginError, RulesOutdated) as error:
            if checkpoint and executed_block(lane) is not None:
                raise UserError(journal_under_others(lane, error)) from None
            continue
        except (DecodeError, UserError):
            continue
        executed = executed_block(lane)
        if executed is None:
            continue
        definition.refuse_to_change_the_past(before, executed)
        if checkpoint:
            try:
                make_runtime(before.plan)
            except PluginError as error:
                raise UserError(journal_under_others(lane, error)) from None


def _changed(kept: Mapping[str, bytes], lane: str, definition: LaneDefinition) -> bytes | None:
    """Return a lane's kept rules if the present ones differ from them."""
    rules = kept.get(lane)
    return None if rules is None or rules == definition.encode_rules() else rules
