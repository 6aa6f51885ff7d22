# SPDX-License-Identifier: Apache-2.0
"""`validator schemas show` takes every ending of a record's name that only one record has."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.follower import invoke
from tests.registry_stand_in import stand_in
from validator.cli.schemas import _names
from validator.codec.schemas import schemas


@pytest.mark.parametrize("name", ["validator.router.Candidate", "router.Candidate", "Candidate"])
def test_short_names_show_the_record(name: str) -> None:
    result = invoke("schemas", "show", name)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["name"] == "validator.router.Candidate"


def test_ending_of_two_records_names_neither() -> None:
    names = _names(["validator.a.Candidate", "validator.b.Candidate", "validator.Block"])
    assert "Candidate" not in names
    assert names["a.Candidate"] == "validator.a.Candidate"
    assert names["Block"] == "validator.Block"


def test_every_record_has_a_short_name() -> None:
    assert {full.rpartition(".")[2] for full in schemas().current} <= set(_names(schemas().current))


def test_wrong_name_gets_a_suggestion() -> None:
    result = invoke("schemas", "show", "router.Candidates")
    assert result.exit_code == 2
    assert result.stderr == "validator: schema 'router.Candidates': no such record; did you mean 'router.Candidate'?\n"


def test_records_of_installed_protocols_and_jobs_are_listed_shown_and_checked() -> None:
    rows = {row["name"]: row for row in map(json.loads, invoke("schemas", "list", "--json").stdout.splitlines())}
    assert set(schemas().current) < set(rows)
    assert rows["validator.xcmp.Candidate"]["topic"] == "candidates"
    assert rows["validator.early_hrmp.ChannelRequest"]["topic"] == "channel-requests"
    assert rows["validator.xcmp_bodies.Body"]["topic"] == "xcmp.bodies"
    assert json.loads(invoke("schemas", "show", "xcmp.Candidate").stdout)["name"] == "validator.xcmp.Candidate"
    assert set(json.loads(invoke("schemas", "check", "--json").stdout)["problems"]) == set(rows)


def test_schemas_are_registered_once(tmp_path: Path) -> None:
    with stand_in() as registry:
        config = tmp_path / "validator.toml"
        config.write_text(f'topics.prefix = "p."\nschema_registry.url = "{registry.url}"\n', encoding="utf-8")
        first = invoke("schemas", "register", f"--config={config}", "--json")
        assert first.exit_code == 0, first.stderr
        rows = [json.loads(line) for line in first.stdout.splitlines()]
        assert {row["subject"] for row in rows} == set(registry.subjects)
        assert {"p.verdicts-validator.Verdict", "p.xcmp.bodies-validator.xcmp_bodies.Body"} < set(registry.subjects)
        assert all(row["is_new"] for row in rows)
        again = invoke("schemas", "register", f"--config={config}")
        assert again.exit_code == 0
        assert len(again.stdout.splitlines()) == 1 + len(rows)
        assert "new" not in again.stdout.split()


def test_registering_without_a_registry_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "validator.toml"
    config.write_text("", encoding="utf-8")
    result = invoke("schemas", "register", f"--config={config}")
    assert (result.exit_code, result.stderr) == (
        2,
        "validator: schemas register: expected [schema_registry] url, found none\n",
    )


def test_registry_that_is_away_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "validator.toml"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config.write_text(f'schema_registry.url = "http://127.0.0.1:{free.getsockname()[1]}"\n', encoding="utf-8")
        result = invoke("schemas", "register", f"--config={config}")
    assert result.exit_code == 2
    assert result.stderr.startswith("validator: no schema registry answers at http://127.0.0.1:")
    assert result.stderr.count("\n") == 1
