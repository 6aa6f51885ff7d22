# SPDX-License-Identifier: Apache-2.0
"""`validator explain`: a code, a kind or a clause prints its entry, of every protocol that has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.distributions import IMPORTS, MANIFEST, install, on_path
from validator.cli.main import app
from validator.plugin.rule_pages import installed_pages
from validator.protocols.router.features import table

THIRD_PARTY = f"""\
{IMPORTS}
from dataclasses import replace
from pathlib import Path

{MANIFEST.format(name="mine", version="1.0.0")}
@hookimpl
def validator_protocols():
    from validator.replay.scenario import installed_protocol

    yield replace(installed_protocol("router"), name="mine", rules_page=Path(__file__).with_name("mine_rules.md"))
"""
PAGE = "# Mine\n\n- Page: `https://example.org/mine.md`\n\n## All\n\n### M-01 Nothing is forbidden\n\n- Clause: `paper 1`\n"

EXPECTED = "expected a code, an error kind, a clause, a feature, a profile or a limit of"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments], env={"COLUMNS": "200"})


def entries(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path, "mine", THIRD_PARTY, group="validator.protocols")
    return tmp_path


@pytest.mark.parametrize("wanted", ["I-06", "i-06", " I-06 ", "router_rules I-06"])
def test_code_prints_its_entry_in_any_case(wanted: str) -> None:
    (entry,) = entries(wanted)
    assert (entry["protocol"], entry["sort"], entry["name"]) == ("router", "reading", "I-06")
    assert entry["rule"] == "docs/rules/router.md#i-06-a-count-does-not-go-below-zero"
    assert "saturate at zero" in entry["text"]


@pytest.mark.parametrize("wanted", ["init_open_channel", "hrmp_init_open_channel", "hrmpInitOpenChannel"])
def test_call_prints_the_rules_of_every_protocol_that_has_it(
    wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in ("router", "early-hrmp"):
        (tmp_path / "validator.toml").write_text(f'[chains.one]\nprotocol = "{protocol}"\n', encoding="utf-8")
        found = [entry["protocol"] for entry in entries(wanted)]
        assert found[0] == protocol
        assert {"router", "early-hrmp", "xcmp"} <= set(found)
    names = [entry["name"] for entry in entries(wanted, "--protocol", "router")]
    assert "R-45" in names
    assert "R-50" not in names, "a rule of another call"


def test_several_codes_and_what_a_verdict_prints_as_rule() -> None:
    kind = "OutboundHrmp/MoreMessagesThanPermitted"
    (entry,) = entries(kind)
    assert entries(entry["rule"]) == [entry]
    assert [each["name"] for each in entries("R-12", "I-06", kind, "R-12")] == ["R-12", "I-06", kind]
    result = run("R-12", "I-0x")
    assert result.exit_code == 2
    assert "found 'I-0x'" in result.stderr


def test_kind_prints_clause_fields_and_rule() -> None:
    (entry,) = entries("OutboundHrmp/CapacityExceeded")
    assert entry["clauses"] == ["router.txt verify_outbound_hrmp 1.4"]
    assert entry["fields"] == [{"idx": "int", "count": "int", "limit": "int"}]
    assert entry["rules"] == ["R-18"]


def test_protocol_of_the_configured_chains_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kind = "InsufficientBalance"
    protocols = [entry["protocol"] for entry in entries(kind)]
    assert len(protocols) > 1
    last = protocols[-1]
    (tmp_path / "validator.toml").write_text(f'[chains.a]\nprotocol = "{last}"\n', encoding="utf-8")
    assert [entry["protocol"] for entry in entries(kind)] == [last, *protocols[:-1]]
    (tmp_path / "validator.toml").write_text("[", encoding="utf-8")
    assert [entry["protocol"] for entry in entries(kind)] == protocols


def test_last_part_of_a_kind_prints_all_kinds_that_end_with_it() -> None:
    assert [entry["name"] for entry in entries("capacityexceeded", "--protocol", "router")] == [
        "UpwardMessages/CapacityExceeded",
        "OutboundHrmp/CapacityExceeded",
    ]


@pytest.mark.parametrize(
    "words", [("router.txt verify_outbound_hrmp 1.4",), ("router.txt", "verify_outbound_hrmp", "1.4")]
)
def test_clause_prints_its_rule_and_its_error(words: tuple[str, ...]) -> None:
    assert [entry["name"] for entry in entries(*words)] == ["R-18", "OutboundHrmp/CapacityExceeded"]


def test_all_protocols_with_a_match_are_printed_unless_one_is_chosen() -> None:
    assert {entry["protocol"] for entry in entries("InsufficientBalance")} == {"early-hrmp", "router", "xcmp"}
    assert [entry["protocol"] for entry in entries("InsufficientBalance", "--protocol=xcmp")] == ["xcmp"]


def test_feature_prints_all_of_its_rules() -> None:
    assert [entry["name"] for entry in entries("Message_Queue")] == ["R-91", "R-91a", "R-91b", "R-91c", "R-91d"]


def test_profile_prints_what_it_changes() -> None:
    assert run("router/2023-06").stdout == (
        "router/2023-06  (router, profile, Profiles)\n  page: docs/rules/router.md\n\nChanges since `router/2023-05`:\n\n"
        f"- adds `force_open_channel` (R-87): {table.BY_NAME['force_open_channel'].says}\n"
        f"- removes `force_open_channel_plain` (R-86): {table.BY_NAME['force_open_channel_plain'].says}\n"
    )


def test_misspelt_feature_is_suggested() -> None:
    assert "found 'no_tll'; did you mean 'no_ttl'?" in run("no_tll").stderr
    assert "did you mean 'router/2021-09'" in run("router/2021-9").stderr


def test_plain_output_has_title_facts_and_text() -> None:
    result = run("R-18")
    assert result.exit_code == 0
    assert result.stdout == (
        "R-18  The channel must have a place left  (router, rule, Acceptance)\n"
        "  clause: router.txt verify_outbound_hrmp 1.4\n"
        "  source: router_rules 1.3\n"
        "  page: docs/rules/router.md#r-18-the-channel-must-have-a-place-left\n"
        "\n"
        "`used_places + 1` must not exceed `limit_used_places`.\n"
    )


def test_explain_without_code_lists_every_entry() -> None:
    everything = [entry for page in installed_pages()[0] for entry in page.entries]
    assert [entry["name"] for entry in entries()] == [entry.name for entry in everything]
    headings, *lines = run().stdout.splitlines()
    assert headings.split() == ["protocol", "code", "type", "title"]
    assert len(lines) == len(everything)
    assert "router I-06 reading A count does not go below zero" in [" ".join(line.split()) for line in lines]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("I-061",),
            f"CODE: {EXPECTED} any installed protocol, found 'I-061'; did you mean ",
        ),
        (
            ("outboundhrmp/capacityexceded", "--protocol=router"),
            f"CODE: {EXPECTED} protocol router, found 'outboundhrmp/capacityexceded'; did you mean",
        ),
        (
            ("?",),
            f"CODE: {EXPECTED} any installed protocol, found '?'\n",
        ),
        (
            ("R-18", "--protocol=mine"),
            "--protocol: expected one with a page of rules (lane, early-hrmp, router, xcmp, xcmp-network), found",
        ),
    ],
)
def test_unknown_code_is_one_line_with_suggestions(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"validator: {words}")
    assert len(result.stderr.splitlines()) == 1


def test_unknown_number_says_which_there_are() -> None:
    assert run("x-i99").stderr.endswith(" these codes go from X-I01 to X-I22\n")
    assert "go from" not in run("ZZ-99").stderr


def test_page_of_a_third_party_protocol_is_found(site: Path) -> None:
    (site / "mine_rules.md").write_text(PAGE, encoding="utf-8")
    with on_path(site):
        (entry,) = entries("paper 1")
    assert (entry["protocol"], entry["rule"]) == ("mine", "https://example.org/mine.md#m-01-nothing-is-forbidden")


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("# Mine\n### M-01 x\n", "rules page of mine, line 2: expected '# Title' in the first line, then"),
        (None, "rules page of mine: [Errno 2] No such file"),
    ],
)
def test_broken_page_is_reported_and_the_others_are_read(site: Path, page: str | None, problem: str) -> None:
    if page is not None:
        (site / "mine_rules.md").write_text(page, encoding="utf-8")
    with on_path(site):
        result = run("R-18")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"validator: {problem}")
    assert result.stdout.startswith("R-18  The channel must")


@pytest.mark.parametrize(
    ("wanted", "protocol", "first"),
    [
        ("max_upward_message_size", "router", ["R-08"]),
        ("maxUpwardMessageSize", "router", ["R-08"]),
        ("hrmp_channel_max_capacity", "router", ["R-42"]),
        ("hrmp_max_parachain_inbound_channels", "router", ["R-52"]),
        ("hrmpInitOpenChannel", "router", ["R-41", "R-42"]),
        ("xcmp_channel_capacity", "xcmp", ["X-41"]),
    ],
)
def test_limit_and_call_lead_to_the_rules_that_name_them(wanted: str, protocol: str, first: list[str]) -> None:
    found = [entry["name"] for entry in entries(wanted, f"--protocol={protocol}")]
    assert found[: len(first)] == first


def test_error_has_its_sentence_and_what_to_do() -> None:
    kind = "OutboundHrmp/CapacityExceeded"
    (entry,) = entries(kind)
    assert entry["then"] == "Wait until the recipient has moved its watermark past older messages."
    assert f"says: {entry['says']}" in run(kind).stdout
