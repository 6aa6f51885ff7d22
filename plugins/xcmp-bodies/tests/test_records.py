# SPDX-License-Identifier: Apache-2.0
"""Records of bodies and outcomes survive their encoding; whatever else arrives becomes a refusal, never an exception."""

from __future__ import annotations

import marshal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import BodiesJob, open_job
from validator_xcmp_bodies.outcomes import (
    Flow,
    Held,
    QueueStatus,
    RecordOffset,
    Refused,
    Wanted,
    Watermark,
    not_expected,
)
from validator_xcmp_bodies.parts import cut, measure, rejoin

from validator.codec.encode import OutputRecord
from validator.plugin.job_api import JobContext, JobItem, JobRecord, UserError

CHAINS = {"polkadot": {"protocol": "xcmp-network", "limits": {"limits": {"max_channel_messages": 3}}}}
ROOT = bytes(range(32))


def job(**options: object) -> BodiesJob:
    opened = open_job(JobContext("xcmp-bodies", options, CHAINS))
    assert isinstance(opened, BodiesJob)
    return opened


@given(st.lists(st.binary(max_size=300_000), max_size=3))
def test_a_body_survives_its_records(payloads: list[bytes]) -> None:
    encoded = records.encode_body("polkadot", (1, 2, 3), payloads)
    decoded = [records.decode_body(record.value) for record in encoded]
    assert rejoin(part for _, _, part in decoded) == payloads
    assert [part.part for _, part, _ in decoded] == list(range(len(cut(payloads))))
    assert {(lane, part.root, part.size) for lane, part, _ in decoded} == {
        ("polkadot", measure(payloads).root, sum(map(len, payloads)))
    }
    assert {record.key for record in encoded} == {b"polkadot/2"}


def test_outcomes_are_records_of_their_topics() -> None:
    watermark = Watermark(5, (1, 4))
    held = Held(2, 1, 3, ROOT, 11, 3, (RecordOffset(0, 7), RecordOffset(0, 9)))
    refused = Refused(not_expected(1, 2, 3), RecordOffset(0, 8), 1, 2, 3, ROOT)
    outcomes = [
        held,
        refused,
        Refused(not_expected(1, 2, 3), RecordOffset(0, 8)),
        Wanted(2, 1, 3, ROOT, 11, 2),
        Flow(1, 2, 8, 3, watermark),
        QueueStatus(2, 9, 1, 1, 0, (3, 1), front_held=False, alarm=True, watermark=watermark),
        QueueStatus(2, 9, 0, 0, 0, None, front_held=False, alarm=False, watermark=watermark),
    ]
    found = records.encode_outcomes("polkadot", outcomes)
    decoded = [records.decode(record.topic, record.value) for record in found]
    assert [record.topic for record in found] == [
        "xcmp.bodies.held",
        "xcmp.bodies.refused",
        "xcmp.bodies.refused",
        "xcmp.wanted",
        "xcmp.flow",
        "xcmp.queues",
        "xcmp.queues",
    ]
    assert decoded[0]["places"] == [{"partition": 0, "offset": 7}, {"partition": 0, "offset": 9}]
    assert decoded[1]["kind"] == "Body/NotExpected"
    assert decoded[1]["fields"][0] == {"name": "sender", "value": 1}
    assert decoded[5]["front"] == {"sent_at": 3, "sender": 1, "held": False}
    assert decoded[6]["front"] is None
    assert found[4].key == b"polkadot/1/2"


RIGHT = records.encode_body("polkadot", (1, 2, 3), [b"one"])[0].value
DAMAGED = st.tuples(st.integers(0, len(RIGHT)), st.binary(max_size=8)).map(
    lambda drawn: RIGHT[: drawn[0]] + drawn[1] + RIGHT[drawn[0] + len(drawn[1]) :]
)


@given(st.binary(max_size=200) | DAMAGED)
def test_whatever_arrives_is_refused_with_its_place(value: bytes) -> None:
    opened = job()
    ((key, content),) = opened.condense(JobRecord("xcmp.bodies", 0, 5, None, value))
    state = opened.restore(key, {})
    (refused,) = state.process([JobItem("xcmp.bodies", 0, 5, content)])
    assert records.decode(refused.topic, refused.value)["kind"] in {"Body/Malformed", "Body/NotExpected"}


def test_a_body_of_an_unknown_chain_is_refused() -> None:
    (record,) = records.encode_body("kusama", (1, 2, 3), [b"one"])
    ((key, content),) = job().condense(JobRecord("xcmp.bodies", 0, 5, record.key, record.value))
    assert (key, marshal.loads(content)) == ("polkadot/xcmp-bodies/0-1", "lane: 'kusama' has no bodies")


def test_a_receipt_is_the_clock_of_every_bucket_and_a_body_goes_to_one() -> None:
    opened = job(buckets=3)
    assert opened.keys == tuple(f"polkadot/xcmp-bodies/{number}-3" for number in range(3))
    (record,) = records.encode_body("polkadot", (1, 5, 3), [b"one"])
    ((key, _),) = opened.condense(JobRecord("xcmp.bodies", 0, 5, record.key, record.value))
    assert key == "polkadot/xcmp-bodies/2-3"


def test_senders_are_told_the_capacity_that_the_chain_has() -> None:
    assert job().options.settings["polkadot"].capacity_messages == 3
    assert job(capacity_messages=9).options.settings["polkadot"].capacity_messages == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention_hours": 24}, "retention_hours: expected 25 to 8760, found 24"),
        ({"bucket": 1}, "bucket: no such key"),
        ({"buckets": True}, "buckets: expected 1 to 1024, found True"),
        ({"chains": "polkadot"}, "chains: expected a list of chains"),
        ({"chains": ["kusama"]}, "kusama is not configured"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        job(**options)


def test_without_a_chain_of_the_protocol_the_chains_must_be_named() -> None:
    with pytest.raises(UserError, match="no chain has protocol 'xcmp-network'"):
        open_job(JobContext("xcmp-bodies", {}, {"polkadot": {"protocol": "router", "limits": {}}}))


def test_bodies_stay_as_long_as_the_availability_store_keeps_them() -> None:
    topics = {topic.name: topic for topic in job().topics}
    assert topics["xcmp.bodies"].cleanup == "delete"
    assert topics["xcmp.bodies"].retention_ms == 25 * 60 * 60 * 1000


def test_records_have_the_names_of_their_topics() -> None:
    assert {topic: each.schema.topic for topic, each in records.formats().items()} == {
        topic: topic for topic in records.formats()
    }
    assert isinstance(records.encode_body("polkadot", (1, 2, 3), [])[0], OutputRecord)
