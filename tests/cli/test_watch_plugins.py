# SPDX-License-Identifier: Apache-2.0
"""`validator watch` lists and shows the topics that installed plugins declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.follower import invoke, lines
from tests.sending import send
from validator.cli.watch import watchable, watched
from validator.codec.dry_runs import DryRunAnswer, DryRunRequest, encode_answer, encode_request
from validator.codec.json_form import encode_json
from validator.config import Config
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics
from validator.topics import DAY_MS, Topic
from validator.transports.runner import plugin_topics

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
    row = dict(zip(shown.columns, shown.row(shown.decode(value_of())), strict=True))
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
    record = shown.decode(encode_answer(answer))
    assert dict(zip(shown.columns, shown.row(record), strict=True)) == {
        "lane": "polkadot", "correlation": "0x0102", "partition": "0", "offset": "7", "executed block": "", "complete": "no",
        "refused": "kind: expected candidates",
    }  # fmt: skip
    assert record["verdicts"] == []
    asked = watched("dry-run-requests", Config())
    request = DryRunRequest("polkadot", b"a", "candidates", "{}")
    assert asked.decode(encode_request(request)) == {**request._asdict(), "correlation": "0x61"}


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
