# SPDX-License-Identifier: Apache-2.0
"""The client library on a real broker; this process executes the lane in place of the job, and answers dry runs."""

from __future__ import annotations

import asyncio
import re
from secrets import token_bytes
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.follower import LANE, follower
from tests.sending import committed, send
from validator import client
from validator.ask.dry_run_transport import dry_run_plugin, own_topics
from validator.client import UserError, aio, connect, in_memory
from validator.client.backend import MemoryBackend
from validator.codec.decode import decode_record
from validator.codec.encode import BlockOutput
from validator.config import Config
from validator.core.inputs import Input, Source
from validator.kafka.reader import TopicReader, TopicRecord
from validator.kafka.sender import RecordSender
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics
from validator.lanes.configured import configured_codec
from validator.lanes.parked import Fault, Parked, running
from validator.plugin.registry import configure, transports_of
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, INPUT_TOPICS, LANES, TOPICS
from validator.transports.lines import transport_lines
from validator.transports.runner import Chosen, TransportGroup, record_forms, run_transport

if TYPE_CHECKING:
    from pathlib import Path


PREFIX = "client-library."


def test_blocks_reach_the_topics_and_verdicts_come_back(kafka: dict[str, object], tmp_path: Path) -> None:
    chain = follower(tmp_path, kafka, PREFIX, blocks=3)
    with client.connect(chain.config_path) as connected:
        producer = connected.producer(LANE)
        paras = [para.para_id for para in chain.config.chains[LANE].genesis_paras[:2]]
        for number in (1, 2):
            with producer.block(number) as block:
                for para in paras:
                    block.candidate(para, hrmp_watermark=number - 1)
        items: list[Input] = []
        codec = configured_codec(chain.config)
        with TopicReader(kafka, PREFIX, list(INPUT_TOPICS)) as reader:
            for record in reader.read_to_end():
                source = Source(record.topic, record.partition, record.offset)
                decoded = decode_record(codec, INPUT_TOPICS[record.topic], record.value, source)
                assert isinstance(decoded, tuple)
                assert record.key == LANE.encode()
                items.append(decoded[1])  # type: ignore[arg-type]
        assert len(items) == 6

        followed = connected.verdicts(follow=True, start="now")
        for _, output in chain.worker.process(items):
            send(kafka, PREFIX, [(topic, key, value) for topic, key, value, _ in output])
        verdicts = followed.take(4)
        followed.close()
        assert [(each.block, each.index, each.para_id) for each in verdicts] == [
            (number, index, para) for number in (1, 2) for index, para in enumerate(paras)
        ]
        with connected.verdicts() as stream:
            assert list(stream) == verdicts
        with connected.verdicts() as stream:
            stream.take(1)
            kept = stream.positions
        with connected.verdicts(start=kept) as stream:
            assert list(stream) == verdicts[1:]
        with connected.receipts(lane=LANE) as receipts:
            assert [each.block for each in receipts] == [1, 2]


def test_positions_that_kafka_no_longer_has_are_refused(kafka: dict[str, object], tmp_path: Path) -> None:
    """Whoever reads on behind removed records would take less than there was, and not know it."""
    prefix = "client-removed."
    chain = follower(tmp_path, kafka, prefix, blocks=5)
    send(kafka, prefix, [("receipts", b"a", b"x")] * 5)
    place = TopicPartition(f"{prefix}receipts", 0, 3)
    admin = AdminClient(admin_config(kafka))
    admin.delete_records([place])[place].result(30)
    refused = r"^start: expected the next offset of partition \d+, found \d+, but client-removed"
    with client.connect(chain.config_path) as connected:
        for start in ({0: 2}, {0: 99}, {"offsets": {"0": 6}}):
            with pytest.raises(client.UserError, match=refused):
                connected.receipts(start=start)
        with pytest.raises(
            client.UserError,
            match=r"^start: expected a partition of client-removed.receipts, which has 0 to 0, found 70",
        ):
            connected.receipts(start={70: 0})
        with pytest.raises(
            client.UserError, match=r"^start: expected an offset for at least one partition, found none"
        ):
            connected.receipts(start={})
        connected.receipts(start={0: 3}).close()


def test_records_that_no_job_reads_are_counted_and_said(kafka: dict[str, object], tmp_path: Path) -> None:
    prefix = "client-unread."
    chain = follower(tmp_path, kafka, prefix, blocks=5)
    chain.judge(chain.records)
    with client.connect(chain.config_path) as connected:
        before = connected.progress(LANE)
        assert before.unread == 0
        assert before.waiting_for is not None
        send(kafka, prefix, [("blocks", LANE.encode(), b"1"), ("candidates", LANE.encode(), b"2")])
        after = connected.progress(LANE)
        assert (after.executed_block, after.unread, after.waiting_for) == (5, 2, None)
        words = (
            f"expected 9 records within 0 s, found 5; lane {LANE} has executed block 5; 2 records are unread: no job"
        )
        with pytest.raises(TimeoutError, match=words):
            connected.receipts(lane=LANE).take(9, timeout_s=0.4)


def test_progress_is_what_the_job_has_committed(kafka: dict[str, object], tmp_path: Path) -> None:
    prefix = "client-progress."
    chain = follower(tmp_path, kafka, prefix, blocks=5)

    def said(output: BlockOutput) -> None:
        send(kafka, prefix, [(record.topic, record.key, record.value) for record in output.records])

    parked = Parked(Fault.HANDLER, "a handler does not end", 5)

    with client.connect(chain.config_path) as connected:
        assert connected.progress(LANE) == client.Progress(LANE)
        chain.judge(chain.records)
        assert connected.progress(LANE).executed_block == 5
        assert connected.progress(LANE).parked is None
        said(parked.record(LANE))
        assert connected.progress(LANE).parked == "a handler does not end"
        assert connected.progress(LANE).executed_block == 5
        said(running(LANE))
        assert connected.progress(LANE).parked is None


class Reading:
    """Records of a topic, read at once."""

    at_end = True

    def __init__(self, records: list[TopicRecord]) -> None:
        self._records = records

    def poll(self, _: float) -> list[TopicRecord]:
        return self._records

    def close(self) -> None: ...


def test_progress_is_the_newest_whichever_partition_is_read_last(
    kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once partitions were added, a lane's former partition keeps what was said before."""
    prefix = "client-partitions."
    chain = follower(tmp_path, kafka, prefix, blocks=5)
    with client.connect(chain.config_path) as connected:
        chain.judge(chain.records)
        (now,) = committed(kafka, prefix, [LANES])
        (parked,), (runs,) = Parked(Fault.HANDLER, "it does not end", 5).record(LANE).records, running(LANE).records
        early = now._replace(key=parked.key, value=parked.value)
        late = now._replace(key=runs.key, value=runs.value, partition=1, timestamp_ms=now.timestamp_ms + 1)
        for order in ([now, early, late], [late, early, now]):
            reading = Reading(order)
            monkeypatch.setattr(connected._backend, "read", lambda *_, reading=reading: reading)
            found = connected.progress(LANE)
            assert (found.executed_block, found.parked) == (5, None)


def test_missing_topics_are_named(kafka: dict[str, object]) -> None:
    tables = {"kafka": kafka, "topics": {"prefix": "client-library-absent."}}
    with client.connect(tables) as connected:
        block = connected.producer("polkadot").block(1)
        with pytest.raises(client.UserError, match=r"topic client-library-absent.blocks does not exist"):
            block.end()


def test_sender_works_again_after_a_record_that_kafka_did_not_accept(kafka: dict[str, object]) -> None:
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic("client-refused.blocks", 1, config={"max.message.bytes": "1000"})])[
        "client-refused.blocks"
    ].result()
    sender = RecordSender(kafka, "client-refused.")
    sender.send("blocks", b"lane", token_bytes(2_000))
    with pytest.raises(client.UserError, match=r"client-refused.blocks: .* did not accept a record"):
        sender.flush()
    for value in (b"1", b"2"):
        sender.send("blocks", b"lane", value)
        sender.flush()
    assert [each.value for each in committed(kafka, "client-refused.", ["blocks"])] == [b"1", b"2"]


PARAS = [{"para_id": 2000, "balance": 10**12}, {"para_id": 2004, "balance": 10**12}]
CHAINS = {LANE: {"host_configuration": {"preset": "polkadot-2023"}, "genesis_paras": PARAS}}
BAD = {"para_id": 2000, "hrmp_watermark": 9, "horizontal_messages": [{"recipient": 2004, "data": b"x"}]}
GOOD = {"para_id": 2000, "hrmp_watermark": 0, "upward_messages": [b"x"]}


def test_client_is_answered_on_topics_as_in_memory(kafka: dict[str, Any], tmp_path: Path) -> None:
    prefix = f"dry-{tmp_path.name}."
    tables = {"chains": CHAINS, "kafka": kafka, "topics": {"prefix": prefix}}
    config = Config.model_validate(tables)
    create_topics(kafka, prefix=prefix, topics=[*TOPICS, CURSORS_TOPIC])
    with in_memory({"chains": CHAINS}) as lanes, connect(tables) as client:
        with pytest.raises(UserError, match="dry-run-requests does not exist"):
            client.dry_run(LANE, GOOD)
        create_topics(kafka, prefix=prefix, topics=DRY_RUN_TOPICS)
        with pytest.raises(TimeoutError, match="does `validator transport run dry-run` run"):
            client.dry_run(LANE, GOOD, timeout_s=0.2)  # it is answered later, to nobody
        standings = lanes._backend
        assert isinstance(standings, MemoryBackend)
        plugin = dry_run_plugin(lambda _: standings)
        (transport,) = transports_of(plugin, "{}")
        chosen = Chosen("dry-run", plugin, transport, configure(plugin, "{}"), record_forms(config, own=own_topics()))
        group = TransportGroup(kafka, prefix, "dry-run")
        stop, active, standby = Event(), [Event(), Event()], Event()
        threads = [
            Thread(
                target=run_transport,
                args=(chosen, group, stop, lambda _: standby.set(), lambda _, ready=ready: ready.set()),
                daemon=True,
            )
            for ready in active
        ]
        try:
            threads[0].start()
            assert active[0].wait(60)
            threads[1].start()
            for record in (BAD, GOOD):
                assert client.dry_run(LANE, record) == lanes.dry_run(LANE, record)

            async def ask() -> Any:
                async with await aio.connect(tables) as asking:
                    return await asking.dry_run(LANE, BAD)

            assert asyncio.run(ask()) == lanes.dry_run(LANE, BAD)
            with pytest.raises(UserError, match="hrmp_watermark"):
                client.dry_run(LANE, {**GOOD, "hrmp_watermark": -1})
            assert standby.wait(60)
            said = transport_lines(config)
            assert list(said) == [LANE]
            assert re.fullmatch(r"dry runs: \S+@\S+:\d+ \(.+\) answers dry-run-requests", said[LANE][0])
            assert not active[1].is_set()
        finally:
            stop.set()
            for thread in threads:
                if thread.ident is not None:
                    thread.join(60)
        assert transport_lines(config) == {}
