# SPDX-License-Identifier: Apache-2.0
"""Gives a lane the state that it starts from, in mid-life of its chain."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from validator.core.rules import pages
from validator.errors import UserError
from validator.lanes.configured import imported_state_path, job_directory, read_state_file
from validator.protocols.kit import channel_name
from validator.protocols.router.rules import Router
from validator.protocols.router.statefile import HANDLER_STATES
from validator.protocols.router.view import view
from validator.service.job import running_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from validator.config import Chain, Config
    from validator.core.types import BlockNumber
    from validator.protocols.router.state import RouterState


@dataclass(frozen=True, slots=True)
class Imported:
    """What a lane starts from now, and where that is kept."""

    lane: str
    first_block: BlockNumber
    paras: int
    channels: int
    file: str


def import_state(
    config: Config, lane: str, file: Path, first_block: BlockNumber | None, executed_block: Callable[[str], int | None]
) -> Imported:
    """Check a STATE.json under its chain's configuration and keep it as the start of the lane.

    ``first_block`` goes over the file's own. ``executed_block`` tells what a lane has executed, None for nothing; it is asked only where
    there is a checkpoint. Errors, in order: no such chain, the chain names a state already, the state is not usable, a job runs, the lane
    has executed blocks.
    """
    chain = _chain(config, lane)
    own_first_block, state = read_state_file(file, chain)
    start = first_block or own_first_block
    directory = job_directory(config)
    pid = running_job(directory)
    if pid is not None:
        raise UserError(
            f"lane {lane}: a job runs on {directory} (process {pid}) and holds its lanes in memory: stop it first"
        )
    if (directory / "checkpoint").exists():
        executed = executed_block(lane)
        if executed is not None:
            raise UserError(
                f"lane {lane}: it is under way (executed block {executed}) with its state in {directory / 'checkpoint'}: import into "
                "another [job] directory, or remove that one to start anew"
            )
    target = imported_state_path(config, lane)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.new")
    temporary.write_text(normalised(start, state), encoding="utf-8")
    again_first_block, again = read_state_file(temporary, chain)
    if again_first_block != start or pages(Router(again)) != pages(Router(state)):
        raise AssertionError(f"{temporary}: the state reads differently once it is written")
    temporary.replace(target)
    return Imported(lane, start, len(state.paras), len(state.hrmp_channels), str(target))


def normalised(first_block: BlockNumber, state: RouterState) -> str:
    """Return the text of a STATE.json that holds all of a state."""
    return json.dumps({"first_block": first_block, "state": state_keys(state)}, indent=1) + "\n"


def state_keys(state: RouterState) -> dict[str, Any]:
    """Return the state keys of a STATE.json that holds all of a state: every one, the kind of every para, and what handlers keep."""
    document = view(state)
    document["valid_paras"] = [{"para_id": para, "kind": kind.value} for para, kind in sorted(state.paras.items())]
    # the order in which requests were made is the order in which a session change looks at them
    requests: dict[str, Any] = document["open_requests"]
    order = map(channel_name, state.hrmp_open_channel_requests_list)
    document["open_requests"] = {name: requests[name] for name in order}
    kept: dict[str, dict[str, str]] = {}
    for plugin, key, value in state.handler_states.entries():
        kept.setdefault(plugin, {})[key.hex()] = value.hex()
    return {**document, HANDLER_STATES: kept} if kept else document


def _chain(config: Config, lane: str) -> Chain:
    chain = config.chains.get(lane)
    if chain is None:
        close = get_close_matches(lane, config.chains, 1)
        known = (
            f"did you mean {close[0]!r}?" if close else f"configured are {', '.join(sorted(config.chains)) or 'none'}"
        )
        raise UserError(f"--lane: no chain {lane!r} is configured; {known}")
    if chain.state is not None:
        raise UserError(f"chains.{lane}.state names {chain.state} already: remove that key to import another state")
    return chain
