# SPDX-License-Identifier: Apache-2.0
"""The simulator's topology, sizes and limits equal those of recorded chains."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from validator_simulators.router.chains import DOWNWARD, HORIZONTAL, LIMITS, UPWARD, by_degree, recorded_channels

from tests.realdata.convert import host_configuration
from tests.realdata.recorded import events, needs_data, topology

pytestmark = needs_data


@pytest.mark.parametrize(("chain", "channels", "paras"), [("polkadot", 242, 45), ("kusama", 66, 26)])
def test_topology_equals_recorded_one(chain: str, channels: int, paras: int) -> None:
    recorded = [(int(row["sender"]), int(row["recipient"])) for row in topology(chain)]
    assert recorded_channels(chain) == sorted(recorded)
    assert (len(recorded), len({para for ends in recorded for para in ends})) == (channels, paras)


def test_hubs_equal_recorded_ones() -> None:
    assert set(by_degree(recorded_channels("polkadot"))[:3]) == {1000, 2004, 2034}


def test_sizes_span_recorded_ones() -> None:
    """A message that was seen at both ends counts once."""
    horizontal = {
        (event["para"], message["recipient"], message["data"])
        for event in events()["candidate"]
        for message in event["horizontal_messages"]
    } | {(event["sender"], event["para"], event["data"]) for event in events()["inbound_hrmp"]}
    upward = [message for event in events()["candidate"] for message in event["upward_messages"]]
    downward = [event["data"] for event in events()["downward"]]
    assert (len(horizontal), len(upward), len(downward)) == (41, 3, 11)
    for quantiles, payloads in (
        (HORIZONTAL, [data for _, _, data in horizontal]),
        (UPWARD, upward),
        (DOWNWARD, downward),
    ):
        sizes = sorted(len(payload) // 2 for payload in payloads)
        assert quantiles[0] <= sizes[0]
        assert sizes[-1] <= quantiles[-1]
        assert list(quantiles) == sorted(quantiles)
        # the median of the draws is close to the median of the recorded sizes
        assert 0.6 < median(quantiles) / median(sizes) < 1.6
    assert (HORIZONTAL[0], HORIZONTAL[-1]) == (40, 1203)


def test_limits_equal_those_of_recorded_channels() -> None:
    limits: dict[str, Any] = LIMITS["polkadot"]
    names = {
        "max_capacity": "hrmp_channel_max_places",
        "max_total_size": "hrmp_channel_max_size",
        "max_message_size": "hrmp_channel_max_message_size",
    }
    for chain in ("polkadot", "kusama"):
        rows = topology(chain)
        same = [row for row in rows if all(int(row[name]) == limits[ours] for name, ours in names.items())]
        assert len(same) / len(rows) > 0.9


def test_preset_equals_polkadots_storage() -> None:
    recorded = host_configuration("polkadot", 8_000_000, "polkadot-2021-09")
    simulated = LIMITS["polkadot"]
    assert {name: simulated[name] for name in recorded if name != "preset"} == {
        name: value for name, value in recorded.items() if name != "preset"
    }
    assert len(recorded) > 12
