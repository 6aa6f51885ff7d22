# SPDX-License-Identifier: Apache-2.0
"""Where the state that a dry run asks comes from: the job's checkpoint, a state file, or a lane in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.ask.dry_run import Standing
from validator.ask.state import restore, stored_lanes
from validator.config.unknown import no_chain
from validator.errors import UserError
from validator.lanes.configured import chain_runtime, configured_lock, job_directory, read_state_file
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from pathlib import Path

    from validator.config import Config
    from validator.lanes.definition import LaneDefinition


def standing_of_checkpoint(config: Config, lane: str) -> Standing:
    """Return a lane's state after the last committed batch of a job, which may be running. Raises `UserError` as `restore` does."""
    with stored_lanes(job_directory(config), [lane]) as stored:
        restored = restore(stored, lane)
    return standing_of(restored.definition, restored.processor)


def standing_of_file(config: Config, lane: str, path: Path) -> Standing:
    """Return the state of a state file under a chain's configuration. Raises `UserError`: no such chain, a wrong file."""
    chain = config.chains.get(lane)
    if chain is None:
        raise UserError(f"--lane: a state file needs the chain's configuration, and {no_chain(lane, config.chains)}")
    runtime = chain_runtime(chain, lane, configured_lock(config))
    first_block, rules = read_state_file(path, chain, lane, runtime)
    return Standing(lane, first_block - 1, rules, runtime.protocol, runtime.codec, runtime.records, rules.state_root())


def standing_of_lane(definition: LaneDefinition, processor: LaneProcessor) -> Standing:
    """Return a copy of a lane's state."""
    return standing_of(definition, LaneProcessor.restore(definition, processor.snapshot()))


def standing_of(definition: LaneDefinition, processor: LaneProcessor) -> Standing:
    """Return a lane's state itself, which dry runs will change."""
    lane = processor.lane
    return Standing(
        lane.name,
        lane.executed_block,
        lane.rules,
        definition.protocol,
        definition.codec,
        definition.records,
        lane.rules.state_root(),
    )
