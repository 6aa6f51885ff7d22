# SPDX-License-Identifier: Apache-2.0
"""`validator compare`: records on Kafka and in files against the model's expectations."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.follower import Follower, follower, invoke, lines
from tests.sending import send
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object]) -> Follower:
    followed = follower(tmp_path_factory.mktemp("compare"), kafka, "compare.")
    followed.judge(followed.records)
    return followed


def write(path: Path, records: Iterable[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_verdicts_on_kafka_agree_with_the_model(chain: Follower, tmp_path: Path) -> None:
    expected = write(tmp_path / "expected.jsonl", chain.expected)
    result = invoke("compare", "verdicts", expected, chain.option())
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{len(chain.expected)} verdicts expected: {len(chain.expected)} agree\n"


def test_output_of_watch_agrees_with_the_topic_and_with_the_model(chain: Follower, tmp_path: Path) -> None:
    """It may itself be what is expected, then every member counts."""
    watched = invoke("watch", "verdicts", "--json", chain.option()).stdout
    expected = write(tmp_path / "expected.jsonl", chain.expected)
    found = write(tmp_path / "found.jsonl", lines(watched))
    assert invoke("compare", "verdicts", expected, "--found", found).exit_code == 0
    assert invoke("compare", "verdicts", found, chain.option()).exit_code == 0
    piped = invoke("compare", "verdicts", expected, "--found", "-", stdin=watched.encode())
    assert piped.exit_code == 0, piped.output
    dispatches = write(
        tmp_path / "dispatches.jsonl", lines(invoke("watch", "dispatches", "--json", chain.option()).stdout)
    )
    result = invoke("compare", "dispatches", dispatches, chain.option(), "--json")
    assert result.exit_code == 0, result.output
    assert lines(result.stdout)[-1]["agreed"] > 0


def test_each_difference_is_a_line_and_the_exit_code_is_1(chain: Follower, tmp_path: Path) -> None:
    first, second, *others = chain.expected
    changed = {**first, "ok": not first["ok"]}
    late = {**second, "block": 99}
    expected = write(tmp_path / "expected.jsonl", [changed, late, *others])
    result = invoke("compare", "verdicts", expected, chain.option(), "--json")
    assert result.exit_code == 1
    *differences, summary = lines(result.stdout)
    assert [(each["block"], each["difference"]) for each in differences] == [
        (1, "differs"), (1, "unexpected"), (99, "missing"),
    ]  # fmt: skip
    assert (differences[0]["expected"]["ok"], differences[0]["found"]["ok"]) == (changed["ok"], first["ok"])
    assert summary["agreed"] == len(others)
    assert not summary["ok"]
    plain = invoke("compare", "verdicts", expected, chain.option())
    assert plain.exit_code == 1
    assert plain.stdout.splitlines()[-1] == (
        f"{len(chain.expected)} verdicts expected: {len(others)} agree, 1 differ, 1 missing, 1 not expected"
    )
    assert plain.stdout.splitlines()[2] == f'polkadot/99/request/{second["index"]}  missing  expected {{"ok": true}}'
    limited = invoke("compare", "verdicts", expected, chain.option(), "--limit", "1")
    assert len(limited.stdout.splitlines()) == 2
    assert limited.stderr == "validator: 2 more differences; --limit 0 prints all\n"


def test_wait_takes_records_that_arrive_later(tmp_path: Path, kafka: dict[str, object]) -> None:
    later = follower(tmp_path, kafka, f"later-{tmp_path.name}.", blocks=2)
    expected = write(tmp_path / "expected.jsonl", later.expected)
    assert invoke("compare", "verdicts", expected, later.option()).exit_code == 1
    job = threading.Thread(target=later.judge, args=(later.records,))
    job.start()
    result = invoke("compare", "verdicts", expected, "--wait", "60", later.option())
    job.join()
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "expected.jsonl: expected at least one record, found none"),
        ("{", "expected.jsonl, line 1:1:2: not JSON"),
        ("[]", "expected.jsonl, line 1: expected an object, found []"),
        ('{"lane": "x"}', "expected.jsonl, line 1: key 'block' is missing"),
        ('{"lane": 1}', "expected.jsonl, line 1.lane: expected a string, found 1"),
        (
            '\n{"lane": "x", "block": -1}',
            "expected.jsonl, line 2.block: expected an integer from 0 to 4294967295, found -1",
        ),
        (
            '{"lane": "x", "block": 1, "kind": "request", "index": 0}\n' * 2,
            "expected.jsonl, line 2: expected one record for each place, found a second one at x/1/request/0",
        ),
    ],
)
def test_bad_expectation_is_one_line(line: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("expected.jsonl").write_text(line, encoding="utf-8")
    result = invoke("compare", "verdicts", "expected.jsonl", "--found", "expected.jsonl")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"validator: {words}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("topic", "member", "words"),
    [
        ("dispatches", '"ok": true', "expected dispatches, found a record of verdicts: it has the member 'ok'"),
        ("verdicts", '"outcome": "ok"', "expected verdicts, found a record of dispatches: it has the member 'outcome'"),
    ],
)
def test_file_of_the_other_topic_is_named(topic: str, member: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "expected.jsonl"
    path.write_text(f'{{"lane": "x", "block": 1, "index": 0, {member}}}\n' * 2, encoding="utf-8")
    result = invoke("compare", topic, str(path))
    assert (result.exit_code, result.stderr) == (2, f"validator: {path}, line 1: {words}\n")


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", [{"lane": "x", "block": 1, "kind": "request", "index": 0}])
    for arguments, words in (
        (("verdict", good), "TOPIC: expected verdicts or dispatches, found 'verdict'; did you mean 'verdicts'?"),
        (("verdicts", good, "--found", good, "--wait", "1"), "expected --found or --wait, found both"),
        (("verdicts", str(tmp_path / "none")), f"{tmp_path / 'none'}: cannot be read: No such file or directory"),
        (("verdicts", good, "--found", str(tmp_path)), f"{tmp_path}: cannot be read: Is a directory"),
    ):
        result = invoke("compare", *arguments)
        assert (result.exit_code, result.stderr) == (2, f"validator: {words}\n")


def test_foreign_record_is_reported_and_the_others_are_compared(tmp_path: Path, kafka: dict[str, object]) -> None:
    path = tmp_path / "validator.toml"
    prefix = f"foreign-{tmp_path.name}."
    path.write_text(to_toml({"kafka": kafka, "topics": {"prefix": prefix}}), encoding="utf-8")
    create_topics(kafka, prefix=prefix)
    send(kafka, prefix, [("verdicts", b"x", b"foreign")])
    good = write(tmp_path / "good.jsonl", [{"lane": "x", "block": 1, "kind": "request", "index": 0}])
    result = invoke("compare", "verdicts", good, f"--config={path}")
    assert result.exit_code == 1
    assert result.stderr.startswith("validator: verdicts[0]@0: ")
    assert result.stdout.splitlines()[-1] == "1 verdicts expected: 0 agree, 1 missing"
