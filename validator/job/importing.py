# SPDX-License-Identifier: Apache-2.0
"""Imports the state that a lane starts from when it joins its chain at a later block."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from validator.config.explain import chain_of
from validator.core.rules import pages
from validator.errors import UserError
from validator.job.process import running_job
from validator.lanes.configured import (
    imported_state_path,
    job_directory,
    read_state_file,
    rules_runtime,
)
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from validator.config import Chain, Config
    from validator.core.types import BlockNumber


class Imported(NamedTuple):
    """A lane's imported start: its first block, counts of its state (`plugin.protocol_api.StateFile.counts`), and the stored file."""

    lane: str
    first_block: BlockNumber
    counts: Mapping[str, int]
    file: str

    def to_json(self) -> dict[str, Any]:
        return {"lane": self.lane, "first_block": self.first_block, **self.counts, "file": self.file}


def import_state(
    config: Config, lane: str, file: Path, first_block: BlockNumber | None, executed_block: Callable[[str], int | None]
) -> Imported:
    """Check a STATE.json against its chain's configuration and store it as the lane's start.

    ``first_block`` overrides the file's own. ``executed_block`` returns a lane's last executed block, or None; it is called only if a
    checkpoint exists. Errors, in order: no such chain, the chain already names a state, its plugins are unusable, the state is invalid, a
    job is running, the lane has executed blocks.
    """
    chain = _chain(config, lane)
    use_artefacts(config.plugins.artefacts)
    runtime = rules_runtime(chain, lane)
    own_first_block, rules = read_state_file(file, chain, lane, runtime)
    start = first_block or own_first_block
    directory = job_directory(config)
    pid = running_job(directory)
    if pid is not None:
        raise UserError(
            f"lane {lane}: a job is using {directory} (process {pid}) and holds its lanes in memory: stop it first"
        )
    if (directory / "checkpoint").exists():
        executed = executed_block(lane)
        if executed is not None:
            raise UserError(
                f"lane {lane}: it has already executed block {executed}, with its state in {directory / 'checkpoint'}: import into "
                "another [job] directory, or remove that one to start over"
            )
    target = imported_state_path(config, lane)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.new")
    state_file = runtime.protocol.state_file
    assert state_file is not None
    document = {"first_block": start, "state": state_file.write(rules.state)}
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    again_first_block, again = read_state_file(temporary, chain, lane, runtime)
    if again_first_block != start or pages(again) != pages(rules):
        raise AssertionError(f"{temporary}: the state differs when it is read back")
    temporary.replace(target)
    return Imported(lane, start, state_file.counts(rules.state), str(target))


def _chain(config: Config, lane: str) -> Chain:
    chain = chain_of(config.chains, lane)
    if chain.state is not None:
        raise UserError(f"chains.{lane}.state already names {chain.state}: remove that key to import another state")
    return chain
