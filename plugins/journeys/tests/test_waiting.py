# SPDX-License-Identifier: Apache-2.0
"""Every message of simulated chains ends once or waits, with the payload that its input had, and what waits equals the chain's own state."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from played import SETTINGS, Played, played
from validator_journeys import records
from validator_journeys.content import content_of
from validator_journeys.facts import Place, Source, encode_fact
from validator_journeys.identity import Identity, Kind
from validator_journeys.waiting import Fate, Queued, Step, Waiting


def run(of: Played) -> tuple[Waiting, list[Step]]:
    waiting = Waiting(of.chain.lane, records.channels_of(of.protocol))
    steps = []
    for block in of.blocks:
        for topic, value in block:
            if topic == records.RECEIPTS:
                steps += waiting.apply(records.decode(topic, value)["block"])
            elif found := records.fact_of(topic, (of.protocol,), value):
                waiting.add(found[1], encode_fact(found[2]))
    return waiting, steps


@pytest.mark.parametrize("name", SETTINGS)
def test_every_message_ends_once_or_waits(name: str) -> None:
    of = played(name)
    waiting, steps = run(of)
    queued: dict[Identity, Queued] = {}
    ended: dict[Identity, Step] = {}
    for step in steps:
        if step.end is None:
            assert step.identity not in queued
            assert step.queued is not None
            queued[step.identity] = step.queued
        else:
            assert step.identity not in ended
            assert step.queued == queued.get(step.identity)
            assert step.queued is None or step.queued.block <= step.end.block
            ended[step.identity] = step
    assert dict(waiting.each()) == {each: found for each, found in queued.items() if each not in ended}
    assert not waiting.ahead
    _equals_state(of, waiting)
    unseen = [step for step in ended.values() if step.queued is None]
    assert len(unseen) <= len(queued) // 10, Counter(step.identity.kind for step in unseen)
    kinds = Counter(each.kind for each in queued)
    print(name, kinds, Counter((step.identity.kind, step.end.fate, step.end.detail) for step in ended.values() if step.end), len(unseen))
    assert kinds[Kind.DOWNWARD]


def _equals_state(of: Played, waiting: Waiting) -> None:
    """What waits has the number and the bytes of messages that the chain's state has, but for messages that nobody saw queued."""
    counts: Counter[tuple[int | None, int | None]] = Counter()
    sizes: Counter[tuple[int | None, int | None]] = Counter()
    unknown = set()
    for name, queue in waiting.queues.items():
        for packed in queue.waiting.values():
            from validator_journeys.waiting import unpack

            content = unpack(packed).content
            counts[name] += 1
            if content is None:
                unknown.add(name)
            else:
                sizes[name] += content.size
    for para in of.levels.paras:
        for name, messages, size in (
            ((para.para_id, None), para.upward_messages, para.upward_bytes),
            ((None, para.para_id), para.downward_messages, para.downward_bytes),
        ):
            assert counts[name] == messages, name
            if name not in unknown:
                assert sizes[name] == size
    if of.protocol == "router":
        for channel in of.levels.channels:
            name = channel.sender, channel.recipient
            assert (counts[name], sizes[name]) == (channel.messages, channel.bytes)
