# SPDX-License-Identifier: Apache-2.0
"""Early HRMP as a plugin of group ``validator.protocols``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from importlib.resources import (
    files,  # validator: allow dynamic a definition names the location of its schemas, traces and rules
)
from typing import Final

from validator.plugin.protocol_api import ChainSettings, Manifest, ProtocolDefinition, TraceFormat, hookimpl
from validator_early_hrmp import __version__
from validator_early_hrmp.pages import PAGES
from validator_early_hrmp.records import RECORDS
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import MAXIMA, WATERMARK_RULE, EarlyHrmpState, check_invariants, read_configuration
from validator_early_hrmp.traces import STATE_KEYS, read_candidate, read_request, view

NAME: Final = "early-hrmp"

_FOLDER: Final = files("validator_early_hrmp")


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
        rule_set=EARLY_HRMP,
        configuration=read_configuration,
        limits=(*MAXIMA, WATERMARK_RULE),
        maxima=MAXIMA,
        records=RECORDS,
        schemas=_FOLDER.joinpath("schemas"),
        traces=TraceFormat(
            request=read_request,
            candidate=read_candidate,
            view=view,
            state_keys=STATE_KEYS,
            features=("delayed_enactment",),
            para_keys=("dmq", "watermarks", "balances"),
            channel_keys=("channels",),
            suite=_FOLDER.joinpath("conformance"),
        ),
        invariants=check_invariants,
        reconfigure=_reconfigure,
        rules_page=_FOLDER.joinpath("rules.md"),
    )


def _reconfigure(state: EarlyHrmpState, settings: ChainSettings, limits: Collection[str]) -> None:
    given = settings.configuration
    state.configuration = replace(
        state.configuration, **{name: getattr(given, name) for name in limits if name in MAXIMA}
    )
    state.balances_mode = settings.balances
