# SPDX-License-Identifier: Apache-2.0
"""Simulated chains of whichever protocol is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.config.limits import find_limits
from validator.errors import UserError
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol

if TYPE_CHECKING:
    from validator.simulate import Simulation, SimulationSettings


def simulation_of(protocol: str, settings: SimulationSettings) -> Simulation:
    """Return a simulated chain under a protocol. Raises `UserError` where that is not installed, or comes without a simulation."""
    definition = installed_protocol(protocol)
    if definition is None:
        known = ", ".join(sorted(found.name for found in discover("validator.protocols")))
        raise UserError(f"--protocol: {protocol!r} is not installed; there are {known}")
    if definition.simulation is None:
        raise UserError(f"--protocol: {protocol!r} comes without a simulation")
    return definition.simulation(settings)


def chain_table(chain: dict[str, Any]) -> dict[str, Any]:
    """Return the table ``[chains.<lane>]`` of a simulated chain."""
    table = {name: value for name, value in chain.items() if name not in ("lane", "config")}
    return {**table, find_limits(chain["protocol"]).key: chain["config"]}
