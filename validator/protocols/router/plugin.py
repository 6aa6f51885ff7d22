# SPDX-License-Identifier: Apache-2.0
"""The Router as a plugin of group ``validator.protocols``: UMP, DMP and HRMP by router.txt, the default."""

from __future__ import annotations

from collections.abc import Iterable

from validator import __version__
from validator.core.rules import RuleSet
from validator.plugin.api import ChainSettings, Manifest, ProtocolDefinition, Simulation, SimulationSettings, hookimpl
from validator.protocols.router.configuration import MAXIMA, read_configuration
from validator.protocols.router.encoding import ENCODING_VERSION
from validator.protocols.router.rules import RULES_VERSION, Router
from validator.protocols.router.shapes import ROUTER_RECORDS
from validator.protocols.router.traces import TRACES
from validator.resources import schemas_directory


@hookimpl
def validator_manifest() -> Manifest:
    """Say who the plugin is."""
    return Manifest(name="router", version=__version__, api_version=(1, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the Router."""
    yield ProtocolDefinition(
        name="router",
        rules_version=RULES_VERSION,
        encoding_version=ENCODING_VERSION,
        genesis=_genesis,
        restore=_restore,
        configuration=read_configuration,
        limits=tuple(MAXIMA),
        maxima=MAXIMA,
        records=ROUTER_RECORDS,
        schemas=schemas_directory(),
        traces=TRACES,
        simulation=_simulation,
        typed_limits=True,
    )


def _simulation(settings: SimulationSettings) -> Simulation:
    from validator.simulate.traffic import Simulation as RouterSimulation

    return RouterSimulation(settings)


def _genesis(settings: ChainSettings) -> RuleSet:
    return Router.at_genesis(
        settings.configuration,
        settings.paras,
        balances=settings.balances,
        notifications=settings.notifications,
        dispatcher=settings.upward_messages,
        enactment=settings.enactment,
    )


def _restore(pages: list[bytes], settings: ChainSettings) -> RuleSet:
    return Router.from_pages(pages, settings.upward_messages, settings.enactment)
