# SPDX-License-Identifier: Apache-2.0
"""`validator export TOPIC --parquet`: each record is in the folder once, and DuckDB and pandas read what `watch --json` prints."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pandas as pd
import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from tests.docs.pages import DOCS, blocks
from tests.sending import send
from validator import exit_codes
from validator.cli import parquet
from validator.codec.json_form import encode_json
from validator.kafka.topics import create_topics
from validator.topics import DAY_MS, Topic
from validator.transports.runner import plugin_topics

PAGE = DOCS / "tables.md"
TOPICS = ["verdicts", "dispatches", "channel-events", "headroom", "receipts", "lanes"]
FIRST_BLOCKS = 5


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    """A chain whose output is complete."""
    followed = follower(tmp_path_factory.mktemp("parquet"), kafka, "parquet.")
    followed.judge(followed.records)
    return followed


@pytest.fixture
def growing(tmp_path: Path, kafka: dict[str, object]) -> Follower:
    """A chain without output."""
    return follower(tmp_path, kafka, f"parquet-{uuid4()}.")


def halves(chain: Follower) -> tuple[list[Any], list[Any]]:
    first = [each for each in chain.records if each[1]["block"] <= FIRST_BLOCKS]
    return first, chain.records[len(first) :]


def exported(chain: Follower, folder: Path, topic: str = "verdicts") -> dict[str, Any]:
    done = invoke("export", topic, f"--parquet={folder}", "--json", chain.option())
    assert done.exit_code == exit_codes.OK, done.output
    return lines(done.stdout)[0]


def refusal(chain: Follower, *arguments: str) -> str:
    done = invoke("export", *arguments, chain.option())
    assert done.exit_code == exit_codes.USER_ERROR
    return str(done.stderr)


def watched(chain: Follower, topic: str = "verdicts") -> list[dict[str, Any]]:
    return lines(invoke("watch", topic, "--json", chain.option()).stdout)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return what DuckDB reads, in the order of Kafka's offsets."""
    query = (
        f"SELECT * FROM read_parquet('{folder}/**/*.parquet', union_by_name=true, hive_partitioning=true) "
        "ORDER BY kafka_partition, kafka_offset"
    )
    return duckdb.sql(query).arrow().read_all().to_pylist()


@pytest.mark.parametrize("topic", TOPICS)
def test_every_field_of_every_record_is_there(chain: Follower, tmp_path: Path, topic: str) -> None:
    exported(chain, tmp_path, topic)
    expected, found = watched(chain, topic), rows(tmp_path)
    assert len(found) == len(expected) > 0
    scalars = 0
    for record, row in zip(expected, found, strict=True):
        for name, value in record.items():
            if isinstance(value, bool | int | str):
                scalars += 1
                assert str(row[name]) == str(value), (name, record)
    assert scalars > 2 * len(expected)


def test_nested_fields_keep_their_shape(chain: Follower, tmp_path: Path) -> None:
    exported(chain, tmp_path)
    expected = {(each["block"], each["kind"], each["index"]): each for each in watched(chain)}
    found = {(each["block"], each["kind"], each["index"]): each for each in rows(tmp_path)}
    assert found.keys() == expected.keys()
    for key, record in expected.items():
        error = record.get("error")
        if error is None:
            assert found[key]["error"] is None
        else:
            fields = {name: each for name, each in error.items() if name not in ("kind", "clause", "rule")}
            assert {**found[key]["error"], "fields": json.loads(found[key]["error"]["fields"])} == {
                "kind": error["kind"],
                "clause": error["clause"],
                "fields": fields,
            }
        assert found[key]["received"] == record["received"]
        assert found[key]["messages"] == record["messages"]
    assert all(any(each.get(name) for each in expected.values()) for name in ("error", "messages", "received"))


def test_amounts_of_128_bits_are_exact_text(chain: Follower, tmp_path: Path) -> None:
    exported(chain, tmp_path, "channel-events")
    expected = [each["sender_reserved"] for each in watched(chain, "channel-events")]
    assert [each["sender_reserved"] for each in rows(tmp_path)] == [str(each) for each in expected]


def test_pandas_reads_the_folder(chain: Follower, tmp_path: Path) -> None:
    exported(chain, tmp_path)
    table = pd.read_parquet(tmp_path)
    expected = watched(chain)
    assert len(table) == len(expected)
    assert sorted(table["para_id"]) == sorted(each["para_id"] for each in expected)
    assert set(table["lane"]) == {"polkadot"}


def test_query_of_the_page(chain: Follower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query = next(block.content for block in blocks(PAGE.read_text(encoding="utf-8")) if "read_parquet" in block.content)
    exported(chain, Path("verdicts"))
    refused = [each for each in watched(chain) if each["kind"] == "candidate" and not each["ok"]]
    found = duckdb.sql(query).fetchall()
    assert sum(each[-1] for each in found) == len(refused) > 0
    assert {each[:4] for each in found} == {("polkadot", 0, each["para_id"], each["error"]["kind"]) for each in refused}


def test_the_next_export_writes_what_has_come_since(growing: Follower, tmp_path: Path) -> None:
    first, second = halves(growing)
    folder = tmp_path / "out"
    growing.judge(first)
    before = exported(growing, folder)
    growing.judge(second)
    after = exported(growing, folder)
    assert before["records"] > 0 < after["records"]
    assert before["records"] + after["records"] == len(rows(folder)) == len(growing.expected)
    assert (exported(growing, folder)["records"], exported(growing, folder)["files"]) == (0, 0)


@pytest.mark.parametrize("interrupted_at", range(5))
def test_a_killed_export_leaves_nothing_twice(
    growing: Follower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: int
) -> None:
    first, second = halves(growing)
    folder = tmp_path / "out"
    growing.judge(first)
    exported(growing, folder)
    growing.judge(second)
    monkeypatch.setattr(parquet, "BLOCKS_PER_FOLDER", 4)  # several files
    left = iter([True] * interrupted_at)
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if next(left, False):
            return replace(path, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        done = invoke("export", "verdicts", f"--parquet={folder}", growing.option())
    assert (done.exit_code, done.stderr) == (
        exit_codes.INTERRUPTED,
        f"validator: interrupted: the next export to {folder} continues\n",
    )
    exported(growing, folder)
    offsets = [each["kafka_offset"] for each in rows(folder)]
    assert len(offsets) == len(set(offsets)) == len(growing.expected)
    assert not list(folder.rglob("*.partial"))


def test_topic_of_a_plugin(growing: Follower, tmp_path: Path) -> None:
    topic, prefix = "relay-chain.disagreements", growing.config.topics.prefix
    declared = plugin_topics(growing.config)[topic]
    record = {
        "lane": "polkadot", "block": 12_345, "block_hash": "ab" * 32, "index": 0, "kind": "DownwardHead", "para_id": 2000,
        "recipient": None, "lane_says": "head 1", "chain_says": "head 2", "reason": "ours", "follows_block": None,
    }  # fmt: skip
    create_topics(growing.config.kafka, prefix=prefix, topics=[Topic(topic, 1, "delete", DAY_MS, "")])
    send(growing.config.kafka, prefix, [(topic, b"polkadot", encode_json(declared.form.format.schema, record))])
    exported(growing, tmp_path / "out", topic)
    (found,) = rows(tmp_path / "out")
    assert found | record | {"block_hash": f"0x{record['block_hash']}", "from_block": 10_000} == found


def test_topic_that_does_not_exist_yet_is_no_hindrance_to_the_next_export(growing: Follower, tmp_path: Path) -> None:
    topic, prefix = "relay-chain.disagreements", growing.config.topics.prefix
    folder = tmp_path / "out"
    for _ in range(2):
        assert refusal(growing, topic, f"--parquet={folder}").startswith(
            f"validator: the topic {topic} does not exist yet: start "
        )
    create_topics(growing.config.kafka, prefix=prefix, topics=[Topic(topic, 1, "delete", DAY_MS, "")])
    assert exported(growing, folder, topic)["records"] == 0


def test_topic_that_nobody_declares(chain: Follower, tmp_path: Path) -> None:
    message = refusal(chain, "verdict", f"--parquet={tmp_path}")
    assert message.startswith("validator: TOPIC: expected verdicts, ")
    assert message.endswith("found 'verdict'; did you mean 'verdicts'?\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verdicts"], "expected --parquet FOLDER with TOPIC, found none"),
        (["--parquet={folder}"], "expected TOPIC with --parquet, found none"),
        ([], "expected --out FOLDER for a lane's inputs, or TOPIC with --parquet FOLDER, found neither"),
        (
            ["verdicts", "--parquet={folder}", "--lane=polkadot"],
            "--parquet takes all records of a topic: expected no --out, --lane, --from-block or --to-block with it",
        ),
    ],
)
def test_options_that_do_not_belong_together(
    chain: Follower, tmp_path: Path, arguments: list[str], message: str
) -> None:
    assert refusal(chain, *(each.format(folder=tmp_path) for each in arguments)) == f"validator: {message}\n"


def test_folders_of_something_else_are_refused(chain: Follower, tmp_path: Path) -> None:
    (tmp_path / "photo.parquet").write_bytes(b"mine")
    assert refusal(chain, "verdicts", f"--parquet={tmp_path}") == (
        f"validator: {tmp_path}: expected an empty folder, or one with _positions.json of an earlier export\n"
    )
    assert (tmp_path / "photo.parquet").read_bytes() == b"mine"
    folder = tmp_path / "verdicts"
    exported(chain, folder)
    assert refusal(chain, "receipts", f"--parquet={folder}") == (
        f"validator: {folder}: expected a folder of receipts, found one of verdicts\n"
    )
    with (folder / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another export writes to it" in refusal(chain, "verdicts", f"--parquet={folder}")
    positions = folder / "_positions.json"
    kept = json.loads(positions.read_bytes())
    positions.write_text("[]")
    assert "expected the positions of an export, found something else" in refusal(
        chain, "verdicts", f"--parquet={folder}"
    )
    positions.write_text(json.dumps({**kept, "offsets": {"0": 10**9}}))
    assert refusal(chain, "verdicts", f"--parquet={folder}").startswith(
        f"validator: {positions}: start: expected the next offset of partition 0, found 1000000000, "
    )


def test_a_record_that_cannot_be_read_is_named_and_not_passed_over(growing: Follower, tmp_path: Path) -> None:
    growing.judge(growing.records)
    folder = tmp_path / "out"
    exported(growing, folder)
    send(growing.config.kafka, growing.config.topics.prefix, [("verdicts", b"polkadot", b"not Avro")])
    for _ in range(2):
        assert " verdicts[" in refusal(growing, "verdicts", f"--parquet={folder}")
    assert len(rows(folder)) == len(growing.expected)
