# SPDX-License-Identifier: Apache-2.0
"""The page about bodies names commands, keys, topics, kinds and limits that exist, with the defaults that hold."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command
from validator_xcmp_bodies import limits
from validator_xcmp_bodies.cli import app
from validator_xcmp_bodies.job import _RANGES, BodiesJob, Options
from validator_xcmp_bodies.outcomes import KINDS, Settings
from validator_xcmp_bodies.parts import measure

from validator.cli.common import load_job_config
from validator.job.installed import configured_job

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "xcmp-bodies.md").read_text(encoding="utf-8")
NETWORKING = (ROOT / "docs" / "xcmp-networking.md").read_text(encoding="utf-8")
README = (ROOT / "plugins" / "xcmp-bodies" / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^(?:\$|   ) (validator messages [^#>\n]*)", PAGE + README + NETWORKING, re.MULTILINE)


def first_cells(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_every_command_is_shown() -> None:
    assert {line.split()[2] for line in LINES} == set(get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", LINES)
def test_a_command_on_the_page_is_accepted(line: str) -> None:
    _, _, name, *arguments = line.split()
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    with command.make_context(name, list(arguments)) as context:
        assert context.params


def test_topics_on_the_page_are_those_of_the_job() -> None:
    job = BodiesJob(Options(("polkadot",), {"polkadot": Settings()}))
    assert {topic.name for topic in job.topics} <= set(first_cells(PAGE))


def test_kinds_on_the_page_are_those_of_the_code() -> None:
    assert {cell for cell in first_cells(PAGE) if cell.startswith("Body/")} == set(KINDS)


def test_keys_in_the_readme_have_the_defaults_that_hold() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", README, re.MULTILINE))
    assert set(rows) == {"chains", *_RANGES}
    defaults = {field.name: str(field.default) for field in fields(Settings) if field.name != "capacity_messages"}
    assert {name: rows[name] for name in defaults} == defaults
    assert rows["capacity_messages"].endswith(f"else {limits.CAPACITY_MESSAGES}")
    assert rows["retention_hours"] == str(limits.RETENTION_HOURS_MIN)
    assert f"{limits.PAYLOADS_MAX:,}" in PAGE


def test_keys_in_the_advice_have_the_defaults_that_hold() -> None:
    section = NETWORKING.partition("## How to run bodies on Kafka")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([\d, ]+) \|", section, re.MULTILINE)
    named = [
        (key, value) for keys, values in rows for key, value in zip(keys.split(", "), values.split(", "), strict=True)
    ]
    readme = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", README, re.MULTILINE)) | {
        "retention_hours": str(limits.RETENTION_HOURS_MIN)
    }
    assert {key.strip("`"): value for key, value in named}.items() <= readme.items()
    assert len(named) == 5


def test_example_is_a_chain_with_bodies() -> None:
    config = load_job_config(ROOT / "examples" / "xcmp-network.toml", rebuild=False)
    assert configured_job(config, "xcmp-bodies").keys == ("network/xcmp-bodies/0-1",)


def test_first_message_lists_the_root_and_size_of_its_body() -> None:
    section = PAGE.partition("## A first message")[2].partition("\n## ")[0]
    echoed = [json.loads(line) for line in re.findall(r"^\$ echo '([^']+)'", section, re.MULTILINE)]
    proved, sends, first, body, acknowledges, second = echoed
    found = measure([bytes.fromhex(payload) for payload in body])
    assert proved["payloads"] == body
    assert sends["outbox"] == [{"recipient": acknowledges["para_id"], "root": found.root.hex(), "size": found.size}]
    assert acknowledges["acks"] == [[sends["block"], sends["para_id"]]]
    assert f'{{"root": "{found.root.hex()}"' in section
    assert [(block["block"], block["candidates"], block["requests"]) for block in (first, second)] == [
        (1, 1, 0),
        (2, 1, 1),
    ]
