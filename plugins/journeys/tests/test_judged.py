# SPDX-License-Identifier: Apache-2.0
"""Every message that verdicts, dispatches and channel events name has its record in `journeys`, with that end, and no other message has."""

from __future__ import annotations

import pytest
from played import played
from validator_journeys import records
from validator_journeys.job import open_job

from tests.journeys import judge
from validator.codec.json_form import to_json
from validator.plugin.job_api import JobContext, JobItem, JobRecord


@pytest.mark.parametrize("name", ["router", "router-loose", "router-on-inclusion", "router-history"])
def test_topic_holds_what_the_lane_says(name: str) -> None:
    of = played(name)
    job = open_job(JobContext("journeys", {}, {of.chain.lane: {"protocol": of.protocol}}))
    history = [JobRecord(topic, 0, at, None, value) for at, (topic, value) in enumerate(sum(of.blocks, ()))]
    topics = (*job.causes, *job.effects)
    items = [JobItem(*record[:3], content) for record in history for _, content in job.condense(record)]
    items.sort(key=lambda item: topics.index(item.topic))
    emitted = job.restore(job.keys[0], {}).process(items)
    written = {
        topic: [to_json(topic, record.value) for record in history if record.topic == topic]
        for topic in (records.VERDICTS, records.DISPATCHES, records.EVENTS)
    }
    newest = judge.newest(as_json(record.value) for record in emitted)
    messages = judge.numbered(*written.values())
    assert judge.numbered_journeys(newest) == messages
    assert judge.dispatched_journeys(newest) == judge.dispatched(written[records.DISPATCHES])
    assert sum(message.ended is not None for message in messages) > 100
    assert {message.ended[1] for message in messages if message.ended} >= {"received"}


def as_json(value: bytes) -> dict[str, object]:
    return {
        name: "0x" + content.hex() if isinstance(content, bytes) else content
        for name, content in records.decode(records.JOURNEYS, value).items()
    }
