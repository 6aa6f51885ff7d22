# SPDX-License-Identifier: Apache-2.0
"""Every recorded block under the rules of 2020: what is accepted, what is rejected, and why (docs/real-data.md)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.realdata.convert import convert, definition, host_configuration, not_recorded, seed
from tests.realdata.recorded import blocks, needs_data, runs
from tests.realdata.runs import follow
from validator.protocols.router.configuration import PRESETS

pytestmark = needs_data

ASYNC_BACKING = 21_000_000
"""From about this Polkadot block, a candidate's relay parent may be older than the parent block."""

UNRECORDED_DOWNWARD = {
    "polkadot": {15_950_023: 2004, 17_677_887: 2030, 17_844_552: 2000, 19_777_220: 2034},
}
"""Messages that were not recorded but processed by candidates of the following block: para by block."""


def rejections(chain: str, tmp_path: Path, *, parent_is_relay_parent: bool = False) -> tuple[int, Counter[str]]:
    """Return the number of a chain's candidates, and the number of rejected ones by error kind."""
    count = 0
    found: Counter[str] = Counter()
    for run in runs(chain):
        records = convert(chain, run, UNRECORDED_DOWNWARD.get(chain)).records
        for topic, record in records:
            if topic == "candidates":
                count += 1
                if parent_is_relay_parent:
                    record["relay_parent_number"] = None
        lane = definition(chain, seed(chain, run.start), tmp_path)
        found.update(kind for what, _, _, kind in follow(lane, records).rejected() if what == "candidate")
    return count, found


def test_candidate_with_its_relay_parent_is_accepted(tmp_path: Path) -> None:
    assert rejections("polkadot", tmp_path) == (1303, Counter())
    assert rejections("kusama", tmp_path) == (39, Counter())
    assert rejections("rococo", tmp_path) == (25, Counter())


def test_candidate_of_async_backing_without_relay_parent_is_rejected(tmp_path: Path) -> None:
    """A record without a relay parent means the parent block, as in 2020; the watermark then names a block without messages."""
    assert rejections("polkadot", tmp_path, parent_is_relay_parent=True) == (
        1303,
        Counter({"HrmpWatermark/LandsOnBlockWithNoMessages": 173}),
    )
    after = [
        candidate
        for number, block in blocks("polkadot").items()
        for candidate in block["candidates"]
        if number >= ASYNC_BACKING
    ]
    older = [candidate for candidate in after if candidate["hrmp_watermark"] < candidate["relay_block"] - 1]
    assert (len(after), len(older)) == (445, 173)


def test_recorded_configurations_equal_presets() -> None:
    """The recorded storage, if it is decoded completely, equals the presets."""
    for chain, block, preset in (
        ("polkadot", 8_000_000, "polkadot-2021-09"),
        ("polkadot", 19_000_000, "polkadot-2023"),
    ):
        recorded = host_configuration(chain, block, preset)
        assert len(recorded) >= 12
        expected = PRESETS[preset]
        for name, value in recorded.items():
            if name != "preset":
                assert value == getattr(expected, name), name


def test_values_missing_from_recorded_configurations_are_known() -> None:
    assert not_recorded(host_configuration("polkadot", 19_000_000, "polkadot-2023")) == [
        "preferred_dispatchable_upward_messages_step_weight",
        "hrmp_max_parathread_outbound_channels",
        "hrmp_max_parathread_inbound_channels",
        "hrmp_open_request_ttl",
    ]
