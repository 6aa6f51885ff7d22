# SPDX-License-Identifier: Apache-2.0
"""Downward queues move into pages in the middle of a run: node, follower, lane and judge together. Source: chain_2026 section 3."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from oracle_world import kinds
from paged_world import LAST, MIGRATED, UPGRADE, paged_chain
from relay_world import FIRST
from test_judge_recorded import followed, judged
from validator_relay_chain.oracle import records
from validator_relay_chain.oracle.facts import BlockFacts

PARA = 2004


@pytest.mark.parametrize("joined", [FIRST + 1, UPGRADE - 1, UPGRADE, UPGRADE + 3, MIGRATED])
def test_chain_agrees_across_the_upgrade(tmp_path: Path, joined: int) -> None:
    config, given = followed(paged_chain().recording, tmp_path, joined=joined)
    assert [body["block"] for topic, body in given if topic == "blocks"] == list(range(joined, LAST + 1))
    assert kinds(judged(config, given)) == []
    waiting = {body["block"]: _waiting(body) for topic, body in given if topic == records.FACTS}
    assert max(waiting.values()) > 3, "otherwise the judge has compared nothing but empty queues"


@pytest.mark.parametrize("number", [UPGRADE - 1, UPGRADE + 1, UPGRADE + 4, MIGRATED, LAST])
def test_judge_finds_a_wrong_length_before_during_and_after(tmp_path: Path, number: int) -> None:
    def one_less(facts: BlockFacts) -> BlockFacts:
        if facts.block != number:
            return facts
        return replace(
            facts,
            downward=tuple(
                each._replace(messages=each.messages - 1) if each.para_id == PARA and each.messages else each
                for each in facts.downward
            ),
        )

    config, given = followed(paged_chain().recording, tmp_path, joined=FIRST + 1)
    changed: Callable[[BlockFacts], BlockFacts] = one_less
    assert kinds(judged(config, given, changed)) == [("DownwardCount", "ours")]


def _waiting(facts: dict[str, object]) -> int:
    listed = facts["downward"]
    assert isinstance(listed, list)
    return max((each["messages"] or 0 for each in listed if each["para_id"] == PARA), default=0)
