# SPDX-License-Identifier: Apache-2.0
"""How `pytest -n` distributes tests: one worker runs a whole file, and all files that share an expensive fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_FIRST: Final[Sequence[tuple[str, ...]]] = (
    # these share one Spark session; a second worker would have to start another
    (
        "tests/streaming/test_faults.py",
        "tests/streaming/test_arrival.py",
        "tests/streaming/test_restart.py",
        "tests/streaming/test_state_reader.py",
        "tests/streaming/test_outcomes.py",
        "tests/streaming/test_protocols.py",
        "tests/streaming/test_history.py",
        "tests/streaming/test_real_data.py",
        "tests/streaming/test_options.py",
        "tests/streaming/test_stages.py",
        "tests/streaming/test_keyed_job.py",
    ),
    ("tests/streaming/test_process.py",),
    ("tests/docs/test_first_channel.py",),
    ("tests/bodies/test_network.py",),
    ("tests/crash/test_short.py",),
    ("tests/streaming/test_changes.py",),
    ("tests/channel/test_end_to_end.py",),
    ("tests/golden/test_job.py",),
    ("tests/channel/test_gateway_kafka.py",),
    ("tests/streaming/test_artefacts.py",),
    ("tests/unit/testing/test_check.py",),
    ("tests/docs/test_pages.py",),
    ("tests/contract/test_brokers.py",),
    ("tests/contract/test_embedded_broker.py",),
    ("tests/cli/test_transport_outage.py",),
    ("tests/cli/test_demo.py",),
    ("tests/unit/plugin/test_scaffold.py",),
    ("tests/unit/testing/test_check_defects.py",),
    ("tests/bodies/test_crashes.py",),
    ("tests/crash/test_follow.py",),
    ("tests/simulation/test_simulation.py",),
    # these run the same lanes, once
    ("tests/golden/test_process.py", "tests/golden/test_comparison.py"),
    ("tests/contract/test_kafka_contract.py",),
    ("tests/cli/test_transport_standby.py",),
    ("tests/cli/test_transport.py",),
    ("tests/property/test_router_machine.py",),
    ("tests/property/test_lane.py",),
    ("tests/property/test_handler_rollback.py",),
)
"""Groups of files in the order in which workers take them: a file of minutes starts before files of seconds."""

_PLACES: Final = {file: (at, group[0]) for at, group in enumerate(LONGEST_FIRST) for file in group}


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class Scheduling(LoadFileScheduling):
    """Assigns the groups of `LONGEST_FIRST` first, then every other file."""

    def _split_scope(self, nodeid: str) -> str:
        file = _file(nodeid)
        if file == "tests/docs/test_pages.py":
            return nodeid  # each page is apart
        return _PLACES[file][1] if file in _PLACES else file


def sort(items: list[pytest.Item]) -> None:
    """Sort tests into the order of their assignment."""
    items.sort(key=lambda item: _PLACES.get(_file(item.nodeid), (len(_PLACES), ""))[0])
