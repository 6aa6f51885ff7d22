# SPDX-License-Identifier: Apache-2.0
"""A model of a network in which paras exchange message bodies off the relay chain, and of what each policy of recipients costs.

`simulate` plays a network of `NetworkSettings` and returns a `Report`. It is seeded and has no clock, so the same settings give the same
report.
"""

from validator_simulators.network.reference import CASES, COLUMNS, Case, differing, figures
from validator_simulators.network.report import Group, Report, simulate, to_json
from validator_simulators.network.settings import POLICIES, SIZES, TRAFFIC, NetworkSettings

__all__ = [
    "CASES",
    "COLUMNS",
    "POLICIES",
    "SIZES",
    "TRAFFIC",
    "Case",
    "Group",
    "NetworkSettings",
    "Report",
    "differing",
    "figures",
    "simulate",
    "to_json",
]
