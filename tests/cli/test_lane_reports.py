# SPDX-License-Identifier: Apache-2.0
"""What lanes say of themselves: `validator lanes` about the audit in the job, and `validator watch lanes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from tests.sending import send
from validator.kafka.topics import create_topics
from validator.lanes.auditing import AuditFault, fault_record
from validator.lanes.parked import Fault, Parked, running
from validator.topics import TOPICS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def chain(tmp_path: Path, kafka: dict[str, object]) -> Follower:
    return follower(tmp_path, kafka, f"reports-{tmp_path.name}.", blocks=4)


def test_lanes_shows_that_the_audit_is_on_and_its_faults_have_an_exit_code(chain: Follower) -> None:
    chain.judge(chain.records)
    plain = chain.config_path.read_text(encoding="utf-8")
    assert "audit" not in invoke("lanes", chain.option()).stdout
    chain.config_path.write_text(f"{plain}\n[audit]\nshare = 0.125\n", encoding="utf-8")
    sound = invoke("lanes", "--audit-since=0", chain.option())
    assert sound.exit_code == 0
    assert sound.stdout.splitlines()[-1] == "          audit of 12.5 % of all blocks: no fault found"
    (row,) = lines(invoke("lanes", "--json", chain.option()).stdout)
    assert (row["audit"], row["audit_share"]) == (None, 0.125)

    fault = fault_record("polkadot", AuditFault(3, "pages", "the state differs"))
    send(chain.config.kafka, chain.config.topics.prefix, [("lanes", fault.key, fault.value)])
    for since, code in ((0, 1), (3, 1), (4, 0)):
        found = invoke("lanes", f"--audit-since={since}", chain.option())
        assert found.exit_code == code
        assert found.stdout.startswith("polkadot  AUDIT FAULT in block 3 (pages): the state differs\n")
    assert invoke("lanes", "--parked", chain.option()).exit_code == 0

    *_, last = invoke("watch", "lanes", chain.option()).stdout.splitlines()
    assert last.split() == ["polkadot", "3", "audit", "fault", "pages:", "the", "state", "differs"]
    status, audit = lines(invoke("watch", "lanes", "--json", chain.option()).stdout)[-2:]
    assert status["executed_block"] == 4
    assert audit == {"lane": "polkadot", "block": 3, "check": "pages", "detail": "the state differs"}


def test_watch_shows_why_a_lane_is_parked(chain: Follower) -> None:
    parked = Parked(Fault.MEMORY, "lane polkadot: no memory", 7)
    records = [parked.record("polkadot"), running("polkadot")]
    values = [("lanes", each.key, each.value) for output in records for each in output.records]
    create_topics(chain.config.kafka, prefix=chain.config.topics.prefix, topics=TOPICS)
    send(chain.config.kafka, chain.config.topics.prefix, values)
    shown = [line.split(maxsplit=3) for line in invoke("watch", "lanes", chain.option()).stdout.splitlines()[1:]]
    assert shown == [["polkadot", "7", "parked", "memory: no memory"], ["polkadot", "running"]]
