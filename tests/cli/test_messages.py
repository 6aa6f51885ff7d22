# SPDX-License-Identifier: Apache-2.0
"""`validator message` and `validator messages-of` on the messages of a simulated chain that the job `journeys` has followed."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pytest
from validator_journeys.job import open_job

from tests.cli.follower import LANE, Follower, follower, invoke, lines
from tests.codecs import encoded
from tests.docs.pages import DOCS, blocks
from tests.sending import send
from validator import exit_codes
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.plugin.job_api import JobContext, JobItem, JobRecord

BLOCKS = 30


def follow_messages(chain: Follower) -> None:
    """Do the work of the job `journeys` in one batch."""
    kafka, prefix = chain.config.kafka, chain.config.topics.prefix
    send(kafka, prefix, [(kind, LANE.encode(), encoded(kind, record)) for kind, record in chain.records])
    job = open_job(JobContext("journeys", {}, {LANE: {"protocol": "router"}}))
    items = []
    for topic in (*job.causes, *job.effects):
        with TopicReader(kafka, prefix, [topic]) as reader:
            for read in reader.read_to_end():
                record = JobRecord(topic, read.partition, read.offset, read.key, read.value)
                items += [JobItem(topic, read.partition, read.offset, content) for _, content in job.condense(record)]
    create_topics(kafka, prefix=prefix, topics=job.topics)
    state = job.restore(job.keys[0], {})
    send(kafka, prefix, [(each.topic, each.key, each.value) for each in state.process(items)])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    """A chain whose last messages wait."""
    followed = follower(tmp_path_factory.mktemp("messages"), kafka, "messages.", blocks=BLOCKS)
    followed.judge(followed.records)
    follow_messages(followed)
    return followed


@pytest.fixture(scope="module")
def newest(chain: Follower) -> dict[str, dict[str, Any]]:
    """The last record of each message, as `validator watch` prints it."""
    shown = lines(invoke("watch", "journeys", "--json", chain.option()).stdout)
    return {each["id"]: each for each in shown}


def asked(chain: Follower, *arguments: str, code: int = exit_codes.OK) -> list[dict[str, Any]]:
    done = invoke(*arguments, "--json", chain.option())
    assert done.exit_code == code, done.output
    return lines(done.stdout)


def test_each_message_is_found_by_its_id(chain: Follower, newest: dict[str, dict[str, Any]]) -> None:
    by_status = {each["status"]: each for each in newest.values()}
    assert by_status.keys() >= {"waiting", "received", "dispatched"}
    for each in by_status.values():
        (found,) = asked(chain, "message", each["id"])
        assert {name: found[name] for name in each} == each
        assert (found["why"] is not None) == (each["status"] == "waiting") == (found["ahead"] is not None)
        text = invoke("message", each["id"], chain.option()).stdout
        assert text.startswith(f"{each['id']}: {'waits' if each['status'] == 'waiting' else each['status']}")
        assert all(leg["step"] in text for leg in each["legs"])


def test_messages_are_found_by_any_of_their_hashes(chain: Follower, newest: dict[str, dict[str, Any]]) -> None:
    one = next(each for each in newest.values() if each["mqc_head"])
    for digest in (one["payload_hash"], one["mqc_head"], one["payload_hash"].removeprefix("0x")):
        assert one["id"] in [each["id"] for each in asked(chain, "message", digest)]


def test_ahead_counts_what_waits_before_it(chain: Follower, newest: dict[str, dict[str, Any]]) -> None:
    waiting = [each for each in newest.values() if each["status"] == "waiting"]
    last = max(waiting, key=lambda each: each["number"])
    queue = last["id"].rsplit(".", 1)[0]
    before = [each for each in waiting if each["id"].rsplit(".", 1)[0] == queue and each["number"] < last["number"]]
    (found,) = asked(chain, "message", last["id"])
    assert found["ahead"] == len(before)
    assert found["age_blocks"] == BLOCKS - last["legs"][0]["block"]


def test_list_has_what_waits_longest_first(chain: Follower, newest: dict[str, dict[str, Any]]) -> None:
    waiting = [each for each in newest.values() if each["status"] == "waiting"]
    para = next(each["recipient"] for each in waiting if each["recipient"] is not None)
    of_para = {each["id"] for each in waiting if para in (each["sender"], each["recipient"])}
    listed = asked(chain, "messages-of", f"--para={para}")
    assert {each["id"] for each in listed} == of_para
    ages = [each["age_blocks"] for each in listed]
    assert ages == sorted(ages, reverse=True)
    assert all(each["why"] for each in listed)
    stuck = asked(chain, "messages-of", f"--para={para}", f"--stuck={ages[0]}", code=exit_codes.DISAGREEMENT)
    assert [each["age_blocks"] for each in stuck] == [each for each in ages if each >= ages[0]]
    assert asked(chain, "messages-of", f"--para={para}", f"--stuck={ages[0] + 1}") == []


def test_list_of_another_status_and_a_limit(chain: Follower, newest: dict[str, dict[str, Any]]) -> None:
    para = next(each["recipient"] for each in newest.values() if each["status"] == "received")
    received = [
        each["id"]
        for each in newest.values()
        if each["status"] == "received" and para in (each["sender"], each["recipient"])
    ]
    listed = asked(chain, "messages-of", f"--para={para}", "--status=received")
    assert sorted(each["id"] for each in listed) == sorted(received)
    done = invoke("messages-of", f"--para={para}", "--status=received", "--limit=1", chain.option())
    assert f"{len(received) - 1} more; --limit shows further ones" in done.stderr
    assert asked(chain, "messages-of", f"--para={para}", "--lane=kusama") == []


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["message", "polkadot.horizontal.1.2.3.4"], "no message polkadot.horizontal.1.2.3.4 among those of journeys", 1),
        (["message", "0x" + "ab" * 32], f"no message 0x{'ab' * 32} among those of journeys", 1),
        (["message", "2000"], "ID: expected LANE.KIND.SENDER.RECIPIENT.OPENED_AT.NUMBER or 32 bytes in hex, found '2000'", 2),
        (["messages-of", "--para=1", "--status=lost"], "--status: expected waiting, received, dispatched, dropped, found 'lost'", 2),
        (["messages-of", "--para=1", "--status=dropped", "--stuck=3"], "--stuck needs --status waiting, found dropped", 2),
        (["messages-of", "--para=1"], "no waiting message of para 1", 0),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_line(chain: Follower, arguments: list[str], message: str, code: int) -> None:
    done = invoke(*arguments, chain.option())
    assert (done.exit_code, done.stderr) == (code, f"validator: {message}\n")


def test_without_the_job_the_topic_is_missing(tmp_path: Path, kafka: dict[str, object]) -> None:
    alone = follower(tmp_path, kafka, "no-messages.", blocks=1)
    done = invoke("message", "polkadot.horizontal.1.2.3.4", alone.option())
    assert done.exit_code == exit_codes.USER_ERROR
    assert "start the job journeys, which creates it" in done.stderr


def test_empty_topic_is_said(tmp_path: Path, kafka: dict[str, object]) -> None:
    alone = follower(tmp_path, kafka, "empty-messages.", blocks=1)
    job = open_job(JobContext("journeys", {}, {LANE: {"protocol": "router"}}))
    create_topics(kafka, prefix="empty-messages.", topics=job.topics)
    empty = (
        "the topic is empty: the job journeys has not read what the lanes emit (`validator lanes`, and the job's log)"
    )
    for arguments in (["message", "polkadot.horizontal.1.2.3.4"], ["messages-of", "--para=2000"]):
        done = invoke(*arguments, alone.option())
        assert done.stderr.endswith(f"; {empty}\n"), done.stderr


def test_query_of_the_page(
    chain: Follower, newest: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("export", "journeys", "--parquet=journeys", chain.option()).exit_code == exit_codes.OK
    page = (DOCS / "journeys.md").read_text(encoding="utf-8")
    query = next(block.content for block in blocks(page) if "read_parquet" in block.content)
    found = {row[1:4]: row[4:] for row in duckdb.sql(query).fetchall()}
    expected: dict[Any, list[dict[str, Any]]] = {}
    for each in newest.values():
        expected.setdefault((each["kind"], each["sender"], each["recipient"]), []).append(each)
    assert found == {
        ends: (
            len(messages),
            sum(each["status"] == "waiting" for each in messages),
            median(waits)
            if (waits := [each["waits_blocks"] for each in messages if each["waits_blocks"] is not None])
            else None,
        )
        for ends, messages in expected.items()
    }
