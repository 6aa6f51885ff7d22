# SPDX-License-Identifier: Apache-2.0
"""Where the state that a dry run asks comes from: a state file, a lane in this process, or the job's checkpoint.

For the transport, the last committed states are kept in memory and read again once the job has committed another batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from validator.ask.dry_run import Asked, Standing
from validator.ask.state import restore, stored_lanes
from validator.checkpoint.files import checkpoint_id, last_committed_batch
from validator.config.explain import chain_of
from validator.config.limits import check_table, find_limits
from validator.core.rules import in_force, pages
from validator.core.types import Balances
from validator.document import Node, read_document
from validator.errors import UserError
from validator.lanes.configured import (
    chain_runtime,
    configured_lock,
    continued,
    job_directory,
    read_state_file,
    rules_runtime,
)
from validator.lanes.processor import LaneProcessor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from validator.config import Chain, Config
    from validator.core.lane import Lane
    from validator.core.types import BlockNumber
    from validator.lanes.definition import LaneDefinition


REFRESH_SHARE_MAX: Final = 0.25
"""The share of the time in which a lane's states are read: reading a large state takes longer, so it happens less often."""


def standing_of_checkpoint(config: Config, lane: str, limits: Collection[str] = (), *, rules: bool = False) -> Standing:
    """Return a lane's state after the last committed batch of a job, which may be running.

    ``config`` gives the ``limits``, and with ``rules`` the rules by height; all else is the lane's own. Raises `UserError` as
    `restore`, `chain_of` and `continued` do.
    """
    with stored_lanes(job_directory(config), [lane]) as stored:
        restored = restore(stored, lane)
    definition, followed = restored.definition, restored.processor.lane
    if rules:
        listed = rules_runtime(chain_of(config.chains, lane), lane).plan.rules
        definition = replace(definition, plan=replace(definition.plan, rules=listed))
    if limits or rules:
        chain_of(config.chains, lane)
        followed = continued(config, definition, followed, limits)
    return standing_of(definition, followed)


def standing_of_file(config: Config, lane: str, path: Path) -> Standing:
    """Return the state of a state file under a chain's configuration. Raises `UserError`: no such chain, a wrong file."""
    chain = chain_of(config.chains, lane, NO_CHAIN)
    runtime = chain_runtime(chain, lane, configured_lock(config))
    first_block, rules = read_state_file(path, chain, lane, runtime)
    return Standing(lane, first_block - 1, rules, runtime.protocol, runtime.codec, runtime.records, rules.state_root())


NO_CHAIN: Final = "--lane: a state file needs the chain's configuration, and "


def with_limits_of_file(config: Config, lane: str, path: Path) -> Config | None:
    """Return a configuration with the limits and modes that `validator state show --json` wrote next to a state, None if it wrote none.

    Raises `UserError`: no such chain, a file that is none, a limit or mode that is none.
    """
    chain = chain_of(config.chains, lane, NO_CHAIN)
    document, found = read_document(path), find_limits(chain.protocol)
    if found.table is None or not document.has(found.key):
        return None
    limits = document[found.key].object()
    check_table(found.table, limits, document.path)
    update = {
        found.key: limits,
        "balances": document.get(
            "balances", lambda node: node.one_of([each.value for each in Balances]), chain.balances
        ),
        "hrmp_notifications": document.get("hrmp_notifications", Node.boolean, chain.hrmp_notifications),
    }
    return config.model_copy(update={"chains": {**config.chains, lane: chain.model_copy(update=update)}})


def unused(standing: Standing, chain: Chain, block: BlockNumber) -> list[str]:
    """Return in words the limits and rules of a configuration in whose place a lane's state has others in a block."""
    table = standing.protocol.limits_table
    used: Mapping[str, int] = (
        {} if table is None else standing.view.whole_document(standing.rules.state).get(table.key, {})
    )
    words = []
    if table is not None and used:
        given = table.resolve(chain.limit_tables().get(table.key, {}))
        words = [
            f"{name} {given.get(name, 'none')} in place of {used.get(name, 'none')}"
            for name in table.maxima
            if given.get(name) != used.get(name)
        ]
    configured = rules_runtime(chain, standing.lane).rules
    if in_force(configured, block).version != in_force(standing.rules.settings.rules, block).version:
        words.append("other rules by height")
    return words


def standing_of_lane(definition: LaneDefinition, processor: LaneProcessor) -> Standing:
    """Return a copy of a lane's state."""
    return standing_of(definition, LaneProcessor.restore(definition, processor.snapshot()).lane)


def standing_of(definition: LaneDefinition, lane: Lane) -> Standing:
    """Return a lane's state itself, which dry runs will change."""
    return Standing(
        lane.name,
        lane.executed_block,
        lane.rules,
        definition.protocol,
        definition.codec,
        definition.records,
        lane.rules.state_root(),
    )


@dataclass(slots=True)
class _Kept:
    """A lane's state as pages, from which it is restored after a request has changed it; or why there is none."""

    checkpoint: str = ""
    batch: int | None = None
    definition: LaneDefinition | None = None
    pages: list[bytes] = field(default_factory=list)
    standing: Standing | None = None
    is_changed: bool = False
    reason: str = ""
    next_look_s: float = float("-inf")


class CheckpointStandings:
    """States from the checkpoint of a job, which may be running on this machine (`dry_run.Standings`).

    A lane is looked for again ``refresh_s`` seconds after the last time at the earliest, and later if reading takes long; an error stays
    until then.
    """

    def __init__(self, config: Config, refresh_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._refresh_s, self._clock = config, refresh_s, clock
        self._lanes: dict[str, _Kept] = {}

    def of(self, lane: str) -> Asked:
        """Return a lane's state after the last committed batch. Raises `UserError`: an unknown lane, no state of it."""
        chains = self._config.chains
        if lane not in chains:
            raise UserError(
                f"lane: expected {' or '.join(sorted(chains)) or 'none, as no chain is configured'}, found {lane!r}"
            )
        kept = self._lanes.setdefault(lane, _Kept())
        if self._clock() >= kept.next_look_s:
            self._look(lane, kept)
        if kept.standing is None or kept.definition is None:
            raise UserError(kept.reason)
        if kept.is_changed:
            rules = kept.definition.restore_rules(kept.pages)
            kept.standing, kept.is_changed = kept.standing.with_rules(rules), False
        return Asked(kept.standing, kept.batch)

    def changed(self, lane: str) -> None:
        """Restore the lane before the next request."""
        self._lanes[lane].is_changed = True

    def _look(self, lane: str, kept: _Kept) -> None:
        """Read the state if the job has committed another batch; a lane whose state cannot be read has none."""
        began_s = self._clock()
        try:
            self._read(lane, kept)
        except UserError as error:
            kept.standing, kept.reason = None, str(error)
        except Exception as error:  # noqa: BLE001 - a full disk, a reader that has crashed: the next look may find it well
            kind = "" if isinstance(error, OSError | RuntimeError) else f"{type(error).__name__}: "
            kept.standing, kept.reason = None, f"the checkpoint cannot be read: {kind}{error}"
        ended_s = self._clock()
        kept.next_look_s = ended_s + max(self._refresh_s, (ended_s - began_s) * (1 / REFRESH_SHARE_MAX - 1))

    def _read(self, lane: str, kept: _Kept) -> None:
        directory = job_directory(self._config)
        checkpoint = directory / "checkpoint"
        batch = last_committed_batch(checkpoint)
        found = checkpoint_id(checkpoint)  # another checkpoint may have come as far
        if kept.standing is not None and (found, batch) == (kept.checkpoint, kept.batch):
            return
        with stored_lanes(directory, [lane]) as stored:
            restored = restore(stored, lane)
        kept.checkpoint, kept.batch, kept.definition = found, restored.batch, restored.definition
        kept.pages = pages(restored.rules)
        kept.standing, kept.is_changed = standing_of(restored.definition, restored.processor.lane), False
