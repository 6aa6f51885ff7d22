# SPDX-License-Identifier: Apache-2.0
"""`validator dead-letters`: list, show and replay, with corrected records and a limit of attempts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.cli.follower import Follower, follower, invoke, lines
from tests.codecs import codec_for, decoded, encoded
from tests.sending import in_transactions, send
from validator.codec.encode import encode_dead_letter
from validator.codec.json_form import shown_json
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, DeadReason, Input, Source
from validator.errors import UserError
from validator.kafka.settings import WHOLE, consumer_config, producer_config
from validator.kafka.topics import create_topics
from validator.letters.dead_letters import DeadLetterOffset
from validator.letters.replayer import Replayer, Task
from validator.topics import INPUT_TOPICS, TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


class Letters:
    """A chain's topics, with dead letters that the test writes."""

    def __init__(self, chain: Follower) -> None:
        self.chain = chain
        self.kafka = chain.config.kafka
        self.prefix = chain.config.topics.prefix
        self.count = 0
        self._judged: set[tuple[str, int]] = set()

    def put(self, raw: bytes, *, reason: DeadReason = DeadReason.UNDECODABLE, source: Source | None = None,
            lane: str = "polkadot", block: int | None = None, detail: str = "it is broken") -> str:  # fmt: skip
        """Write a dead letter to the topic and return its place."""
        source = source or Source(f"{self.prefix}candidates", 0, 1000 + self.count)
        letter = encode_dead_letter(DeadLetter(lane, reason, detail, source, raw, block, None if block is None else 0))
        self.send(letter.topic, letter.value, letter.key)
        self.count += 1
        return f"0/{self.count - 1}"

    def send(self, topic: str, value: bytes, key: bytes = b"polkadot") -> None:
        send(self.kafka, self.prefix, [(topic, key, value)])

    def candidate(self) -> dict[str, Any]:
        return next(record for kind, record in self.chain.records if kind == "candidates")

    @staticmethod
    def encoded(record: dict[str, Any], topic: str = "candidates") -> bytes:
        return encoded(topic, record)

    def inputs(self, topic: str) -> list[Message]:
        """Return the committed records of a topic with one partition."""
        consumer = Consumer(consumer_config(self.kafka, WHOLE, group_id="test"))
        try:
            consumer.assign([TopicPartition(self.prefix + topic, 0, OFFSET_BEGINNING)])
            messages: list[Message] = []
            while (message := consumer.poll(120)) is not None and message.error() is None:
                messages.append(message)
            return messages
        finally:
            consumer.close()

    def record_at(self, place: dict[str, Any]) -> bytes | None:
        topic = place["topic"].removeprefix(self.prefix)
        return next(message.value() for message in self.inputs(topic) if message.offset() == place["offset"])

    def judge_inputs(self) -> None:
        """Execute new records of the input topics, as the job would."""
        items: list[Input | DeadLetter] = []
        for topic in INPUT_TOPICS:
            for message in self.inputs(topic):
                place = topic, message.offset() or 0
                if place not in self._judged:
                    self._judged.add(place)
                    source = Source(self.prefix + topic, 0, place[1])
                    item = decoded(topic, message.value(), source, message.key())
                    items.append(item if isinstance(item, DeadLetter) else item[1])
        for _, outputs in self.chain.worker.process(items):
            for topic, key, value, _ in outputs:
                self.send(topic, value, key)

    def with_attempts_max(self, limit: int) -> str:
        """Return the option that names a configuration with another limit."""
        path = self.chain.config_path.with_name("wider.toml")
        text = self.chain.config_path.read_text(encoding="utf-8")
        path.write_text(f"{text}\n[dead_letters]\nattempts_max = {limit}\n", encoding="utf-8")
        return f"--config={path}"

    def run(self, *arguments: str) -> Result:
        return invoke("dead-letters", *arguments, self.chain.option())

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return lines(result.stdout)


@pytest.fixture
def letters(
    tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object], request: pytest.FixtureRequest
) -> Letters:
    prefix = request.node.name.partition("[")[0][-60:] + "."
    return Letters(follower(tmp_path_factory.mktemp("letters"), kafka, prefix, blocks=3))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Letters:
    """One dead letter, for tests that replay nothing."""
    letters = Letters(follower(tmp_path_factory.mktemp("letters"), kafka, "letters.", blocks=1))
    letters.put(b"raw")
    letters.put(b"raw")
    return letters


def test_list_shows_every_field_of_dead_letters(letters: Letters) -> None:
    result = letters.run("list")
    assert result.stdout == "0 dead letters\n", result.stderr
    letters.put(b"one")
    letters.put(b"two!", reason=DeadReason.LATE, block=7, source=Source("blocks", 0, 5))
    letters.put(b"", lane="kusama", detail="an escape \x1b[2J in it")
    first, second, third = letters.json("list")
    assert first == {
        "place": "0/0", "timestamp_ms": first["timestamp_ms"], "lane": "polkadot", "reason": "UNDECODABLE", "detail": "it is broken",
        "topic": f"{letters.prefix}candidates", "partition": 0, "offset": 1000, "block": None, "index": None, "bytes": 3,
        "whole_hash": None, "attempt": 1, "replayed": None,
    }  # fmt: skip
    assert (second["reason"], second["block"], second["topic"]) == ("LATE", 7, f"{letters.prefix}blocks")
    assert letters.json("list", "--lane=kusama") == [third]
    assert letters.json("list", "--reason=late") == [second]
    assert letters.json("list", "--limit=2") == [second, third]
    headings, *shown = letters.run("list", "--limit=2").stdout.splitlines()
    assert headings.split()[:4] == ["place", "time", "lane", "reason"]
    assert shown[-1] == "3 dead letters: 1 LATE, 2 UNDECODABLE (the last 2 shown)"
    assert " ".join(shown[0].split()).endswith(f"polkadot LATE {letters.prefix}blocks[0]@5 7 0 1 of 3 it is broken")
    assert r"an escape \x1b[2J in it" in shown[1]


def test_show_prints_the_complete_dead_letter(letters: Letters, tmp_path: Path) -> None:
    letters.put(b"\xc3\x01 not quite \x00")
    shown = letters.run("show", "0", f"--raw={tmp_path / 'raw'}")
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "raw").read_bytes() == b"\xc3\x01 not quite \x00"
    assert "c3 01 20 6e 6f 74 20 71  75 69 74 65 20 00" in shown.stdout
    assert "|.. not quite .|" in shown.stdout
    assert "UNKNOWN_SCHEMA: expected the fingerprint of a schema of validator.router.Candidate" in shown.stdout
    (row,) = letters.json("show", "0/0")
    assert (row["record"], row["history"], row["raw"]) == (None, [], "0x" + b"\xc3\x01 not quite \x00".hex())
    good = letters.candidate()
    letters.put(letters.encoded(good), reason=DeadReason.UNKNOWN_SCHEMA)
    (row,) = letters.json("show", "1")
    assert row["problem"] is None
    assert row["record"] == shown_json("candidates", letters.encoded(good), codec_for())
    letters.put(letters.encoded({**good, "lane": "westend"}), reason=DeadReason.UNKNOWN_LANE)
    (row,) = letters.json("show", "2")
    assert (row["record"]["lane"], row["problem"]) == ("westend", "UNKNOWN_LANE: lane 'westend' is not configured")
    letters.put(bytes(5000))
    assert "... and 2952 more bytes: --raw FILE writes all of them" in letters.run("show", "3").stdout


def test_bad_record_is_dead_then_corrected_replayed_and_executed(letters: Letters, tmp_path: Path) -> None:
    """The complete cycle; the chain is executed from the records on its input topics."""
    records = letters.chain.records
    at = next(number for number, (kind, _) in enumerate(records) if kind == "candidates")
    kind, good = records[at]
    worker = letters.chain.worker
    for number, (topic, record) in enumerate(records):
        letters.send(topic, b"rubbish" if number == at else letters.encoded(record, topic))
    letters.judge_inputs()
    assert worker.lane.executed_block == 0
    (letter,) = letters.json("list")
    assert (letter["reason"], letter["detail"][:35]) == ("UNDECODABLE", "expected Avro single-object encodin")
    (tmp_path / "corrected.json").write_text(json.dumps(good))
    result = letters.run("replay", letter["place"], f"--as={tmp_path / 'corrected.json'}")
    assert result.exit_code == 0, result.output
    letters.judge_inputs()
    assert worker.lane.executed_block == 3
    expected = letters.chain.expected
    assert len(lines(invoke("watch", "verdicts", "--json", letters.chain.option()).stdout)) == len(expected)
    (letter,) = letters.json("list")
    assert letter["replayed"]["repaired"] is True
    assert letters.record_at(letter["replayed"]) == letters.encoded(good, kind)


def test_replayed_record_has_lane_as_key_and_replay_header(letters: Letters) -> None:
    raw = letters.encoded(letters.candidate())
    letters.put(raw, reason=DeadReason.LATE)
    assert (
        letters.run("replay", "0", "--dry-run").stdout
        == f"0/0  would be replayed to {letters.prefix}candidates, attempt 1 of 3\n"
    )
    assert letters.inputs("candidates") == []
    assert letters.run("replay", "0").stdout == f"0/0  replayed as {letters.prefix}candidates[0]@0, attempt 1 of 3\n"
    (message,) = letters.inputs("candidates")
    assert (message.key(), message.value()) == (b"polkadot", raw)
    assert message.headers() == [("dead-letter", b"0/0"), ("attempt", b"1")]
    assert "1 of" not in letters.run("list").stdout
    assert f"{letters.prefix}candidates[0]@0" in letters.run("list").stdout


def test_dry_run_reports_that_a_passed_block_takes_nothing(letters: Letters) -> None:
    """The chain has executed block 3; a record of block 4 can still be taken."""
    letters.chain.judge(letters.chain.records)
    good = letters.candidate()
    letters.put(letters.encoded(good), reason=DeadReason.LATE)
    letters.put(letters.encoded({**good, "block": 4}), reason=DeadReason.LATE)
    passed, later = letters.run("replay", "--all", "--dry-run").stdout.splitlines()[:2]
    assert passed.endswith(
        f"attempt 1 of 3; pointless: it belongs to block {good['block']}, and lane polkadot has already executed block 3"
    )
    assert later.endswith("attempt 1 of 3")
    first, second = letters.json("replay", "--all", "--dry-run")
    assert (first["pointless"][:10], second["pointless"]) == ("it belongs", None)
    assert letters.inputs("candidates") == []


def test_replayed_letter_is_skipped_without_again_and_attempts_are_counted(letters: Letters) -> None:
    letters.put(letters.encoded(letters.candidate()), reason=DeadReason.LATE)
    assert letters.run("replay", "0").exit_code == 0
    skipped = letters.run("replay", "0")
    assert (skipped.exit_code, len(letters.inputs("candidates"))) == (0, 1)
    assert skipped.stdout == (
        f"0/0  skipped: already put back as {letters.prefix}candidates[0]@0 (attempt 1); --again puts it back once more\n"
    )
    assert "attempt 2 of 3" in letters.run("replay", "0", "--again").stdout
    assert "attempt 3 of 3" in letters.run("replay", "0", "--again").stdout
    refused = letters.run("replay", "0", "--again")
    assert (refused.exit_code, len(letters.inputs("candidates"))) == (1, 3)
    assert refused.stderr == (
        "validator: dead letter 0/0  refused: already put back 3 times, and [dead_letters] attempts_max is 3\n"
    )
    (row,) = letters.json("show", "0")
    assert [replay["attempt"] for replay in row["history"]] == [1, 2, 3]


def test_attempts_of_a_returning_record_are_limited(letters: Letters) -> None:
    raw = letters.encoded(letters.candidate())
    place = letters.put(raw, reason=DeadReason.LATE)
    for attempt in (1, 2, 3):
        (entry,) = letters.json("replay", place)
        assert (entry["outcome"], entry["attempt"]) == ("replayed", attempt)
        place = letters.put(
            raw, reason=DeadReason.LATE, source=Source(entry["topic"], entry["partition"], entry["offset"])
        )
    refused = letters.run("replay", place, "--force")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"validator: dead letter {place}  refused: already put back 3 times")
    (row,) = letters.json("show", place)
    assert [(replay["letter"], replay["attempt"]) for replay in row["history"]] == [("0/0", 1), ("0/1", 2), ("0/2", 3)]
    assert len(letters.inputs("candidates")) == 3
    wider = letters.with_attempts_max(4)
    assert "attempt 4 of 4" in invoke("dead-letters", "replay", place, wider).stdout


def test_replay_all_is_one_transaction_and_reports_refusals(letters: Letters) -> None:
    good = letters.candidate()
    for index in range(3):
        letters.put(letters.encoded({**good, "index": index}), reason=DeadReason.LATE)
    letters.put(b"rubbish", reason=DeadReason.LATE)
    letters.put(letters.encoded(good), reason=DeadReason.CONFLICT)
    letters.put(letters.encoded(good), reason=DeadReason.LATE, lane="kusama")
    letters.put(letters.encoded(good), reason=DeadReason.LATE, source=Source("elsewhere", 0, 0))
    result = letters.run("replay", "--all", "--reason=LATE", "--lane=polkadot")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "2 refused, 3 replayed"
    assert "dead letter 0/3  refused: it would be dead on arrival: UNDECODABLE: expected Avro" in result.stderr
    assert "dead letter 0/6  refused: it came from elsewhere, expected one of" in result.stderr
    assert [message.value() for message in letters.inputs("candidates")] == [
        letters.encoded({**good, "index": index}) for index in range(3)
    ]
    assert [row["replayed"] is not None for row in letters.json("list")] == [True] * 3 + [False] * 4
    nothing = letters.run("replay", "--all", "--lane=nobody")
    assert (nothing.exit_code, nothing.stdout) == (0, "no dead letter matches\n")
    assert letters.run("replay", "--all", "--lane=polkadot", "--reason=CONFLICT").exit_code == 0
    again = letters.run("replay", "--all", "--reason=CONFLICT")
    assert (again.exit_code, "already put back" in again.stdout) == (0, True)
    forced = letters.run("replay", "3", "--force")
    assert (forced.exit_code, letters.inputs("candidates")[-1].value()) == (0, b"rubbish")


def test_second_replay_fences_the_first(letters: Letters) -> None:
    task = Task(DeadLetterOffset(0, 0), f"{letters.prefix}candidates", b"polkadot", b"raw", 1, repaired=False)
    kafka = letters.kafka
    with Replayer(kafka, letters.prefix) as first, Replayer(kafka, letters.prefix) as second:
        with pytest.raises(
            UserError, match="another `validator dead-letters replay` was started and has ended this one"
        ):
            first.send([task])
        assert second.send([task])[0].attempt == 1
    assert len(letters.inputs("candidates")) == 1
    assert len(letters.inputs("dead-letter-replays")) == 1


def test_record_refused_by_kafka_aborts_the_transaction(letters: Letters) -> None:
    def task(offset: int, raw: bytes) -> Task:
        return Task(DeadLetterOffset(0, offset), f"{letters.prefix}candidates", b"polkadot", raw, 1, repaired=False)

    tasks = [task(0, b"small"), task(1, random.Random(1).randbytes((8 << 20) + 1000))]
    text = r"nothing was put back: dead letter 0/1: .*candidates: "
    with Replayer(letters.kafka, letters.prefix) as replayer, pytest.raises(UserError, match=text):
        replayer.send(tasks)
    assert letters.inputs("candidates") == []
    assert letters.inputs("dead-letter-replays") == []


def test_replay_continues_after_its_output_is_closed(letters: Letters) -> None:
    for _ in range(3):
        letters.put(letters.encoded(letters.candidate()), reason=DeadReason.LATE)
    command = [sys.executable, "-m", "validator", "dead-letters", "replay", "--all", letters.chain.option()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert len(letters.inputs("candidates")) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "x"), "PLACE: expected OFFSET or PARTITION/OFFSET, found 'x'"),
        (("show", "1/2/3"), "PLACE: expected OFFSET or PARTITION/OFFSET, found '1/2/3'"),
        (("show", "7"), "no dead letter at 0/7: "),
        (("show", "3/0"), "no dead letter at 3/0: "),
        (("replay", "0", "9"), "no dead letter at 0/9: "),
        (("replay",), "expected PLACE or --all, found neither"),
        (("replay", "0", "--all"), "expected PLACE or --all, found both"),
        (("replay", "0", "--lane=polkadot"), "--lane and --reason need --all, found them with PLACE"),
        (("replay", "--all", "--as=x"), "--as: expected exactly one PLACE, found --all"),
        (("replay", "0", "1", "--as=x"), "--as: expected exactly one PLACE, found 2"),
        (("replay", "0", "--as=/nowhere"), "/nowhere: cannot be read: No such file or directory"),
        (("list", "--reason=LAET"), "--reason: expected UNDECODABLE, UNKNOWN_SCHEMA, "),
    ],
)  # fmt: skip
def test_wrong_arguments_are_one_error_line(shared: Letters, arguments: tuple[str, ...], words: str) -> None:
    result = shared.run(*arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert result.stderr.startswith(f"validator: {words}")


@pytest.mark.parametrize("content", ["{", "[]", '{"lane": "polkadot"}', "9" * 5000])
def test_invalid_corrected_record_is_reported_with_its_file(shared: Letters, tmp_path: Path, content: str) -> None:
    (tmp_path / "corrected.json").write_text(content)
    result = shared.run("replay", "0", f"--as={tmp_path / 'corrected.json'}")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert result.stderr.startswith(f"validator: {tmp_path / 'corrected.json'}:")


@pytest.mark.parametrize("command", ["list", "show", "replay"])
def test_unreachable_broker_is_reported(shared: Letters, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "127.0.0.1:1")
    monkeypatch.setattr("validator.kafka.retry.ANSWER_S_MAX", 1.0)
    result = shared.run(*([command] if command == "list" else [command, "0"]))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert result.stderr.startswith("validator: no records can be read at 127.0.0.1:1: ")


@pytest.mark.parametrize("missing", ["dead-letters", "dead-letter-replays", "candidates"])
def test_missing_topic_is_reported(shared: Letters, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setenv("VALIDATOR_TOPICS__PREFIX", f"without-{missing}.")
    others = tuple(topic for topic in TOPICS if topic.name != missing)
    create_topics(shared.kafka, prefix=f"without-{missing}.", topics=others)
    result = shared.run("replay", "--all")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
    assert f"without-{missing}.{missing}" in result.stderr
    assert "validator topics create" in result.stderr


def test_foreign_record_is_reported_and_others_are_listed(letters: Letters) -> None:
    letters.send("dead-letters", b"hello")
    letters.count += 1
    letters.put(b"raw")
    result = letters.run("list", "--json")
    assert [row["place"] for row in lines(result.stdout)] == ["0/1"]
    assert result.stderr.startswith(
        "validator: dead-letters 0/0: dead-letters: expected a record of validator.DeadLetter"
    )
    assert letters.run("show", "0").exit_code == 2


PREFIX = "letter-places."


@pytest.mark.broker
def test_end_of_a_transaction_is_no_dead_letter_and_the_nearest_ones_are_named(
    kafka: dict[str, object], tmp_path: Path
) -> None:
    create_topics(kafka, prefix=PREFIX)
    path = tmp_path / "validator.toml"
    path.write_text(to_toml({"kafka": kafka, "topics": {"prefix": PREFIX}}))

    def said(place: str) -> str:
        result = invoke("dead-letters", "show", place, f"--config={path}")
        assert result.exit_code == 2
        return result.stderr.removeprefix(f"validator: no dead letter at {place}: ").strip()

    assert said("0/0") == f"there is none near it in partition 0 of {PREFIX}dead-letters"
    source = Source(f"{PREFIX}candidates", 0, 0)
    letter = encode_dead_letter(DeadLetter("polkadot", DeadReason.UNDECODABLE, "broken", source, b"raw", None, None))
    in_transactions(kafka, [(PREFIX + letter.topic, letter.key, letter.value)] * 2)
    listed = lines(invoke("dead-letters", "list", "--json", f"--config={path}").stdout)
    assert [row["place"] for row in listed] == ["0/0", "0/2"]
    assert said("0/1") == "the nearest are 0/0 and 0/2"
    assert said("0/3") == said("0/99") == "the nearest is 0/2"
    assert said("7/0") == f"{PREFIX}dead-letters has 1 partition"


__all__ = ["letters"]


def test_oversized_record_is_fetched_from_where_it_was_read(
    letters: Letters,
    tmp_path: Path,
) -> None:
    raw = bytes(10 << 20)  # a broker checks the size of the compressed batch, and takes it
    topic = letters.prefix + "candidates"
    placed: list[Source] = []
    large = {"message.max.bytes": 16 << 20, "compression.type": "zstd"}
    producer = Producer(producer_config(letters.kafka) | large)

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        placed.append(Source(topic, message.partition() or 0, message.offset() or 0))

    producer.produce(topic, raw, b"polkadot", on_delivery=delivered)
    assert producer.flush(60) == 0
    place = letters.put(raw, reason=DeadReason.LIMIT, source=placed[0])
    other = letters.put(bytes(9 << 20), reason=DeadReason.LIMIT, source=placed[0])
    gone = letters.put(raw, reason=DeadReason.LIMIT, source=placed[0]._replace(offset=placed[0].offset + 1000))

    digest = f"0x{blake2b(raw, digest_size=32).hexdigest()}"
    file = tmp_path / "raw"
    (shown,) = lines(letters.run("show", place, "--json", "--raw", str(file)).stdout)
    assert (shown["bytes"], shown["whole_hash"], shown["raw"]) == (len(raw), digest, f"0x{bytes(8192).hex()}")
    assert file.read_bytes() == raw
    text = letters.run("show", place).stdout
    assert f"{len(raw)}: too many to keep, so here are the first and last 4096; BLAKE2b-256 of all is {digest}" in text

    refused = letters.run("replay", place)
    assert refused.exit_code == 1
    assert f"LIMIT: expected at most 8388608 bytes, found {len(raw)}" in refused.stderr
    replaced = letters.run("replay", other, "--force")
    assert "holds another record: expected 9437184 bytes" in replaced.stderr
    assert "is gone" in letters.run("replay", gone).stderr
