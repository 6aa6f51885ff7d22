# SPDX-License-Identifier: Apache-2.0
"""A protocol outside the product, with every optional part: the rules of early-hrmp in a test's distribution."""

from __future__ import annotations

NAME = "outside"

_MODULE = '''\
from dataclasses import replace

from validator.plugin.protocol_api import LimitsTable, Manifest, StateFile, StateSection, StateView, hookimpl, read_para
from validator_early_hrmp import plugin as early_hrmp
from validator_early_hrmp.configuration import MAXIMA

LIMITS = LimitsTable(
    key="caps",
    maxima=MAXIMA,
    presets={"small": {"hrmp_channel_max_places": 2}, "large": {"hrmp_channel_max_places": 500}},
)


def read(node, settings):
    """A state holds paras and their balances."""
    paras = tuple(read_para(para) for para in node["paras"].items())
    (definition,) = early_hrmp.validator_protocols()
    return definition.genesis(replace(settings, paras=paras))


def write(rules):
    accounts = rules.state.accounts
    return {"paras": [{"para_id": para, "balance": accounts[para].free} for para in sorted(rules.state.paras)]}


def para_document(rules, para):
    return {"para_id": para, "state": {"registered": True}} if para in rules.state.paras else None


def para_sections(rules, para):
    free = rules.state.accounts[para].free if para in rules.state.paras else None
    return None if free is None else [StateSection(facts=[("free", f"{free:,} [units]")])]


@hookimpl
def validator_manifest():
    return Manifest(name="outside", version="1.0.0", api_version=(1, 0))


@hookimpl
def validator_protocols():
    for protocol in early_hrmp.validator_protocols():
        yield replace(
            protocol,
            name="outside",
            limits=tuple(MAXIMA),
            limits_table=LIMITS,
            state_file=StateFile(read, write, lambda rules: {"paras": len(rules.state.paras)}),
            state_view=StateView(
                paras=lambda rules: sorted(rules.state.paras),
                channels=lambda rules: sorted(rules.state.channels),
                whole_document=lambda rules: {"places": rules.state.configuration.hrmp_channel_max_places},
                para_document=para_document,
                channel_document=lambda rules, channel: None,
                whole_sections=lambda rules: [
                    StateSection("paras of outside", columns=("para",), rows=[(str(para),) for para in rules.state.paras])
                ],
                para_sections=para_sections,
                channel_sections=lambda rules, channel: None,
            ),
        )
'''

FILES = {
    "protocol_from_outside.py": _MODULE,
    "protocol_from_outside-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: protocol-from-outside\nVersion: 1.0.0\n",
    "protocol_from_outside-1.0.0.dist-info/entry_points.txt": f"[validator.protocols]\n{NAME} = protocol_from_outside\n",
    "protocol_from_outside-1.0.0.dist-info/RECORD": "",
}
"""The distribution's files, for `tests.throwaway.install`."""
