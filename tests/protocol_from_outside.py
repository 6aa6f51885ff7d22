# SPDX-License-Identifier: Apache-2.0
"""A protocol outside the product, with every optional part: the rules of early-hrmp in a test's distribution."""

from __future__ import annotations

from tests.distributions import distribution_files

NAME = "outside"

_MODULE = '''\
from dataclasses import replace

from validator.plugin.protocol_api import LimitsTable, Manifest, StateFile, StateSection, StateView, hookimpl, read_para
from validator_early_hrmp import plugin as early_hrmp
from validator_early_hrmp.state import MAXIMA

LIMITS = LimitsTable(
    key="caps",
    maxima=MAXIMA,
    presets={"small": {"hrmp_channel_max_places": 2}, "large": {"hrmp_channel_max_places": 500}},
)


def read(node, settings):
    """A state holds paras and their balances."""
    paras = tuple(read_para(para) for para in node["paras"].items())
    (definition,) = early_hrmp.validator_protocols()
    return definition.rule_set.genesis(replace(settings, paras=paras))


def write(state):
    accounts = state.accounts
    return {"paras": [{"para_id": para, "balance": accounts[para].free} for para in sorted(state.paras)]}


def para_document(state, para):
    return {"para_id": para, "state": {"registered": True}} if para in state.paras else None


def para_sections(state, para):
    free = state.accounts[para].free if para in state.paras else None
    return None if free is None else [StateSection(facts=[("free", f"{free:,} [units]")])]


@hookimpl
def validator_manifest():
    return Manifest(name="outside", version="1.0.0", api_version=(2, 0))


@hookimpl
def validator_protocols():
    for protocol in early_hrmp.validator_protocols():
        yield replace(
            protocol,
            name="outside",
            limits=tuple(MAXIMA),
            limits_table=LIMITS,
            state_file=StateFile(read, write, lambda state: {"paras": len(state.paras)}),
            state_view=StateView(
                paras=lambda state: sorted(state.paras),
                channels=lambda state: sorted(state.channels),
                whole_document=lambda state: {"places": state.configuration.hrmp_channel_max_places},
                para_document=para_document,
                channel_document=lambda state, channel: None,
                whole_sections=lambda state: [
                    StateSection("paras of outside", columns=("para",), rows=[(str(para),) for para in state.paras])
                ],
                para_sections=para_sections,
                channel_sections=lambda state, channel: None,
            ),
        )
'''

FILES = distribution_files(
    "protocol-from-outside",
    "1.0.0",
    {"protocol_from_outside": _MODULE},
    f"[validator.protocols]\n{NAME} = protocol_from_outside\n",
)
