# SPDX-License-Identifier: Apache-2.0
"""The plugin: protocol ``xcmp`` of group ``validator.protocols``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import (
    files,  # validator: allow dynamic a definition names the location of its schemas, traces and rules
)

from validator.plugin.protocol_api import (
    ChainSettings,
    Manifest,
    ProofFormat,
    ProtocolDefinition,
    TraceFormat,
    hookimpl,
)
from validator_xcmp import __version__
from validator_xcmp.encoding import PAGES
from validator_xcmp.proof_documents import KINDS, VECTOR_FORMAT, prove_document, vector_result, verify_document
from validator_xcmp.records import RECORDS
from validator_xcmp.rules import XCMP
from validator_xcmp.state import LIMITS, MAXIMA, XcmpState, check_invariants, read_configuration
from validator_xcmp.traces import PARA_KEYS, STATE_KEYS, read_candidate, read_request, view

_PACKAGE = files("validator_xcmp")


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="xcmp", version=__version__, api_version=(2, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the protocol."""
    yield ProtocolDefinition(
        name="xcmp",
        encoding_version=PAGES.version,
        rule_set=XCMP,
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
            pending_ends_with_session=True,
            para_keys=PARA_KEYS,
            suite=_PACKAGE.joinpath("conformance"),
            vector_format=VECTOR_FORMAT,
            vectors=vector_result,
        ),
        proofs=ProofFormat(KINDS, prove_document, verify_document),
        invariants=check_invariants,
        reconfigure=_reconfigure,
        rules_page=_PACKAGE.joinpath("rules.md"),
    )


def _reconfigure(state: XcmpState, settings: ChainSettings, limits: Collection[str]) -> None:
    given = settings.configuration
    state.configuration = replace(
        state.configuration, **{name: getattr(given, name) for name in limits if name in MAXIMA}
    )
    state.balances_mode = settings.balances
