# SPDX-License-Identifier: Apache-2.0
"""The plugin: protocol ``xcmp-network`` of group ``validator.protocols``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import (
    files,  # validator: allow dynamic a definition names the location of its schemas, traces and rules
)
from typing import Any, Final

from validator.plugin.protocol_api import (
    ChainSettings,
    Manifest,
    ProofFormat,
    ProtocolDefinition,
    TraceFormat,
    hookimpl,
)
from validator_xcmp_network import __version__
from validator_xcmp_network.configuration import LIMITS, MAXIMA, OPEN_CHANNELS, ChannelMode, Setup, read_configuration
from validator_xcmp_network.invariants import check_invariants
from validator_xcmp_network.pages import PAGES
from validator_xcmp_network.proof_documents import KINDS, prove_document, verify_document
from validator_xcmp_network.rules import XcmpNetwork
from validator_xcmp_network.shapes import RECORDS
from validator_xcmp_network.state_view import STATE_VIEW
from validator_xcmp_network.traces import PARA_KEYS, STATE_KEYS, read_body, read_candidate, read_request, view

NAME: Final = "xcmp-network"

_PACKAGE: Final = files("validator_xcmp_network")


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name=NAME, version=__version__, api_version=(1, 1))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the protocol."""
    yield ProtocolDefinition(
        name=NAME,
        encoding_version=PAGES.version,
        genesis=XcmpNetwork.at_genesis,
        restore=XcmpNetwork.from_pages,
        configuration=read_configuration,
        limits=LIMITS,
        maxima=MAXIMA,
        records=RECORDS,
        schemas=_PACKAGE.joinpath("schemas"),
        traces=TraceFormat(
            request=read_request,
            candidate=read_candidate,
            view=_view,
            state_keys=STATE_KEYS,
            features=("delayed_enactment",),
            pending_ends_with_session=_has_opening_channels,
            scenario_keys=(OPEN_CHANNELS,),
            body=read_body,
            para_keys=PARA_KEYS,
            suite=_PACKAGE.joinpath("conformance"),
        ),
        proofs=ProofFormat(KINDS, prove_document, verify_document),
        state_view=STATE_VIEW,
        invariants=_check_invariants,
        reconfigure=_reconfigure,
        rules_page=_PACKAGE.joinpath("rules.md"),
    )


def _has_opening_channels(setup: Setup) -> bool:
    return setup.network.channels is ChannelMode.XCMP


def _view(rules: Any) -> dict[str, Any]:
    assert isinstance(rules, XcmpNetwork)
    return view(rules.state)


def _check_invariants(rules: Any) -> None:
    check_invariants(rules.state)


def _reconfigure(rules: Any, settings: ChainSettings, limits: Collection[str]) -> None:
    state, given = rules.state, settings.configuration
    for name in ("channels", OPEN_CHANNELS):
        if name in limits:
            raise ValueError(f"{name}: expected the same, since only a chain's beginning can set it, found another")
    network = {name: getattr(given.network, name) for name in limits if hasattr(given.network, name)}
    xcmp = {name: getattr(given.xcmp, name) for name in limits if hasattr(given.xcmp, name)}
    state.network, state.configuration = replace(state.network, **network), replace(state.configuration, **xcmp)
    state.balances_mode = settings.balances
