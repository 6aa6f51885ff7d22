# SPDX-License-Identifier: Apache-2.0
"""The plugin: protocol ``xcmp-network`` of group ``validator.protocols``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import (
    files,  # validator: allow dynamic a definition names the location of its schemas, traces and rules
)
from typing import Any, Final

from validator_xcmp import proof_documents as xcmp
from validator_xcmp.merkle import msg_root

from validator.plugin.protocol_api import (
    ChainSettings,
    Manifest,
    Node,
    ProofFormat,
    ProtocolDefinition,
    TraceFormat,
    hookimpl,
)
from validator_xcmp_network import __version__
from validator_xcmp_network.pages import PAGES
from validator_xcmp_network.records import RECORDS
from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import (
    LIMITS,
    MAXIMA,
    OPEN_CHANNELS,
    ChannelMode,
    NetworkState,
    Setup,
    check_invariants,
    read_configuration,
)
from validator_xcmp_network.state_view import STATE_VIEW
from validator_xcmp_network.traces import PARA_KEYS, STATE_KEYS, read_body, read_candidate, read_request, view

# --- proof documents ------------------------------------------------------------------------------------------------------------------
# The documents of `validator prove` and `validator verify`: those of XCMP channels, with the message root as H(batch).
#
# One commitment then serves both the chain of a channel and the check of a body. Source: xcmp_rules 1.1 "Composed".


KINDS: Final = xcmp.KINDS
"""The kinds of proof."""


def prove_document(kind: str, document: Node) -> dict[str, Any]:
    """Return a proof and the trusted values that verify it; ``kind`` is one of `KINDS`. Raises `validator.errors.UserError`."""
    return xcmp.prove_document(kind, document, msg_root)


def verify_document(kind: str, document: Node) -> dict[str, Any]:
    """Return whether a proof holds and what it proves. Raises `validator.errors.UserError` only for malformed trusted values."""
    return xcmp.verify_document(kind, document, msg_root)


# --- plugin ---------------------------------------------------------------------------------------------------------------------------


NAME: Final = "xcmp-network"

_PACKAGE: Final = files("validator_xcmp_network")


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name=NAME, version=__version__, api_version=(2, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the protocol."""
    yield ProtocolDefinition(
        name=NAME,
        encoding_version=PAGES.version,
        rule_set=XCMP_NETWORK,
        configuration=read_configuration,
        limits=LIMITS,
        maxima=MAXIMA,
        records=RECORDS,
        schemas=_PACKAGE.joinpath("schemas"),
        traces=TraceFormat(
            request=read_request,
            candidate=read_candidate,
            view=view,
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
        invariants=check_invariants,
        reconfigure=_reconfigure,
        rules_page=_PACKAGE.joinpath("rules.md"),
    )


def _has_opening_channels(setup: Setup) -> bool:
    return setup.network.channels is ChannelMode.XCMP


def _reconfigure(state: NetworkState, settings: ChainSettings, limits: Collection[str]) -> None:
    given = settings.configuration
    for name in ("channels", OPEN_CHANNELS):
        if name in limits:
            raise ValueError(f"{name}: expected the same, since only a chain's beginning can set it, found another")
    network = {name: getattr(given.network, name) for name in limits if hasattr(given.network, name)}
    xcmp = {name: getattr(given.xcmp, name) for name in limits if hasattr(given.xcmp, name)}
    state.network, state.configuration = replace(state.network, **network), replace(state.configuration, **xcmp)
    state.balances_mode = settings.balances
