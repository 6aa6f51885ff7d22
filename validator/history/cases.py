# SPDX-License-Identifier: Apache-2.0
"""A lane under its own configuration and under others, as cases of `history.what_if`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.config.explain import shown
from validator.config.limits import find_limits
from validator.config.unknown import no_chain
from validator.errors import UserError
from validator.history.what_if import Case
from validator.lanes.configured import continued, lane_definition, limit_differences, modes_differ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validator.config import Config
    from validator.core.lane import Lane
    from validator.lanes.definition import LaneDefinition


class Sweep(NamedTuple):
    """A limit of the chain, and the values to try."""

    limit: str
    values: tuple[int, ...]


_NUMBER: Final = re.compile("[0-9]{1,20}")


def read_sweep(text: str) -> Sweep:
    """Return the sweep that ``limit=value,value`` describes. Raises `UserError`."""
    name, equals, values = text.partition("=")
    parts = values.split(",")
    if not name or not equals or not all(_NUMBER.fullmatch(part) for part in parts):
        raise UserError(f"--sweep: expected LIMIT=NUMBER,NUMBER,..., found {shown(text)}")
    return Sweep(name, tuple(map(int, parts)))


def case_of(name: str, config: Config, lane: str, own: Config | None = None, swept: str | None = None) -> Case:
    """Return a configuration as a case, next to the ``own`` one; the limit ``swept`` counts as changed.

    Raises `UserError` if its chain is not usable.
    """
    definition = lane_definition(config, lane)
    chain, before = config.chains[lane], (own or config).chains[lane]

    def resume(after: Lane, under: LaneDefinition) -> Lane:
        limits = limit_differences(before, chain, under.protocol)
        return continued(
            config, under, after, limits if swept is None else limits | {swept}, modes=modes_differ(before, chain)
        )

    return Case(name, definition, resume)


def other_cases(own: Config, other: Config | None, name: str, lane: str, sweep: Sweep | None) -> Sequence[Case]:
    """Return the cases to compare with the lane's own: the other configuration, or that with each value of the sweep.

    ``other`` None means the lane's own. Raises `UserError`: the chain is not configured, has another protocol, or another value is wrong.
    """
    if other is not None:
        chain = other.chains.get(lane)
        if chain is None:
            raise UserError(f"{name}: {no_chain(lane, other.chains)}")
        if chain.protocol != own.chains[lane].protocol:
            raise UserError(
                f"{name}: chains.{lane}.protocol: expected {own.chains[lane].protocol}, which the records are of, found {chain.protocol}"
            )
    # imported states lie in the folder of the lane's own job
    config = own if other is None else other.model_copy(update={"job": own.job})
    if sweep is None:
        return [case_of(name, config, lane, own)]
    return [
        case_of(f"{sweep.limit}={value}", _with_limit(config, lane, sweep.limit, value), lane, own, sweep.limit)
        for value in sweep.values
    ]


def _with_limit(config: Config, lane: str, limit: str, value: int) -> Config:
    chain = config.chains[lane]
    key = find_limits(chain.protocol).key
    table: dict[str, Any] = {**chain.limit_tables().get(key, {}), limit: value}
    changed = chain.model_copy(update={key: table})
    return config.model_copy(update={"chains": {**config.chains, lane: changed}})
