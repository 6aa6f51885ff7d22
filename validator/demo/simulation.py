# SPDX-License-Identifier: Apache-2.0
"""Simulated chains of any installed protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.config.limits import find_limits
from validator.errors import UserError
from validator.plugin.registry import discover
from validator.plugin.runtime import installed_protocol

if TYPE_CHECKING:
    from validator.simulate import Simulation, SimulationSettings


def simulation_of(protocol: str, settings: SimulationSettings) -> Simulation:
    """Return a simulated chain of a protocol. Raises `UserError` if the protocol is not installed, or has no simulation."""
    definition = installed_protocol(protocol)
    if definition is None:
        known = ", ".join(sorted(found.name for found in discover("validator.protocols")))
        raise UserError(f"--protocol: {protocol!r} is not installed; installed are {known}")
    if definition.simulation is None:
        raise UserError(f"--protocol: {protocol!r} has no simulation")
    return definition.simulation(settings)


def chain_table(chain: dict[str, Any]) -> dict[str, Any]:
    """Return a simulated chain's ``[chains.<lane>]`` table."""
    table = {name: value for name, value in chain.items() if name not in ("lane", "config")}
    return {**table, find_limits(chain["protocol"]).key: chain["config"]}
