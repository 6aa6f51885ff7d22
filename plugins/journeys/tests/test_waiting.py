# SPDX-License-Identifier: Apache-2.0
"""Every message of simulated chains ends once or waits, with its own payload, and what waits equals the chain's own state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from played import SETTINGS, Played, played
from validator_journeys import records
from validator_journeys.facts import encode_fact
from validator_journeys.identity import Identity, Kind
from validator_journeys.waiting import Fate, Queued, Step, Waiting, unpack

from validator.plugin.protocol_api import blake2b_256, message_hash, mqc_link


def run(of: Played, since: int = 0) -> tuple[Waiting, list[Step]]:
    waiting = Waiting(of.chain.lane, records.channels_of(of.protocol))
    steps = []
    for block in of.blocks[since:]:
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
    for step in unseen:  # a session change queues it, or it is taken for a separator of signals
        assert step.identity.kind is Kind.DOWNWARD or (step.content is not None and step.content.size == 0)
    assert Counter(each.kind for each in queued)[Kind.DOWNWARD]
    if of.protocol == "router":
        assert {step.end.fate for step in ended.values() if step.end} == set(Fate)


@pytest.mark.parametrize("name", ["router", "router-history", "early-hrmp"])
def test_payloads_are_those_of_the_queues_hash_chains(name: str) -> None:
    """Each MQC head follows from the one before, the block of queueing and the payload's hash, if the payload is known."""
    _, steps = run(played(name))
    links = links_of(played(name))
    heads: dict[tuple[int | None, int | None, int], tuple[int, bytes]] = {}
    checked = 0
    for step in steps:
        queued = step.queued
        if step.end is not None or queued is None or queued.mqc_head is None:
            continue
        shared = name == "early-hrmp"
        queue = None if shared else step.identity.sender, step.identity.recipient, step.identity.opened_at
        number, before = heads.get(queue, (0, bytes(32)))
        if queued.content is not None and number + 1 == step.identity.number:
            checked += 1
            assert mqc_link(before, queued.block, links[queued.content.hash]) == queued.mqc_head
        heads[queue] = step.identity.number, queued.mqc_head
    assert checked > 100


@pytest.mark.parametrize("since", [1, 7, 20])
@pytest.mark.parametrize("name", ["router-loose", "router-on-inclusion", "xcmp"])
def test_job_that_begins_late_sees_the_same_ends(name: str, since: int) -> None:
    """Messages that it did not see queued end without content; all others end as they do for a job that saw everything."""
    of = played(name)
    waiting, late = run(of, since)
    everything, steps = run(of)
    first = of.chain.blocks[since].block
    assert ends(late) == ends(step for step in steps if step.end and step.end.block >= first)
    seen = {queued for _, queued in waiting.each()}
    assert seen <= {queued for _, queued in everything.each()}
    content = {place(step): step.queued.content for step in steps if step.queued}
    for step in late:
        if step.queued is not None and step.queued.content is not None and step.identity.kind is not Kind.UPWARD:
            assert content[place(step)] == step.queued.content


def place(step: Step) -> tuple[object, ...]:
    assert step.queued is not None
    return step.identity.sender, step.identity.recipient, step.identity.number, step.queued.block


def ends(steps: Iterable[Step]) -> Counter[tuple[object, ...]]:
    """Count how messages ended; the numbers of upward messages begin with the job."""
    return Counter(
        (
            *step.identity[1:4],
            None if step.identity.kind is Kind.UPWARD else step.identity.number,
            step.end,
        )
        for step in steps
        if step.end is not None
    )


def links_of(of: Played) -> dict[bytes, bytes]:
    """The hashes in the queues' chains, which have a payload's length in them, by the payloads' own hashes."""
    payloads = []
    for block in of.blocks:
        for topic, value in block:
            if topic == records.DOWNWARD:
                payloads.append(records.decode(topic, value)["msg"])
            elif topic == records.CANDIDATES:
                candidate = records.decode_candidate((of.protocol,), value) or {}
                payloads += [each["data"] for each in candidate.get("horizontal_messages", ())]
                payloads += [each["payload"] for each in candidate.get("hrmp_messages", ())]
    return {blake2b_256(payload): message_hash(payload) for payload in payloads}


def _equals_state(of: Played, waiting: Waiting) -> None:
    """What waits has the number and the bytes of messages that the chain's state has, but for messages that nobody saw queued."""
    counts: Counter[tuple[int | None, int | None]] = Counter()
    sizes: Counter[tuple[int | None, int | None]] = Counter()
    unknown = set()
    for name, queue in waiting.queues.items():
        for packed in queue.waiting.values():
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
