# SPDX-License-Identifier: Apache-2.0
"""`validator rules`: what holds under a profile, between two of them, and in a block of a chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from validator.cli.main import app
from validator.protocols.router.features import table

CONFIGURATION = """\
[chains.polkadot]
[[chains.polkadot.rules]]
from_block = 10
profile = "router/2021-09"
[[chains.polkadot.rules]]
from_block = 20
features = ["versioned_notifications"]
[[chains.polkadot.rules]]
from_block = 30
features = ["dmq_length_limit", "no_ttl"]
[chains.kusama]
hrmp_notifications = true
[[chains.kusama.rules]]
from_block = 40
features = ["no_ttl", "dmq_length_limit"]
[[chains.kusama.rules]]
from_block = 50
profile = "router/2021-02"
[chains.other]
protocol = "xcmp"
[chains.gone]
protocol = "nothing"
"""


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "validator.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, terminal: bool = False) -> Result:
    environment = {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": "80"} if terminal else {}
    return CliRunner().invoke(app, ["rules", *arguments], env=environment)


def rows(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_list_has_every_profile_with_its_changes_and_chains() -> None:
    listed = rows("list")
    assert [row["profile"] for row in listed] == [*table.PROFILES, None]
    features: frozenset[str] = frozenset()
    named = [row for row in listed if row["profile"] is not None]
    for row in named:
        features = (features | set(row["plus"])) - set(row["minus"])
        assert features == table.PROFILES[row["profile"]]
    assert {row["profile"]: row["chains"] for row in listed if row["chains"]} == {
        "router/2021-09": ["polkadot from block 10"],
        "router/2021-02": ["kusama from block 50", "polkadot from block 20"],
        None: ["kusama from block 40", "polkadot from block 30"],
    }
    assert (listed[-1]["plus"], listed[-1]["minus"]) == (["no_ttl", "dmq_length_limit"], [])
    assert "no named profile" in run("list").stdout


def test_list_names_a_bad_list_and_shows_the_rest(tmp_path: Path) -> None:
    (tmp_path / "validator.toml").write_text(CONFIGURATION.replace('"router/2021-09"', '"router/2021-9"'))
    result = run("list", "--json")
    assert result.exit_code == 0
    assert result.stderr == (
        "validator: chains.polkadot.rules[0].profile: unknown 'router/2021-9'; did you mean 'router/2021-09'?\n"
    )
    assert len(result.stdout.splitlines()) == len(table.PROFILES) + 1


def test_tables_fit_a_terminal_of_80_columns() -> None:
    for arguments in (("list",), ("show", "router/2025-07"), ("diff", "router/seed", "router/2025-07")):
        result = run(*arguments, terminal=True)
        assert result.exit_code == 0
        assert max(map(len, result.stdout.splitlines())) <= 80
        piped = run(*arguments).stdout.splitlines()
        assert len(piped) < len(result.stdout.splitlines())
        assert piped[0].split()[0] in ("profile", "feature")
    assert "+ hrmp_notifications" in run("list").stdout


@pytest.mark.parametrize("profile", table.PROFILES)
def test_show_says_what_each_feature_means(profile: str) -> None:
    assert {row["feature"]: row["says"] for row in rows("show", profile)} == {
        feature.name: feature.says for feature in table.FEATURES if feature.name in table.PROFILES[profile]
    }


@pytest.mark.parametrize(
    ("block", "name", "features"),
    [
        (9, "router/seed", frozenset[str]()),
        (10, "router/2021-09", table.PROFILES["router/2021-09"]),
        (20, "router/2021-02", table.PROFILES["router/2021-02"]),
    ],
)
def test_show_says_what_holds_in_a_block(block: int, name: str, features: frozenset[str]) -> None:
    arguments = ("show", "--lane", "polkadot", "--block", str(block))
    assert {row["feature"] for row in rows(*arguments)} == features
    assert run(*arguments).stderr == f"lane polkadot, block {block}: {name}\n"


@pytest.mark.parametrize(
    ("block", "name", "features"),
    [
        (1, "router/2020-11", {"hrmp_notifications"}),
        (40, "no named profile", {"hrmp_notifications", "no_ttl", "dmq_length_limit"}),
    ],
)
def test_show_has_the_notifications_of_the_chains_own_key(block: int, name: str, features: set[str]) -> None:
    arguments = ("show", "--lane", "kusama", "--block", str(block))
    assert {row["feature"] for row in rows(*arguments)} == features
    assert run(*arguments).stderr.splitlines() == [
        "lane kusama: hrmp_notifications holds in every block, since chains.kusama.hrmp_notifications is true",
        f"lane kusama, block {block}: {name}",
    ]


def test_show_mentions_the_key_only_where_it_matters() -> None:
    arguments = ("show", "--lane", "kusama", "--block", "50")
    assert run(*arguments).stderr == "lane kusama, block 50: router/2021-02\n"


def test_diff_goes_both_ways() -> None:
    one, other = "router/2023-05", "router/2023-06"
    assert [(row["change"], row["feature"]) for row in rows("diff", one, other)] == [
        ("+", "force_open_channel"),
        ("-", "force_open_channel_plain"),
    ]
    assert [(row["change"], row["feature"]) for row in rows("diff", other, one)] == [
        ("+", "force_open_channel_plain"),
        ("-", "force_open_channel"),
    ]
    assert run("diff", one, one).stdout == "no difference\n"
    assert run("show", "router/seed").stdout == "the protocol's first rules\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "router/2021"), "PROFILE: expected one of router/seed, "),
        (("show",), "expected either PROFILE, or --lane and --block"),
        (("show", "router/seed", "--block", "1"), "expected either PROFILE, or --lane and --block"),
        (("show", "--lane", "polkadto", "--block", "1"), "--lane: no chain 'polkadto' is configured"),
        (("show", "--lane", "other", "--block", "1"), "protocol xcmp has one set of rules for every height"),
        (
            ("show", "--lane", "gone", "--block", "1"),
            "chains.gone.protocol: expected an installed protocol, found 'nothing'",
        ),
        (("list", "--protocol", "nothing"), "--protocol: expected an installed protocol, found 'nothing'"),
    ],
)
def test_wrong_arguments_are_one_error_line(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"validator: {words}")
    assert len(result.stderr.splitlines()) == 1


def test_block_beyond_the_last_one_is_refused() -> None:
    result = run("show", "--lane", "polkadot", "--block", str(2**32))
    assert result.exit_code == 2
    assert "4294967295" in result.stderr
