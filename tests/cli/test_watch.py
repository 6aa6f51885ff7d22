# SPDX-License-Identifier: Apache-2.0
"""`validator watch` shows the records of a topic, also of topics that installed plugins declare."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from tests.sending import in_transactions, send
from validator.cli import progress, watch
from validator.cli.rows import COLUMNS, ROWS, why
from validator.cli.watch import watchable, watched
from validator.codec.dry_runs import DryRunAnswer, DryRunRequest, encode_answer, encode_request
from validator.codec.encode import Encoder
from validator.codec.json_form import encode_json, to_json
from validator.config import Config
from validator.config.toml import to_toml
from validator.core.outcomes import IngressEvent, IngressEventKind
from validator.kafka.process import start_time
from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics
from validator.lanes.configured import job_directory
from validator.plugin.rule_pages import anchor
from validator.topics import DAY_MS, Topic
from validator.transports.runner import plugin_topics

if TYPE_CHECKING:
    from pathlib import Path

    from validator_simulators.demo.comparison import Json


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    followed = follower(tmp_path_factory.mktemp("watch"), kafka, "watch.")
    followed.judge(followed.records)
    return followed


def test_verdicts_match_the_model(chain: Follower) -> None:
    result = invoke("watch", "verdicts", "--json", chain.option())
    assert result.exit_code == 0, result.output

    def essence(verdict: Json) -> tuple[object, ...]:
        kind = verdict["error"]["kind"] if "error" in verdict else None
        return verdict["lane"], verdict["block"], verdict["kind"], verdict["index"], verdict["ok"], kind

    assert sorted(map(essence, lines(result.stdout)), key=str) == sorted(map(essence, chain.expected), key=str)


def test_para_without_records_is_said(chain: Follower) -> None:
    result = invoke("watch", "verdicts", "--para=9999", chain.option())
    assert result.exit_code == 0
    assert re.search(r"validator: verdicts: no record of para 9999 among the \d+ read", result.stderr), result.stderr
    result = invoke("watch", "verdicts", "--para=9999", "--count=1", "--timeout=1", chain.option())
    assert result.exit_code == 1
    assert "0 of 1 records: no record of para 9999 among the" in result.stderr


def test_reject_only_shows_rejections(chain: Follower) -> None:
    shown = lines(invoke("watch", "verdicts", "--json", "--reject-only", chain.option()).stdout)
    assert len(shown) == sum(not each["ok"] for each in chain.expected) > 0
    assert not any(verdict["ok"] for verdict in shown)


def test_error_option_shows_a_kind_or_all_kinds_below_it(chain: Follower) -> None:
    rejected = lines(invoke("watch", "verdicts", "--json", "--reject-only", chain.option()).stdout)
    kind = next(each["error"]["kind"] for each in rejected if "/" in each["error"]["kind"])
    group = kind.partition("/")[0]
    for wanted, selects in ((kind, kind.__eq__), (group, lambda found: found.startswith(f"{group}/"))):
        shown = lines(invoke("watch", "verdicts", "--json", f"--error={wanted}", chain.option()).stdout)
        assert shown == [each for each in rejected if selects(each["error"]["kind"])]
    result = invoke("watch", "receipts", f"--error={kind}", chain.option())
    assert (result.exit_code, result.stderr) == (
        2,
        "validator: --error needs the topic verdicts, found it with receipts\n",
    )


def test_rejection_in_json_names_its_rule_after_the_clause(chain: Follower) -> None:
    shown = lines(invoke("watch", "verdicts", "--json", chain.option()).stdout)
    rejected = [verdict for verdict in shown if not verdict["ok"]]
    assert rejected
    for verdict in rejected:
        kind = verdict["error"]["kind"]
        assert verdict["error"]["rule"] == f"docs/rules/router.md#{anchor(f'error {kind}')}"
        assert list(verdict["error"])[-2:] == ["clause", "rule"]
    assert not any("error" in verdict for verdict in shown if verdict["ok"])


def test_verdict_on_the_topic_names_no_rule(chain: Follower) -> None:
    with TopicReader(chain.config.kafka, chain.config.topics.prefix, ["verdicts"]) as reader:
        records = []
        while not reader.at_end:
            records += [to_json("verdicts", read.value) for read in reader.poll(0.2)]
    assert [record for record in records if not record["ok"]]
    assert not any("rule" in record for record in records)


def test_para_option_shows_one_para(chain: Follower) -> None:
    everything = lines(invoke("watch", "verdicts", "--json", chain.option()).stdout)
    para = everything[0]["para_id"]
    shown = lines(invoke("watch", "verdicts", "--json", f"--para={para}", chain.option()).stdout)
    assert shown == [verdict for verdict in everything if verdict["para_id"] == para]
    events = lines(invoke("watch", "channel-events", "--json", f"--para={para}", chain.option()).stdout)
    assert events
    assert all(para in (event["sender"], event["recipient"]) for event in events)


def test_lane_option_shows_one_lane(chain: Follower) -> None:
    assert len(lines(invoke("watch", "receipts", "--json", "--lane=polkadot", chain.option()).stdout)) == 12
    assert lines(invoke("watch", "receipts", "--json", "--lane=kusama", chain.option()).stdout) == []


def test_tail_option_shows_the_last_records(chain: Follower) -> None:
    shown = lines(invoke("watch", "receipts", "--json", "--tail=3", chain.option()).stdout)
    assert [receipt["block"] for receipt in shown] == [10, 11, 12]


def test_tail_counts_records_and_no_ends_of_transactions(chain: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "watch-tail."
    create_topics(chain.config.kafka, prefix=prefix)
    with TopicReader(chain.config.kafka, chain.config.topics.prefix, ["receipts"]) as reader:
        receipts = [each for each in reader.read_to_end() if each.partition == 0][:12]
    in_transactions(chain.config.kafka, [(f"{prefix}receipts", each.key, each.value) for each in receipts])
    monkeypatch.setenv("VALIDATOR_TOPICS__PREFIX", prefix)
    monkeypatch.setattr(watch, "FURTHER_OFFSETS", 1)  # so that it looks further back

    def shown(*arguments: str) -> list[int]:
        return [
            each["block"] for each in lines(invoke("watch", "receipts", "--json", *arguments, chain.option()).stdout)
        ]

    assert shown("--tail=1") == [12]
    assert shown("--tail=5") == [8, 9, 10, 11, 12]
    assert shown("--tail=5", "--count=2") == [8, 9]
    assert shown("--tail=99") == list(range(1, 13))
    assert shown("--tail=0") == []


def test_tail_counts_the_records_that_are_shown(chain: Follower) -> None:
    rejected = lines(invoke("watch", "verdicts", "--json", "--reject-only", chain.option()).stdout)
    assert len(rejected) > 2
    assert (
        lines(invoke("watch", "verdicts", "--json", "--reject-only", "--tail=2", chain.option()).stdout)
        == rejected[-2:]
    )


def test_too_few_records_end_with_why(tmp_path: Path, kafka: dict[str, object]) -> None:
    followed = follower(tmp_path, kafka, "watch-few.")
    arguments = ("watch", "verdicts", "--count=4", "--timeout=0.5", "--json", followed.option())
    silent = invoke(*arguments)
    assert silent.exit_code == 1
    assert silent.stderr == (
        "validator: verdicts: after 0.5 s 0 of 4 records; lane polkadot: no record has been sent\n"
    )
    kind, block = next((kind, record) for kind, record in followed.records if kind == "blocks")
    followed.judge([(kind, {**block, "candidates": 2})])
    waiting = invoke(*arguments)
    assert waiting.exit_code == 1
    assert (
        "0 of 4 records; lane polkadot has executed block 0, waiting for 14 of 14 requests of block 1; 1 record waits"
        in waiting.stderr
    )


def test_pipe_gets_why_a_command_waits(
    tmp_path: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follower(tmp_path, kafka, "watch-why.")
    monkeypatch.setattr(progress, "WHY_AFTER_S", 0.1)
    shown = invoke("watch", "receipts", "--count=1", "--timeout=3", followed.option())
    assert shown.stderr.splitlines()[0].startswith(
        "validator: waiting for receipts: 0 of 1 records; lane polkadot: no record has been sent"
    )


def test_records_that_no_job_reads_are_not_waited_for(
    tmp_path: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follower(tmp_path, kafka, "watch-unread.", blocks=4)
    followed.judge(followed.records)
    send(kafka, "watch-unread.", [("blocks", b"polkadot", b"1"), ("candidates", b"polkadot", b"2")])
    unread = "lane polkadot has executed block 4; 2 records are unread: "
    none = f"{unread}no job has read them, and none runs here (`validator up` or `validator run`)"
    shown = invoke("watch", "receipts", "--count=9", "--timeout=0.5", followed.option())
    assert shown.stderr == f"validator: receipts: after 0.5 s 4 of 9 records; {none}\n"
    (row,) = lines(invoke("lanes", "--json", followed.option()).stdout)
    assert none.endswith(row["waiting_for"])
    assert row["waiting_for"] == row["unread"]
    assert invoke("lanes", followed.option()).stdout.startswith(f"polkadot  executed block 4; {row['unread']}\n")
    monkeypatch.setattr(progress, "WHY_AGAIN_S", 0.1)
    shown = invoke("watch", "receipts", "--follow", "--timeout=15", followed.option())
    assert shown.stderr == f"validator: waiting for receipts: {none}\n", "once in a silence"
    health = invoke("health", followed.option())
    assert (health.exit_code, health.stdout.partition(",")[0]) == (1, "no job runs here")
    pid, started = os.getpid(), start_time(os.getpid())
    record = {"pid": pid, "started": started, "starter": pid, "starter_started": started}
    directory = job_directory(followed.config)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "job.json").write_text(json.dumps(record), encoding="utf-8")
    shown = invoke("watch", "receipts", "--count=9", "--timeout=0.5", followed.option())
    assert shown.stderr.endswith(f"{unread}the job has not read them yet\n")
    health = invoke("health", followed.option())
    assert (health.exit_code, health.stdout.partition(";")[0]) == (0, f"a job runs here (process {pid})")


def test_lane_that_is_not_configured_is_named(chain: Follower) -> None:
    result = invoke("watch", "verdicts", "--json", "--lane=polkadt", chain.option())
    line = "validator: --lane: no chain 'polkadt' is configured; did you mean 'polkadot'?\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", line)
    assert invoke("watch", "verdicts", "--json", "--lane=polkadot", chain.option()).stderr == ""


@pytest.mark.parametrize("topic", ["verdicts", "dispatches", "channel-events", "headroom", "receipts"])
def test_every_topic_has_rows_for_a_person(chain: Follower, topic: str) -> None:
    result = invoke("watch", topic, chain.option())
    assert result.exit_code == 0, result.output
    shown = lines(invoke("watch", topic, "--json", chain.option()).stdout)
    headings, *rows = result.stdout.splitlines()
    assert [name for name in COLUMNS[topic] if name not in headings] == []
    assert len(rows) == len(shown) > 0
    assert "\x1b" not in result.stdout
    for record in shown:
        row = ROWS[topic](record)
        assert len(row) == len(COLUMNS[topic])
        assert all(isinstance(cell, str) for cell in row)


def test_ingress_event_has_a_row_for_a_person() -> None:
    event = IngressEvent(7, 0, IngressEventKind.QUEUED, 2, 1, 7, bytes(range(32)), 11)
    record = to_json("ingress-events", Encoder("polkadot", bytes(32)).ingress_event(event))
    row = dict(zip(COLUMNS["ingress-events"], ROWS["ingress-events"](record), strict=True))
    assert row == {
        "lane": "polkadot", "block": "7", "index": "0", "event": "queued", "channel": "1→2", "sent at": "7", "bytes": "11",
        "root": bytes(range(32)).hex(),
    }  # fmt: skip


def test_dead_letter_is_shown(chain: Follower) -> None:
    kind, record = next(each for each in chain.records if each[0] == "candidates")
    chain.judge([(kind, {**record, "hrmp_watermark": 77})])
    (letter,) = lines(invoke("watch", "dead-letters", "--json", chain.option()).stdout)
    assert letter["reason"] == "CONFLICT"
    headings, *_, row = invoke("watch", "dead-letters", chain.option()).stdout.splitlines()
    assert row[headings.index("reason") :].startswith("CONFLICT  candidates[0]@0")
    assert row[headings.index("detail") :].startswith("candidate 0 of block 1 is taken")


def test_count_waits_for_that_many_records(tmp_path: Path, kafka: dict[str, object]) -> None:
    followed = follower(tmp_path, kafka, "watch-count.")
    command = [sys.executable, "-m", "validator", "watch", "receipts", "--count=3", "--json", followed.option()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        followed.judge(followed.records)
        shown = lines(process.communicate(timeout=60)[0])
    assert [record["block"] for record in shown] == [1, 2, 3]
    assert process.returncode == 0
    assert lines(invoke("watch", "receipts", "--count=3", "--tail=3", "--json", followed.option()).stdout)


def test_follow_shows_new_records_and_ends_cleanly_on_ctrl_c(chain: Follower) -> None:
    command = [sys.executable, "-m", "validator", "watch", "receipts", "--follow", "--json", chain.option()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        before = [json.loads(process.stdout.readline())["block"] for _ in range(12)]
        assert before == list(range(1, 13))
        records = {"lane": "polkadot", "block": 13, "candidates": 0, "requests": 0, "downward": 0}
        chain.judge([("blocks", records)])
        assert json.loads(process.stdout.readline())["block"] == 13
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_follow_ends_after_its_output_is_closed(chain: Follower) -> None:
    """As after `| head -n 1`: the last block has one receipt, and no other will arrive."""
    command = [sys.executable, "-m", "validator", "watch", "receipts", "--follow", "--json", "--tail=1", chain.option()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["block"] >= chain.expected[-1]["block"]
        process.stdout.close()
        assert process.wait(300) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("options", [("--count=99",), ("--count=12", "--json"), ("--count=99", "--timeout=60")])
def test_count_ends_after_its_output_is_closed(chain: Follower, options: tuple[str, ...]) -> None:
    """As with `| head -n 0`: it waits for no more records, and says nothing of those that are lacking."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "validator", "watch", "receipts", *options, chain.option()]
    with os.fdopen(writer) as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_foreign_record_is_reported_and_others_are_shown(
    tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]
) -> None:
    followed = follower(tmp_path_factory.mktemp("strange"), kafka, "strange.", blocks=1)
    send(followed.config.kafka, "strange.", [("receipts", b"polkadot", b"hello")])
    followed.judge(followed.records)
    result = invoke("watch", "receipts", "--json", followed.option())
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "validator: receipts[0]@0: receipts: expected a record of validator.Receipt, found 5 bytes"
    )
    assert [receipt["block"] for receipt in lines(result.stdout)] == [1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("verdict",),
            f"TOPIC: expected {', '.join((*ROWS, *plugin_topics(Config())))}, found 'verdict'; did you",
        ),
        (("receipts", "--reject-only"), "--reject-only needs the topic verdicts, found it with receipts"),
        (("receipts", "--para=5"), "--para: receipts do not belong to a para"),
        (
            ("dead-letters", "--para=5"),
            "--para: dead-letters do not belong to a para; --lane LANE shows those of one lane",
        ),
        (("verdicts", "--from-beginning", "--tail=5"), "expected --from-beginning or --tail, found both"),
    ],
)
def test_wrong_arguments_are_reported(arguments: tuple[str, ...], words: str) -> None:
    result = invoke("watch", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"validator: {words}")


def test_unreachable_broker_is_reported(chain: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "127.0.0.1:1")
    monkeypatch.setattr("validator.kafka.retry.ANSWER_S_MAX", 1.0)
    result = invoke("watch", "verdicts", chain.option())
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: no records can be read at 127.0.0.1:1: ")


def test_why_names_the_numbers() -> None:
    error = {"kind": "OutboundHrmp/NoSuchChannel", "idx": 0, "channel_id": {"sender": 5, "recipient": 6}}
    assert why(error) == "OutboundHrmp/NoSuchChannel  idx 0, channel_id 5→6"
    assert why({"kind": "OpenHrmpChannelToSelf"}) == "OpenHrmpChannelToSelf"


NAME = "relay-chain.disagreements"
DISAGREEMENT: dict[str, Any] = {
    "lane": "polkadot",
    "block": 7,
    "block_hash": "ab" * 32,
    "index": 0,
    "kind": "DownwardHead",
    "para_id": 2000,
    "recipient": None,
    "lane_says": "head\n1",
    "chain_says": "head 2",
    "reason": "ours",
    "follows_block": None,
}


def value_of(**changes: Any) -> bytes:
    return encode_json(plugin_topics(Config())[NAME].form.format.schema, DISAGREEMENT | changes)


def test_every_topic_of_transports_and_jobs_is_listed() -> None:
    there = {each["topic"]: each["owner"] for each in watchable(Config())}
    assert there["verdicts"] == "job"
    assert there[NAME] == there["relay-chain.agreement"] == "transport relay-chain"
    assert there["xcmp.queues"] == "job xcmp-bodies"
    assert there["dry-run-requests"] == there["dry-run-answers"] == "transport dry-run"
    assert [each["topic"] for each in lines(invoke("watch", "--json").stdout)] == list(there)
    assert NAME in invoke("watch").stdout


def test_rows_have_the_columns_that_the_plugin_names_and_no_line_ends() -> None:
    shown = watched(NAME, Config())
    row = dict(zip(shown.columns, shown.row(shown.topic.decode(value_of())), strict=True))
    assert row == {
        "lane": "polkadot", "block": "7", "kind": "DownwardHead", "para id": "2000", "recipient": "", "lane says": "head\\n1",
        "chain says": "head 2", "reason": "ours", "follows block": "",
    }  # fmt: skip
    assert shown.numbers == {"block", "para id", "recipient", "follows block"}


def test_rows_of_nested_records_and_hashes_are_short_on_a_terminal_alone() -> None:
    shown = watched("xcmp.queues", Config())
    assert shown.columns[:2] == ("lane", "recipient")
    facts = watched("relay-chain.facts", Config())
    record = {"lane": "a", "block": 1, "session_ends": False, "backed": [2000] * 90, "included": [], "timed_out": []}
    whole = facts.row(record)
    lane, block, ends, backed, included, _ = facts.short(whole)
    assert (lane, block, ends, included) == ("a", "1", "no", "[]")
    assert len(backed) == 81
    assert backed.endswith("…")
    assert whole[3].count("2000") == 90
    assert facts.short(("0x" + "ab" * 32,)) == ("0xabababababababab…",)


def test_answers_of_dry_runs_have_a_row_and_all_their_fields_in_json() -> None:
    shown = watched("dry-run-answers", Config())
    answer = DryRunAnswer(b"\x01\x02", 0, 7, "polkadot", refused="kind: expected candidates")
    record = shown.topic.decode(encode_answer(answer))
    assert dict(zip(shown.columns, shown.row(record), strict=True)) == {
        "lane": "polkadot", "correlation": "0x0102", "partition": "0", "offset": "7", "executed block": "", "complete": "no",
        "refused": "kind: expected candidates",
    }  # fmt: skip
    assert record["verdicts"] == []
    asked = watched("dry-run-requests", Config())
    request = DryRunRequest("polkadot", b"a", "candidates", "{}")
    assert asked.topic.decode(encode_request(request)) == {**request._asdict(), "correlation": "0x61"}


def test_topic_that_nobody_has_is_refused_with_a_suggestion() -> None:
    result = invoke("watch", "relay-chain.disagreement")
    assert result.exit_code == 2
    assert "did you mean 'relay-chain.disagreements'?" in result.stderr


@pytest.fixture
def option(tmp_path: Path, kafka: dict[str, object]) -> str:
    path = tmp_path / "validator.toml"
    path.write_text(to_toml({"kafka": kafka, "topics": {"prefix": f"{tmp_path.name}."}}))
    return f"--config={path}"


def test_topic_that_does_not_exist_yet_names_who_creates_it(option: str) -> None:
    result = invoke("watch", NAME, option)
    assert result.exit_code == 2
    assert "start the transport relay-chain, which creates it" in result.stderr


def test_records_are_shown_and_filtered(option: str, tmp_path: Path, kafka: dict[str, object]) -> None:
    prefix = f"{tmp_path.name}."
    create_topics(kafka, prefix=prefix, topics=[Topic(NAME, None, "delete", DAY_MS, "differences")])
    send(kafka, prefix, [(NAME, b"polkadot", value_of(index=at, para_id=para)) for at, para in enumerate((2000, 2004))])
    (record,) = lines(invoke("watch", NAME, "--json", "--para=2004", option).stdout)
    assert record == DISAGREEMENT | {"block_hash": "0x" + "ab" * 32, "index": 1, "para_id": 2004}
    assert lines(invoke("watch", NAME, "--json", "--lane=kusama", option).stdout) == []
    headings, *rows = invoke("watch", NAME, option).stdout.splitlines()
    assert headings.split()[:3] == ["lane", "block", "kind"]
    assert [row.split()[3] for row in rows] == ["2000", "2004"]
