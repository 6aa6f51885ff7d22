# SPDX-License-Identifier: Apache-2.0
"""A chain's rules by height in `validator.toml`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.config.test_limits import load
from validator.config import Config, configuration_digest
from validator.core.rules import in_force
from validator.errors import UserError
from validator.lanes.configured import lane_definition, rules_runtime
from validator.protocols.router.features import table

PROFILE = "profile = 'router/2021-09'"


def features_at(config: Config, block: int) -> frozenset[str]:
    return table.features_of(in_force(rules_runtime(config.chains["a"], "a").rules, block).version)


def test_each_block_has_the_rules_of_the_last_entry_before_it(tmp_path: Path) -> None:
    text = f"rules = [{{from_block = 10, {PROFILE}}}, {{from_block = 20, features = ['versioned_notifications']}}]"
    config = load(tmp_path, text)
    assert features_at(config, 9) == frozenset()
    assert features_at(config, 10) == features_at(config, 19) == table.PROFILES["router/2021-09"]
    assert features_at(config, 20) == {"versioned_notifications", "hrmp_notifications"}


def test_list_survives_the_json_that_a_job_is_given(tmp_path: Path) -> None:
    text = f"rules = [{{from_block = 10, {PROFILE}}}, {{from_block = 20, features = ['no_ttl']}}]"
    config = load(tmp_path, text)
    given = Config.model_validate(json.loads(json.dumps(config.model_dump(mode="json"))))
    assert lane_definition(given, "a").rules == lane_definition(config, "a").rules
    assert lane_definition(given, "a").runtime_digest == lane_definition(config, "a").runtime_digest


def test_first_entry_may_begin_at_block_0(tmp_path: Path) -> None:
    definition = lane_definition(load(tmp_path, f"rules = [{{from_block = 0, {PROFILE}}}]"), "a")
    assert [tuple(use) for use in definition.rules] == [(0, table.version_of(table.PROFILES["router/2021-09"]))]


def test_chain_without_list_has_the_seed_rules(tmp_path: Path) -> None:
    plain = lane_definition(load(tmp_path, ""), "a")
    assert [tuple(use) for use in plain.rules] == [(0, 1)]
    spelt = lane_definition(load(tmp_path, "rules = [{from_block = 0, profile = 'router/seed'}]"), "a")
    assert spelt.runtime_digest == plain.runtime_digest


def test_a_list_changes_only_the_digests_of_blocks_from_its_entries_on(tmp_path: Path) -> None:
    plain, config = load(tmp_path, ""), load(tmp_path, f"rules = [{{from_block = 10, {PROFILE}}}]")
    assert configuration_digest(config.chains["a"]) == configuration_digest(plain.chains["a"])
    one, other = lane_definition(plain, "a"), lane_definition(config, "a")
    assert one.digest_at(9) == other.digest_at(9)
    assert one.digest_at(10) != other.digest_at(10)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[{from_block = 5}]", "rules[0]: expected either profile or features, found neither"),
        (
            f"[{{from_block = 5, {PROFILE}, features = []}}]",
            "rules[0]: expected either profile or features, found both",
        ),
        (
            "[{from_block = 5, profile = 'router/2021-9'}]",
            "rules[0].profile: unknown 'router/2021-9'; did you mean 'router/2021-09'?",
        ),
        (
            "[{from_block = 5, profile = 'x'}]",
            f"rules[0].profile: unknown 'x'; known are {', '.join(table.PROFILES)}",
        ),
        ("[{from_block = 5, profile = ''}]", f"rules[0].profile: unknown ''; known are {', '.join(table.PROFILES)}"),
        ("[{from_block = 5, features = ['no_tll']}]", "rules[0].features[0]: unknown 'no_tll'; did you mean 'no_ttl'?"),
        (
            f"[{{from_block = 5, {PROFILE}}}, {{from_block = 5, {PROFILE}}}]",
            "rules[1].from_block: expected a block after 5, where the entry before begins, found 5",
        ),
        (
            f"[{{from_block = 5, {PROFILE}}}, {{from_block = 4, {PROFILE}}}]",
            "rules[1].from_block: expected a block after 5, where the entry before begins, found 4",
        ),
        (
            "[{from_block = 5, features = ['message_queue']}, {from_block = 6, profile = 'router/2023-06'}]",
            "rules[1]: message_queue cannot be taken away again: expected a profile or features with it",
        ),
    ],
)
def test_invalid_list_is_refused_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    config = load(tmp_path, f"rules = {text}")
    with pytest.raises(UserError) as refused:
        lane_definition(config, "a")
    assert str(refused.value) == f"chains.a.{line}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[{{{PROFILE}}}]", "chains.a.rules[0].from_block: expected a value, found none"),
        (
            "[{from_block = -1, features = []}]",
            "chains.a.rules[0].from_block: expected a number greater than or equal to 0, found -1",
        ),
        ("[{from_block = 1, profle = 'x'}]", "chains.a.rules[0].profle: no such key; did you mean 'profile'?"),
        ("3", "chains.a.rules: expected a list, found 3"),
    ],
)
def test_malformed_list_is_refused_when_the_file_is_read(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        load(tmp_path, f"rules = {text}")
    assert str(refused.value) == f"{tmp_path}/validator.toml: {words}"


def test_protocol_with_one_set_of_rules_takes_no_list(tmp_path: Path) -> None:
    config = load(tmp_path, f"protocol = 'xcmp'\nrules = [{{from_block = 5, {PROFILE}}}]")
    with pytest.raises(UserError, match=r"^chains\.a\.rules: protocol xcmp has one set of rules: expected no list$"):
        lane_definition(config, "a")
