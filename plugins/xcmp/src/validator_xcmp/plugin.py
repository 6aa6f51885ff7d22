# SPDX-License-Identifier: Apache-2.0
"""The plugin: protocol ``xcmp`` of group ``validator.protocols``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import (
    files,  # validator: allow dynamic a definition names the location of its schemas, traces and rules
)
from typing import Any

from validator.plugin.protocol_api import (
    ChainSettings,
    Manifest,
    ProofFormat,
    ProtocolDefinition,
    TraceFormat,
    hookimpl,
)
from validator_xcmp import __version__
from validator_xcmp.configuration import LIMITS, MAXIMA, read_configuration
from validator_xcmp.encoding import PAGES
from validator_xcmp.invariants import check_invariants
from validator_xcmp.proof_documents import KINDS, prove_document, verify_document
from validator_xcmp.rules import Xcmp
from validator_xcmp.shapes import RECORDS
from validator_xcmp.traces import PARA_KEYS, STATE_KEYS, read_candidate, read_request, view
from validator_xcmp.vectors import VECTOR_FORMAT, vector_result

_PACKAGE = files("validator_xcmp")


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="xcmp", version=__version__, api_version=(1, 0))


@hookimpl
def validator_protocols() -> Iterable[ProtocolDefinition]:
    """Yield the protocol."""
    yield ProtocolDefinition(
        name="xcmp",
        encoding_version=PAGES.version,
        genesis=Xcmp.at_genesis,
        restore=Xcmp.from_pages,
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
            pending_ends_with_session=True,
            para_keys=PARA_KEYS,
            suite=_PACKAGE.joinpath("conformance"),
            vector_format=VECTOR_FORMAT,
            vectors=vector_result,
        ),
        proofs=ProofFormat(KINDS, prove_document, verify_document),
        invariants=_check_invariants,
        reconfigure=_reconfigure,
        rules_page=_PACKAGE.joinpath("rules.md"),
    )


def _view(rules: Any) -> dict[str, Any]:
    assert isinstance(rules, Xcmp)
    return view(rules.state)


def _check_invariants(rules: Any) -> None:
    check_invariants(rules.state)


def _reconfigure(rules: Any, settings: ChainSettings, limits: Collection[str]) -> None:
    state, given = rules.state, settings.configuration
    state.configuration = replace(
        state.configuration, **{name: getattr(given, name) for name in limits if name in MAXIMA}
    )
    state.balances_mode = settings.balances
