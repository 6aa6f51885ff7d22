# SPDX-License-Identifier: Apache-2.0
"""A dry run lists every violation; its first is the one that the lane raises, in each candidate of every shipped suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from validator.core.errors import Violation
from validator.core.rules import LaneRules
from validator.core.types import Para
from validator.document import Node, parse_document
from validator.plugin.protocol_api import ChainSettings
from validator.plugin.runtime import installed_protocol
from validator.protocols.router.configuration import LIMITS_TABLE, read_configuration
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.rules import ROUTER
from validator.replay.run import run_scenario
from validator.replay.scenario import read_scenarios, suite_files, suite_names

INSTALLED = cache(installed_protocol)


def raised(check: Callable[[], object]) -> Violation | None:
    try:
        check()
    except Violation as violation:
        return violation
    return None


def meaning(violation: Violation) -> tuple[str, dict[str, Any]]:
    return violation.kind, violation.details()


@pytest.mark.parametrize("protocol", suite_names())
def test_first_of_all_violations_is_the_one_that_the_lane_raises(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[int] = Counter()
    listed: Counter[int] = Counter()
    scenarios = [
        each
        for file in suite_files(protocol)
        if "vectors" not in file.name
        for each in read_scenarios(parse_document(file.read_bytes(), file.name), installed=INSTALLED)
    ]
    check, apply = LaneRules.check_candidate, LaneRules.apply_request

    def compared(self: Any, candidate: Any) -> None:
        found = self.violations(candidate)
        counts[len(found)] += 1
        first = raised(lambda: check(self, candidate))
        assert [meaning(each) for each in found[:1]] == ([] if first is None else [meaning(first)])
        if first is not None:
            raise first

    def compared_request(self: Any, request: Any) -> Any:
        found = self.request_violations(request)
        try:
            effects = apply(self, request)
        except Violation as violation:
            first = violation
        else:
            assert not found
            return effects
        if found is not None:
            listed[len(found)] += 1
            assert meaning(found[0]) == meaning(first)
        raise first

    monkeypatch.setattr(LaneRules, "check_candidate", compared)
    monkeypatch.setattr(LaneRules, "apply_request", compared_request)
    for scenario in scenarios:
        run_scenario(scenario)
    if protocol == "router":
        assert listed[1] > 5
        assert sum(number for count, number in listed.items() if count > 1) > 0
    assert counts[0] > 10
    assert counts[1] > 5
    assert sum(count for number, count in counts.items() if number > 1) > 0, "no candidate that breaks two rules"


def test_violations_of_all_groups_are_listed_in_their_order() -> None:
    limits = {
        **LIMITS_TABLE.presets["polkadot-2023"],
        "max_upward_message_num_per_candidate": 1,
        "max_upward_message_size": 2,
    }
    router = ROUTER.at_genesis(ChainSettings(read_configuration(Node(limits, "limits")), (Para(2000), Para(2004))))
    router.begin_block(1)
    messages = (HorizontalMessage(2004, b"x"), HorizontalMessage(2000, b"y"))
    candidate = Candidate(2000, 0, 5, (b"long", b"too"), 3, messages)
    assert [meaning(each) for each in router.violations(candidate)] == [
        ("ProcessedDownwardMessages/Underflow", {"processed_downward_messages": 3, "dmq_length": 0}),
        ("UpwardMessages/MoreMessagesThanPermitted", {"sent": 2, "permitted": 1}),
        ("UpwardMessages/MessageSize", {"idx": 0, "msg_size": 4, "max_size": 2}),
        ("UpwardMessages/MessageSize", {"idx": 1, "msg_size": 3, "max_size": 2}),
        ("HrmpWatermark/AheadRelayParent", {"new_watermark": 5, "relay_chain_parent_number": 0}),
        ("OutboundHrmp/NoSuchChannel", {"idx": 0, "channel_id": {"sender": 2000, "recipient": 2004}}),
        ("OutboundHrmp/NotSorted", {"idx": 1}),
        ("OutboundHrmp/NoSuchChannel", {"idx": 1, "channel_id": {"sender": 2000, "recipient": 2000}}),
    ]


@pytest.mark.parametrize("name", ["kind", "clause", "rule"])
def test_field_with_the_name_of_a_key_of_every_error_is_refused(name: str) -> None:
    body = {"__doc__": "Wrong.", "__annotations__": {name: int}}
    with pytest.raises(
        TypeError, match=f"violation Wrong: field {name}: expected another name than kind, clause, rule"
    ):
        type("Wrong", (Violation,), body)
