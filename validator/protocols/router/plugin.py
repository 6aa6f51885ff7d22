# SPDX-License-Identifier: Apache-2.0
"""The Router as a plugin of group ``validator.protocols``: UMP, DMP and HRMP by router.txt. It is the default protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from validator import __version__
from validator.plugin.protocol_api import (
    BlockNumber,
    ChainSettings,
    HandlerStates,
    Manifest,
    ProtocolDefinition,
    RuleProfiles,
    RulesEpoch,
    hookimpl,
)
from validator.protocols.router.configuration import MAXIMA, read_configuration
from validator.protocols.router.features import table
from validator.protocols.router.handler_bench import HANDLER_BENCH
from validator.protocols.router.invariants import LEFT_BY_THE_CHAIN, check_invariants
from validator.protocols.router.presets import LIMITS_TABLE
from validator.protocols.router.profile import rules_of
from validator.protocols.router.rules import Router
from validator.protocols.router.shapes import ROUTER_RECORDS
from validator.protocols.router.state_view import STATE_VIEW
from validator.protocols.router.statefile import STATE_FILE
from validator.protocols.router.traces import TRACES
from validator.resources import schemas_directory


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="router", version=__version__, api_version=(1, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the Router."""
    yield ProtocolDefinition(
        name="router",
        encoding_version=1,
        genesis=Router.at_genesis,
        restore=Router.from_pages,
        configuration=read_configuration,
        limits=tuple(MAXIMA),
        maxima=MAXIMA,
        records=ROUTER_RECORDS,
        schemas=schemas_directory(),
        traces=TRACES,
        limits_table=LIMITS_TABLE,
        state_file=STATE_FILE,
        state_view=STATE_VIEW,
        handler_states=_handler_states,
        invariants=_check_invariants,
        reconfigure=_reconfigure,
        handler_bench=HANDLER_BENCH,
        typed_limits=True,
        rules_page=Path(__file__).resolve().parent / "rules.md",
        rules=(_epoch(0, table.version_of(())),),
        rule_profiles=RuleProfiles(
            features={feature.name: feature.says for feature in table.FEATURES},
            profiles=table.PROFILES,
            default=table.SEED,
            lasting=frozenset(feature.name for feature in table.FEATURES if feature.lasts),
            with_implied=table.with_implied,
            version_of=table.version_of,
            features_of=table.features_of,
            epoch=_epoch,
            notifications="hrmp_notifications",
        ),
    )


def _epoch(from_block: BlockNumber, version: int) -> RulesEpoch:
    return RulesEpoch(from_block, version, rules_of(table.features_of(version)))


def _handler_states(rules: Router) -> HandlerStates:
    return rules.state.handler_states


def _check_invariants(rules: Any) -> str | None:
    check_invariants(rules.state)
    return LEFT_BY_THE_CHAIN if "as_the_chain" in rules.rules.features else None


def _reconfigure(rules: Any, settings: ChainSettings, limits: Collection[str]) -> None:
    state, given = rules.state, settings.configuration
    state.host_configuration = replace(state.host_configuration, **{name: getattr(given, name) for name in limits})
    state.balances_mode, state.hrmp_notifications = settings.balances, settings.notifications
