# SPDX-License-Identifier: Apache-2.0
"""On a Kafka with access control: the rights that docs/access.md lists suffice, and what they do not give is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streaming.transactions import TransactionalWriter
from tests.cli.follower import invoke
from tests.guarded import guarded_broker, login_of
from tests.streaming.harness import produce
from tests.streaming.processes import job
from tests.streaming.reference import IMMEDIATE, chains, reference
from tests.tidy.tree import ROOT
from validator import exit_codes
from validator.checkpoint.markers import LaneOnKafka
from validator.client import connect
from validator.codec.encode import OutputRecord
from validator.config import load_config
from validator.config.toml import to_toml
from validator.errors import UserError
from validator.kafka.reader import TopicReader
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.kafka.transaction import WriteFailed
from validator.lanes.marker import Marker
from validator.rights import RIGHTS, listed
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, METRICS_TOPIC, TOPICS

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "acme."
KINDS = {
    "topics": ResourceType.TOPIC, "groups": ResourceType.GROUP, "transactional ids": ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
ALLOWED = AclPermissionType.ALLOW


def bindings(user: str) -> list[AclBinding]:
    """Return the rights of a user, whose name here has no blanks."""
    return [
        AclBinding(
            KINDS[right.kind], PREFIX + name.removesuffix("*"),
            ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
            f"User:{login(user)}", "*", AclOperation[operation.upper()], ALLOWED,
        )
        for right in RIGHTS[user]
        for name in right.names
        for operation in right.operations
    ]  # fmt: skip


def login(user: str) -> str:
    return user.replace(" ", "-")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start a broker with access control, and yield the `[kafka]` tables of the page's users by their name there."""
    rights = [each for user in RIGHTS for each in bindings(user)]
    with guarded_broker(tmp_path_factory.mktemp("broker"), [*map(login, RIGHTS)], rights) as broker:
        yield {user: login_of(broker, login(user)) for user in RIGHTS}


def may_write(kafka: dict[str, Any], topic: str) -> bool:
    """Return whether a user may write to a topic; for the job, as it does."""
    refused: list[Any] = []
    producer = Producer(producer_config(kafka) | {"message.timeout.ms": 60_000})
    producer.produce(PREFIX + topic, b"value", b"key", on_delivery=lambda error, _: refused.append(error))
    try:
        assert producer.flush(120) == 0
    except KafkaException as error:  # who may write to no topic at all gets no id as an idempotent producer
        if error.args[0].code() != KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return False
    assert refused[0] is None or refused[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, refused
    return refused[0] is None


def may_read(kafka: dict[str, Any], topic: str) -> bool:
    """Return whether a user may read a topic."""
    try:
        with TopicReader(kafka, PREFIX, [topic]) as reader:
            list(reader.read_to_end())
    except UserError as error:
        if "lacks the right Read on topic" not in str(error):
            raise
        return False
    return True


@pytest.fixture(scope="module")
def topics(guarded: dict[str, dict[str, Any]]) -> list[str]:
    """Return all topics, once they exist."""
    tables = [*TOPICS, CURSORS_TOPIC, METRICS_TOPIC, *DRY_RUN_TOPICS]
    create_topics(guarded["topics create"], prefix=PREFIX, topics=tables)
    return [topic.name for topic in tables]


@pytest.mark.broker
@pytest.mark.parametrize("user", RIGHTS)
def test_user_may_write_what_the_table_gives_and_nothing_else(
    guarded: dict[str, dict[str, Any]], topics: list[str], user: str
) -> None:
    given = {
        name for right in RIGHTS[user] if "Write" in right.operations for name in right.names if right.kind == "topics"
    }
    assert {topic for topic in topics if may_write(guarded[user], topic)} == given
    assert ("markers" in given) == (user == "the job")


@pytest.mark.broker
@pytest.mark.parametrize("user", RIGHTS)
def test_user_may_read_what_the_table_gives_and_nothing_else(
    guarded: dict[str, dict[str, Any]], topics: list[str], user: str
) -> None:
    given = {
        name for right in RIGHTS[user] if "Read" in right.operations for name in right.names if right.kind == "topics"
    }
    assert {topic for topic in topics if may_read(guarded[user], topic)} == (set(topics) if "*" in given else given)


@pytest.mark.broker
def test_job_writes_a_lane_and_nobody_else_does(guarded: dict[str, dict[str, Any]], topics: list[str]) -> None:
    assert "markers" in topics
    writer = TransactionalWriter(LaneOnKafka(guarded["the job"], PREFIX, "polkadot"), "job-1")
    writer.confirm(corrects=False)
    writer.write([OutputRecord("verdicts", b"polkadot", b"1")])
    writer.commit(Marker(1))
    for user in sorted(RIGHTS.keys() - {"the job"}):
        with pytest.raises(WriteFailed, match="authorization failed"):
            TransactionalWriter(LaneOnKafka(guarded[user], PREFIX, "polkadot"), "job-2")


def test_page_has_the_list() -> None:
    page = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
    assert listed() in page.partition("## Rights on Kafka")[2]


@pytest.mark.long
@pytest.mark.spark
def test_documented_rights_suffice(guarded: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    chain = chains()[0]
    expected = reference(IMMEDIATE)["verdicts"]
    candidate = [body for block in chain.blocks for topic, body in block.records if topic == "candidates"][-1]

    def configured(user: str) -> Path:
        """Write the configuration of a user: with the same folder of the job for all."""
        tables = {"topics": {"prefix": PREFIX}, "kafka": guarded[user], "metrics": {"listen": "127.0.0.1:0"}}
        job_table = {"directory": str(tmp_path / "job"), "driver_memory": "1g"}
        path = tmp_path / f"{login(user)}.toml"
        path.write_text(to_toml({**tables, "job": job_table, "chains": {chain.lane: chain.table}}), encoding="utf-8")
        return path

    def ended(user: str, *command: str) -> str:
        result = invoke(*command, "--config", str(configured(user)))
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    refused = invoke("topics", "create", "--config", str(configured("readers")))
    assert "could not be created" in refused.output
    made = ended("topics create", "topics", "create", "--transport=dry-run")
    for name in ("verdicts", "metrics", "cursors", "dry-run-requests", "dry-run-answers"):
        assert re.search(rf"(?m)^{re.escape(PREFIX + name)} +created$", made), made
    produce(guarded["producers"], PREFIX, chain.records)
    blocks = sum(record.topic == "blocks" for record in chain.records)
    config = load_config(configured("the job")).model_dump(mode="json", exclude_none=True)
    (tmp_path / "configuration.json").write_text(json.dumps(config), encoding="utf-8")
    with job(tmp_path / "configuration.json") as running:
        running.wait_for_records(guarded["readers"], PREFIX, "receipts", blocks)
        assert running.terminate() == exit_codes.OK
    verdicts = ended("readers", "watch", "verdicts", "--from-beginning", "--json", f"--count={len(expected)}")
    assert len(verdicts.splitlines()) == len(expected)
    assert chain.lane in ended("readers", "lanes")

    command = [sys.executable, "-m", "validator", "transport", "run", "dry-run"]
    transport = subprocess.Popen([*command, f"--config={configured('a transport')}"])
    try:
        with connect(configured("who asks dry runs")) as client:
            answer = client.dry_run(chain.lane, {**candidate, "block": blocks + 1}, timeout_s=120)
    finally:
        transport.terminate()
        assert transport.wait() == 0
    assert answer.block == blocks + 1
