# SPDX-License-Identifier: Apache-2.0
"""The judge's transport: facts and verdicts become disagreements and a status, each once, whenever it is killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from oracle_world import LANE, channel_room, facts, head, receipt, refusal, verdict
from validator_relay_chain.figures import JUDGED, Figures
from validator_relay_chain.oracle import records, transport
from validator_relay_chain.oracle.facts import BlockFacts, ChannelFact

from validator.plugin.api import LeaseLost, Manifest, Record, Transport, hookimpl
from validator.testing.transport import MemoryTransport

REFUSED = refusal("OutboundHrmp/NoSuchChannel", idx=0)


class Plugin:
    @hookimpl
    def validator_manifest(self) -> Manifest:
        return Manifest("relay-chain", "1.0", (2, 0))

    @hookimpl
    def validator_transports(self, config: Any) -> Iterator[Transport]:
        yield Transport(
            "judge", partial(transport.run, (LANE,)), cursors=True, own=records.own_topics(), metrics=JUDGED
        )


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "POLL_S", 0.0)


@pytest.fixture
def memory() -> MemoryTransport:
    return MemoryTransport(Plugin())


def output(topic: str, record: Mapping[str, Any], *, kind: int = 0) -> Record:
    key = str(record["lane"])
    if topic == records.HEADROOM:
        key += f"/{record['sender']}/{record['recipient']}"
    return topic, key.encode(), records.formats_of_lanes()[topic][kind].encode(dict(record))


def executed(number: int, *verdicts: dict[str, Any], lane: str = LANE) -> list[Record]:
    given = [output(records.VERDICTS, each) for each in verdicts]
    return [*given, output(records.RECEIPTS, receipt(number, len(verdicts), lane=lane))]


def told(memory: MemoryTransport, given: BlockFacts) -> Record:
    return (records.FACTS, *memory.forms.encode(records.FACTS, given.to_json()))


def story(memory: MemoryTransport) -> list[list[Record]]:
    """Return what arrives on Kafka, part by part: four blocks, of which 6 and 8 have a disagreement."""
    room = output(records.HEADROOM, channel_room(5, 2000, 2004, 7, 70), kind=1)
    other = executed(5, verdict(5, lane="kusama", error=REFUSED), lane="kusama")
    channel = ChannelFact(2000, 2004, 7, 70, head(1))
    return [
        [told(memory, facts(4)), told(memory, facts(5, backed=1, channels=(channel,)))],
        [*executed(5, verdict(5)), *other, room],
        [told(memory, facts(6, backed=1)), *executed(6, verdict(6, error=REFUSED))],
        [told(memory, facts(7, included=[2000])), *executed(7, verdict(7, "inclusion", messages=[(2004, head(2))]))],
        [told(memory, facts(8, backed=2)), *executed(8, verdict(8))],
        *[[told(memory, facts(number)), *executed(number)] for number in range(9, 14)],
    ]


def follow(memory: MemoryTransport, parts: list[list[Record]], steps: int = 3) -> None:
    """Run the judge while parts arrive; a judge that is killed starts again."""
    waiting = [list(part) for part in parts]
    while waiting:
        try:
            with memory.open() as context:
                figures = Figures()
                context.measure(figures.measures)
                bench = transport.Bench(LANE, context, figures)
                while waiting:
                    for record in waiting[0]:
                        memory.append(*record)
                    waiting[0].clear()
                    for _ in range(steps):
                        bench.step()
                    del waiting[0]
        except LeaseLost:
            continue


def written(memory: MemoryTransport, topic: str) -> list[dict[str, Any]]:
    return [records.decode(topic, value) for name, _, value in memory.submitted if name == topic]


def test_disagreements_and_status_come_out(memory: MemoryTransport) -> None:
    follow(memory, story(memory))
    found = written(memory, records.DISAGREEMENTS)
    assert [(each["block"], each["kind"], each["reason"]) for each in found] == [
        (6, "CandidateRefused", "ours"), (8, "CandidatesMissing", "ours"),
    ]  # fmt: skip
    assert memory.measured()["disagreements_total", LANE, "CandidateRefused", "ours"] == 1
    assert memory.measured()["compared_total", LANE, "channels"] == 0
    last = written(memory, records.AGREEMENT)[-1]
    assert memory.measured()["compared_block", LANE] == last["block"]
    assert (last["blocks"], last["skipped"], last["counters"], last["last_ours"]) == (last["block"] - 4, 1, 1, 8)
    assert last["block"] >= 9
    assert {key for _, key, _ in memory.submitted} == {LANE.encode()}


def test_difference_in_the_last_block_comes_out_and_what_follows_is_compared(memory: MemoryTransport) -> None:
    """Nothing comes after these blocks, and the first of them differs."""
    told_of = [told(memory, facts(number)) for number in (5, 6, 7)]
    follow(memory, [[*told_of, *executed(5, verdict(5)), *executed(6), *executed(7)]], steps=5)
    assert [(each["block"], each["kind"]) for each in written(memory, records.DISAGREEMENTS)] == [
        (5, "CandidatesMissing")
    ]
    last = written(memory, records.AGREEMENT)[-1]
    assert (last["block"], last["blocks"], last["skipped"]) == (7, 3, 0)


def test_what_was_not_decoded_at_the_beginning_hides_nothing(memory: MemoryTransport) -> None:
    unread = ("Configuration.ActiveConfig",)
    given = [told(memory, facts(5, unread=unread)), told(memory, facts(6, backed=1))]
    follow(memory, [[*given, *executed(5), *executed(6, verdict(6, error=REFUSED))]], steps=6)
    found = written(memory, records.DISAGREEMENTS)
    assert [(each["block"], each["kind"], each["reason"]) for each in found] == [
        (5, "NotDecoded", "not-decoded"), (6, "CandidateRefused", "not-decoded"),
    ]  # fmt: skip
    assert written(memory, records.AGREEMENT)[-1]["block"] == 6


def test_every_kill_leaves_the_same_output(memory: MemoryTransport) -> None:
    parts = story(memory)
    follow(memory, parts)
    expected = written(memory, records.DISAGREEMENTS), written(memory, records.AGREEMENT)[-1]
    commits = 0

    def count(*_: Any) -> None:
        nonlocal commits
        commits += 1

    memory.on_commit = count
    again = MemoryTransport(Plugin())
    again.on_commit = count
    follow(again, parts)
    assert commits > 8
    for killed_at in range(commits):
        killed = MemoryTransport(Plugin())
        left = killed_at

        def kill(*_: Any) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise LeaseLost("killed")

        killed.on_commit = kill
        follow(killed, parts)
        assert left < 0
        assert (written(killed, records.DISAGREEMENTS), written(killed, records.AGREEMENT)[-1]) == expected, killed_at


def test_facts_that_are_late_are_waited_for(memory: MemoryTransport) -> None:
    parts = [executed(5, verdict(5)), executed(6), [told(memory, facts(5, backed=1))], [told(memory, facts(6))]]
    follow(memory, parts)
    assert [each["block"] for each in written(memory, records.AGREEMENT)] == [5, 6]
    assert written(memory, records.DISAGREEMENTS) == []


def test_block_without_facts_is_left_out_once_later_facts_are_there(memory: MemoryTransport) -> None:
    follow(memory, [executed(5, verdict(5)), [*executed(6), told(memory, facts(6))]])
    last = written(memory, records.AGREEMENT)[-1]
    assert (last["block"], last["blocks"], last["skipped"]) == (6, 1, 1)


def test_blocks_that_nobody_tells_facts_of_are_left_out_when_too_many_wait(
    memory: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator_relay_chain.oracle.judge.WAITING_BLOCKS_MAX", 2)
    follow(memory, [[each for number in range(5, 9) for each in executed(number)]])
    assert written(memory, records.AGREEMENT)[-1]["skipped"] == 2


def test_record_that_cannot_be_read_is_left_out(memory: MemoryTransport) -> None:
    garbage = (records.VERDICTS, LANE.encode(), b"garbage")
    follow(memory, [[garbage, told(memory, facts(5, backed=1)), *executed(5, verdict(5))]])
    assert written(memory, records.AGREEMENT)[-1]["block"] == 5


def test_cursor_of_a_later_version_is_refused(memory: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    follow(memory, [[told(memory, facts(5)), *executed(5)]])
    monkeypatch.setattr(transport, "CURSOR_VERSION", 0)
    with (
        memory.open() as context,
        pytest.raises(ValueError, match="expected version 0, found 1: a later version wrote it"),
    ):
        transport.Bench(LANE, context, Figures())


def test_run_judges_until_it_is_stopped(memory: MemoryTransport) -> None:
    for record in [told(memory, facts(5)), *executed(5)]:
        memory.append(*record)
    memory.on_commit = lambda *_: memory.stop()
    memory.run(live=True)
    assert written(memory, records.AGREEMENT)[-1]["block"] == 5


def test_status_makes_a_line(memory: MemoryTransport) -> None:
    follow(memory, story(memory))
    own = next(each for each in records.own_topics() if each.topic.name == records.AGREEMENT)
    assert own.line is not None
    value = next(value for topic, _, value in reversed(memory.submitted) if topic == records.AGREEMENT)
    lane, line = own.line(value)
    assert lane == LANE
    assert line.startswith("compared with the chain up to block ")
    assert line.endswith("; disagreements: 2 ours, the last of ours in block 8; not compared: 1")
