# SPDX-License-Identifier: Apache-2.0
"""Simulated chains of any installed protocol: entry points of group ``validator.simulators``, each a function of the settings."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from validator.cli.command_api import UserError, in_one_line, limits_key

if TYPE_CHECKING:
    from validator_simulators.settings import Simulation, SimulationSettings

GROUP: Final = "validator.simulators"
"""An entry point's name is the protocol's."""


def simulation_of(protocol: str, settings: SimulationSettings) -> Simulation:
    """Return a simulated chain of a protocol. Raises `UserError` if the protocol is not installed, or has no simulation."""
    known = {entry.name.partition("@")[0] for entry in entry_points(group="validator.protocols")}
    if protocol not in known:
        raise UserError(f"--protocol: {protocol!r} is not installed; installed are {', '.join(sorted(known))}")
    found = tuple(entry_points(group=GROUP, name=protocol))
    if len(found) != 1:
        raise UserError(
            f"--protocol: {protocol!r} has {'several simulations' if found else 'no simulation'} (entry points of group {GROUP})"
        )
    try:
        simulation = found[0].load()
    except (Exception, SystemExit) as error:  # the module may be anybody's and raise anything
        raise UserError(f"--protocol: importing {found[0].value} failed: {in_one_line(error)}") from error
    return simulation(settings)  # type: ignore[no-any-return]


def has_simulation(protocol: str) -> bool:
    return bool(entry_points(group=GROUP, name=protocol))


def chain_table(chain: dict[str, Any]) -> dict[str, Any]:
    """Return a simulated chain's ``[chains.<lane>]`` table."""
    table = {name: value for name, value in chain.items() if name not in ("lane", "config")}
    return {**table, limits_key(chain["protocol"]): chain["config"]}
