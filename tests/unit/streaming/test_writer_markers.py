# SPDX-License-Identifier: Apache-2.0
"""Which marker a writer believes, and who has taken a lane over, with a stand-in for librdkafka's producer."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.unit.streaming.played_writer import (
    INPUTS,
    JOB,
    KAFKA,
    LANE,
    PREFIX,
    Kafka,
    Log,
    error,
    kafka,
    produced,
    writer,
)
from validator.checkpoint import markers
from validator.checkpoint.markers import ReceiptsGone, Written
from validator.errors import Unavailable
from validator.kafka.transaction import KafkaGone, WriteFailed, WriterFenced
from validator.lanes.marker import ForeignMarker, Marker

__all__ = ["kafka"]


PASSES, STAYS, FENCED = KafkaError._TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._FENCED


@pytest.mark.parametrize("shown", [Marker(), Marker(6, {INPUTS: 9})])
def test_marker_that_is_behind_the_group_is_never_believed(kafka: Kafka, shown: Marker) -> None:
    kafka.group, kafka.written = 7, Written(shown)
    made = writer(kafka)
    with pytest.raises(
        KafkaGone, match=r"Kafka does not show the last marker of lane polkadot: .*but block 7 is committed"
    ):
        made.marker(())
    assert kafka.names().count("read marker") == 2, "it is read again first"
    kafka.written = Written(Marker(7))
    assert writer(kafka).marker(()) == Marker(7)


@pytest.mark.parametrize(("group", "shown"), [(None, Marker()), (5, Marker(6)), (6, Marker(6))])
def test_group_that_is_behind_or_silent_says_nothing(kafka: Kafka, group: int | None, shown: Marker) -> None:
    kafka.group, kafka.written = group, Written(shown)
    assert writer(kafka).marker(()) == shown
    assert kafka.names().count("read marker") == 1


def test_marker_that_a_person_has_removed_is_not_missed(kafka: Kafka) -> None:
    kafka.group, kafka.receipt, kafka.written = 7, 7, Written(Marker(), is_reset=True)
    made = writer(kafka)
    made.confirm(corrects=False)
    assert made.marker(()) == Marker()


def test_own_marker_is_confirmed_once(kafka: Kafka) -> None:
    kafka.receipt, kafka.written = 7, Written(Marker(7, {INPUTS: 100}))
    made = writer(kafka)
    made.confirm(corrects=False)
    made.commit(Marker(8, {INPUTS: 120}))
    made.confirm(corrects=False)
    assert kafka.names().count("receipt") == 1


FORGED = (
    Marker(45),
    Marker(45, {INPUTS: 50}),
    Marker(45, {INPUTS: 101}),
    Marker(7, {INPUTS: 101}),
    Marker(7, {("no", 0): 1}),
)


@pytest.mark.parametrize("forged", FORGED)
def test_marker_that_the_lane_did_not_write_is_found_twice_and_corrected_if_that_is_wanted(
    kafka: Kafka, forged: Marker
) -> None:
    kafka.receipt, kafka.written = 7, Written(forged)
    made = writer(kafka)
    with pytest.raises(ForeignMarker, match="its marker on the topic markers was not written by this lane: "):
        made.confirm(corrects=False)
    assert kafka.names().count("receipt") == 2
    made.confirm(corrects=True)
    assert made.marker(()) == Marker(7, {}, doubtful=True)
    made.commit(made.marker(()).after(8, {INPUTS: 3}))
    *_, (*_, headers) = produced(kafka)
    assert headers[-1] == ("doubtful", b""), "who reads it next must not believe its inputs either"


def test_marker_without_any_receipt_is_not_the_lanes(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.written = Written(Marker(7))
    with pytest.raises(ForeignMarker, match="it is at block 7, but the last receipt is of no block"):
        writer(kafka).confirm(corrects=False)

    def gone(*_: Any) -> None:
        raise ReceiptsGone

    monkeypatch.setattr(Log, "last_receipt", gone)
    writer(kafka).confirm(corrects=False)  # retention has removed them: they say nothing


def test_receipt_that_the_marker_does_not_have_says_that_kafka_does_not_show_it(kafka: Kafka) -> None:
    kafka.receipt, kafka.written = 8, Written(Marker(7))
    with pytest.raises(
        KafkaGone, match=r"Kafka does not show the last marker of lane polkadot: .*block 8 is committed"
    ):
        writer(kafka).confirm(corrects=True)


BEFORE, AFTER = (0, 4), (0, 9)


@pytest.mark.parametrize("code", [FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize(
    ("last", "kind", "text"),
    [
        (Written(Marker()), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), "job-2", "w", BEFORE), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), JOB, "w", AFTER), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), "job-2", "w", AFTER), WriterFenced, "another job has taken over lane polkadot: job-2$"),
        (
            Written(Marker(), "", "", AFTER),
            WriterFenced,
            "another job has taken over lane polkadot: one whose name is unknown$",
        ),
    ],
)
def test_fenced_writer_finds_out_by_whom(
    kafka: Kafka, code: int, last: Written, kind: type[Exception], text: str
) -> None:
    kafka.written = Written(Marker(), "job-2", "w", BEFORE)
    made = writer(kafka)
    made.marker(())
    kafka.written = last
    kafka.failing["commit"] = [error(code)]
    with pytest.raises(kind, match=text) as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is kind


def test_writer_that_is_fenced_after_its_own_write_knows_nobody(kafka: Kafka) -> None:
    made = writer(kafka)
    made.marker(())
    made.commit(Marker(1))
    kafka.written = Written(Marker(1), JOB, made._name, AFTER)
    kafka.failing["commit"] = [error(FENCED)]
    with pytest.raises(WriteFailed, match="taken over by another writer"):
        made.commit(Marker(2))


def test_writer_that_is_fenced_before_it_has_read_its_marker_finds_out_by_whom(kafka: Kafka) -> None:
    made = writer(kafka)
    kafka.written = Written(Marker(), "job-2", "w", AFTER)
    kafka.failing["commit"] = [error(FENCED)]
    with pytest.raises(WriterFenced, match="job-2"):
        made.commit(Marker(1, {INPUTS: 1}))


def test_fenced_writer_that_cannot_ask_by_whom_is_repeated(kafka: Kafka) -> None:
    made = writer(kafka)
    kafka.failing |= {"commit": [error(FENCED)], "last": [Unavailable("away")]}
    with pytest.raises(KafkaGone, match="away"):
        made.commit(Marker(1, {INPUTS: 1}))


def test_group_without_an_answer_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __init__(self, _: object) -> None: ...

        def committed(self, *_: object, timeout: float) -> None:
            raise KafkaException(KafkaError(STAYS))

        def close(self) -> None: ...

    monkeypatch.setattr(markers, "Consumer", Silent)
    assert markers.LaneOnKafka(KAFKA, PREFIX, LANE).group_block() is None
