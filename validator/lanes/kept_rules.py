# SPDX-License-Identifier: Apache-2.0
"""The rules that a job last started with, kept in its folder, so that a change of the past is refused before the job runs.

The store itself refuses it too (`validator.lanes.store`), but only with a lane's first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.plugin.registry import PluginError
from validator.plugin.runtime import RulesOutdated

_SUFFIX = ".rules"


def keep_rules(folder: Path, definitions: Mapping[str, LaneDefinition]) -> None:
    """Write what `LaneDefinition.encode_rules` returns for each lane, in place of what an earlier start kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for lane, definition in definitions.items():
        path = folder / f"{lane}{_SUFFIX}"
        written = path.with_name(f"{path.name}.new")
        written.write_bytes(definition.encode_rules())
        written.replace(path)


def refuse_changed_past(
    folder: Path, definitions: Mapping[str, LaneDefinition], executed_block: Callable[[str], BlockNumber | None]
) -> None:
    """Raise `UserError` for the first lane whose rules or handlers differ from the kept ones in blocks that are executed.

    ``executed_block`` is asked only for lanes that changed. What cannot be compared here is left to the store.
    """
    for lane, definition in definitions.items():
        path = folder / f"{lane}{_SUFFIX}"
        kept = path.read_bytes() if path.exists() else None
        if kept is None or kept == definition.encode_rules():
            continue
        try:
            before = definition.under(kept)
        except (DecodeError, PluginError, RulesOutdated, UserError):
            continue
        executed = executed_block(lane)
        if executed is not None:
            definition.refuse_to_change_the_past(before, executed)
