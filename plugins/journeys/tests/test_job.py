# SPDX-License-Identifier: Apache-2.0
"""The job gives the same records for any split into batches, any restore in between, and any repetition of its inputs."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import played
from validator_journeys import records, waiting
from validator_journeys.identity import parse
from validator_journeys.job import JourneysJob, LaneJourneys, open_job

from tests.hypothesis_profile import examples
from validator.kafka.topics import topic_config
from validator.plugin.job_api import JobContext, JobItem, JobRecord, OutputRecord, UserError

NAMES = ("router", "router-on-inclusion", "early-hrmp")


def job_of(name: str, **options: Any) -> JourneysJob:
    of = played(name)
    job = open_job(JobContext("journeys", options, {of.chain.lane: {"protocol": of.protocol}}))
    assert isinstance(job, JourneysJob)
    return job


@cache
def items_of(name: str) -> list[list[JobItem]]:
    """The items of each block; each topic counts its own offsets."""
    job, offsets = job_of(name), dict.fromkeys((*JourneysJob.causes, *JourneysJob.effects), 0)
    found = []
    for block in played(name).blocks:
        items = []
        for topic, value in block:
            record = JobRecord(topic, 0, offsets[topic], None, value)
            offsets[topic] += 1
            items += [
                JobItem(topic, 0, record.offset, content) for key, content in job.condense(record) if key in job.keys
            ]
        found.append(items)
    return found


def fresh(name: str, pages: dict[bytes, bytes]) -> LaneJourneys:
    job = job_of(name)
    state = job.restore(job.keys[0], pages)
    assert isinstance(state, LaneJourneys)
    return state


def store(state: LaneJourneys, pages: dict[bytes, bytes]) -> None:
    for name, page in state.changes():
        if page is None:
            del pages[name]
        else:
            pages[name] = page


def in_order(job: JourneysJob, items: list[JobItem]) -> list[JobItem]:
    topics = (*job.causes, *job.effects)
    return sorted(items, key=lambda item: (topics.index(item.topic), item.partition, item.offset))


@cache
def whole(name: str) -> tuple[list[OutputRecord], dict[bytes, bytes]]:
    """What one batch of everything gives."""
    state, pages = fresh(name, {}), {}
    output = state.process(in_order(job_of(name), [item for block in items_of(name) for item in block]))
    store(state, pages)
    return output, pages


@pytest.mark.parametrize("name", NAMES)
@examples(8)
@given(seed=st.integers(0, 2**32), causes_ahead=st.integers(0, 6), again=st.integers(0, 10))
def test_any_split_and_any_restore_give_the_same_output(name: str, seed: int, causes_ahead: int, again: int) -> None:
    random, job, blocks = Random(seed), job_of(name), items_of(name)
    state, pages, output = fresh(name, {}), {}, []
    receipts = causes = 0
    while receipts < len(blocks):
        begin, ends = receipts, min(len(blocks), receipts + random.randrange(1, 12))
        further = min(len(blocks), max(causes, ends + random.randrange(causes_ahead + 1)))
        items = [item for block in blocks[begin:ends] for item in block if item.topic == records.RECEIPTS]
        items += [item for block in blocks[causes:further] for item in block if item.topic != records.RECEIPTS]
        if causes and random.randrange(10) < again:  # an input is written again
            items += [item for item in random.choice(blocks[:causes]) if item.topic != records.RECEIPTS]
        output += state.process(in_order(job, items))
        receipts, causes = ends, further
        if random.randrange(2):
            store(state, pages)
            state = fresh(name, pages)
    store(state, pages)
    assert output == whole(name)[0]
    assert pages == whole(name)[1]


@pytest.mark.parametrize("name", NAMES)
def test_records_have_their_key_and_the_newest_of_each_is_the_message(name: str) -> None:
    newest = {}
    for record in whole(name)[0]:
        assert record.topic == records.JOURNEYS
        assert job_of(name).forms[record.topic].key_of(record.value) == record.key
        newest[record.key] = records.decode(records.JOURNEYS, record.value)
    for key, found in newest.items():
        identity = parse(key.decode())
        fields = {field: found[field] for field in identity._fields}
        assert fields | {"opened_at": fields["opened_at"] or 0} == identity._asdict()
        assert fields["opened_at"] != 0, "an opening that nobody saw is null"
        assert (found["waits_blocks"] is None) == (found["status"] == "waiting" or len(found["legs"]) == 1)
    statuses = [found["status"] for found in newest.values()]
    assert statuses.count("waiting") == sum(
        measure.value for measure in ended(name) if measure.name == "waiting_messages"
    )


def ended(name: str) -> list[Any]:
    return list(fresh(name, whole(name)[1]).measures())


def test_measures_are_those_that_the_job_declares() -> None:
    declared = {metric.name: metric.labels for metric in JourneysJob.metrics}
    state = fresh("router", {})
    state.process([item for block in items_of("router") for item in in_order(job_of("router"), block)])
    measures = list(state.measures())
    assert {measure.name for measure in measures} == declared.keys()
    for measure in measures:
        assert len(measure.labels) == len(declared[measure.name])
    assert sum(measure.value for measure in measures if measure.name == "ended_messages_total") > 100


def test_lost_state_emits_nothing_again() -> None:
    name = "router"
    job, blocks = job_of(name), items_of(name)
    half = len(blocks) // 2
    first = fresh(name, {}).process(in_order(job, [item for block in blocks[:half] for item in block]))
    pages = job.recover(job.keys[0], written(first), {(records.RECEIPTS, 0): half, (records.VERDICTS, 0): 7})
    state = fresh(name, pages)
    assert first + state.process(in_order(job, [item for block in blocks for item in block])) == whole(name)[0]
    store(state, pages)
    assert whole(name)[1].items() <= pages.items()
    assert not [page for page in pages if page.startswith(b"r")], "nothing is left of the recovery"
    again = fresh(name, pages)
    assert again.process(in_order(job, [item for block in blocks for item in block])) == []


@pytest.mark.parametrize("name", ["router", "early-hrmp"])
def test_lost_state_keeps_what_waited_when_its_inputs_are_gone(name: str) -> None:
    job, blocks = job_of(name), items_of(name)
    half = len(blocks) // 2
    state = fresh(name, {})
    first = state.process(in_order(job, [item for block in blocks[:half] for item in block]))
    pages = job.recover(job.keys[0], written(first), {(records.RECEIPTS, 0): half})
    recovered = fresh(name, pages)
    rest = in_order(job, [item for block in blocks[half:] for item in block])
    found = {record.value for record in recovered.process(rest)}
    waited = {str(identity) for identity, _ in state.waiting.each()}
    ended = {record.value for record in state.process(rest) if record.key.decode() in waited}
    assert len(ended) > 5
    assert ended <= found


def written(output: list[OutputRecord]) -> list[JobRecord]:
    return [JobRecord(record.topic, 0, at, record.key, record.value) for at, record in enumerate(output)]


def test_inputs_too_far_ahead_are_dropped_farthest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "router"
    job, blocks = job_of(name), items_of(name)
    monkeypatch.setattr(waiting, "AHEAD_BYTES_MAX", 3_000)
    state = fresh(name, {})
    inputs = [item for block in blocks for item in block if item.topic in (records.CANDIDATES, records.DOWNWARD)]
    assert state.process(in_order(job, inputs)) == []
    pages: dict[bytes, bytes] = {}
    store(state, pages)
    kept = sorted(state.waiting.ahead)
    assert 0 < sum(len(fact) for facts in state.waiting.ahead.values() for fact in facts.values()) <= 3_000
    assert kept[-1] < len(blocks) // 2
    assert fresh(name, pages).waiting.ahead == state.waiting.ahead
    dropped = next(each.value for each in state.measures() if each.name == "dropped_inputs_total")
    assert len(inputs) == dropped + sum(map(len, state.waiting.ahead.values()))
    rest = [item for block in blocks for item in block if item not in inputs]
    ended = {record.key for record in state.process(in_order(job, rest))}
    horizontal = {record.key for record in whole(name)[0] if b".horizontal." in record.key}
    assert horizontal <= ended, "messages are followed without their content"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_blocks": 0}, "timeout_blocks: expected 1 to"),
        ({"retention_days": True}, "retention_days: expected 1 to"),
        ({"other": 1}, "other: no such key"),
        ({"chains": []}, "chains: expected a list"),
        ({"chains": ["kusama"]}, "chains: kusama is not configured"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"\[jobs.journeys\] {message}"):
        open_job(JobContext("journeys", options, {"polkadot": {"protocol": "router"}}))


def test_topic_is_bounded_by_compaction_and_by_time() -> None:
    (topic,) = job_of("router", retention_days=3).topics
    config = topic_config(topic, topic.retention_ms)
    assert config["cleanup.policy"] == "compact,delete"
    assert config["retention.ms"] == str(3 * 24 * 3600 * 1000)
    assert "segment.ms" in config
