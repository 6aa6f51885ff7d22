# SPDX-License-Identifier: Apache-2.0
"""The Router as a plugin of group ``validator.protocols``: UMP, DMP and HRMP by router.txt. It is the default protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from validator import __version__
from validator.core.types import ParaId
from validator.errors import UserError
from validator.plugin.protocol_api import (
    BlockNumber,
    ChainSettings,
    HandlerBench,
    HandlerStates,
    Manifest,
    ProtocolDefinition,
    RuleProfiles,
    RulesEpoch,
    hookimpl,
)
from validator.protocols.kit import Account
from validator.protocols.router.configuration import LIMITS_TABLE, MAXIMA, HostConfiguration, read_configuration
from validator.protocols.router.features import table
from validator.protocols.router.invariants import LEFT_BY_THE_CHAIN, check_invariants
from validator.protocols.router.profile import Profile, rules_of
from validator.protocols.router.records import ROUTER_RECORDS
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import HrmpChannel, HrmpOpenChannelRequest, RouterState
from validator.protocols.router.state_view import STATE_VIEW
from validator.protocols.router.statefile import STATE_FILE
from validator.protocols.router.traces import TRACES
from validator.resources import schemas_directory

# --- handler bench --------------------------------------------------------------------------------------------------------------------
# The Router as a test bench for authors of upward-message handlers.


def _check(configuration: Any) -> None:
    assert isinstance(configuration, HostConfiguration)
    if not configuration.preferred_dispatchable_upward_messages_step_weight:
        raise UserError("preferred_dispatchable_upward_messages_step_weight is 0: nothing would be dispatched")


def _send(state: RouterState, rules: Profile, para: ParaId, payload: bytes) -> None:
    # a candidate's limits on count and size do not concern handlers
    rules.upward.enact(state, para, [payload])


def _waits(state: RouterState) -> bool:
    queue = state.message_queue
    return bool(state.needs_dispatch if queue is None else queue.ring)


def _account(state: RouterState, para: ParaId) -> Account:
    return copy(state.accounts.get(para, Account()))


def _downward(state: RouterState, para: ParaId) -> list[bytes]:
    return [message.msg for message in state.downward_message_queues.get(para, ())]


def _channels(state: RouterState) -> dict[tuple[ParaId, ParaId], HrmpChannel]:
    return {each: copy(channel) for each, channel in sorted(state.hrmp_channels.items())}


def _open_requests(state: RouterState) -> dict[tuple[ParaId, ParaId], HrmpOpenChannelRequest]:
    return {each: copy(request) for each, request in sorted(state.hrmp_open_channel_requests.items())}


HANDLER_BENCH: Final = HandlerBench(
    preset="polkadot-2023",
    check=_check,
    paras=lambda state: sorted(state.paras),
    send=_send,
    waits=_waits,
    account=_account,
    downward=_downward,
    channels=_channels,
    open_requests=_open_requests,
    close_requests=lambda state: sorted(state.hrmp_close_channel_requests),
)


# --- plugin ---------------------------------------------------------------------------------------------------------------------------


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="router", version=__version__, api_version=(2, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the Router."""
    yield ProtocolDefinition(
        name="router",
        encoding_version=1,
        rule_set=ROUTER,
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


def _handler_states(state: RouterState) -> HandlerStates:
    return state.handler_states


def _check_invariants(state: RouterState, rules: Profile) -> str | None:
    check_invariants(state)
    return LEFT_BY_THE_CHAIN if "as_the_chain" in rules.features else None


def _reconfigure(state: RouterState, settings: ChainSettings, limits: Collection[str]) -> None:
    given = settings.configuration
    state.host_configuration = replace(state.host_configuration, **{name: getattr(given, name) for name in limits})
    state.balances_mode, state.hrmp_notifications = settings.balances, settings.notifications
