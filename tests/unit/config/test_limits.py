# SPDX-License-Identifier: Apache-2.0
"""A chain's limits and its rules by height, in `validator.toml`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocol_from_outside import FILES, NAME
from tests.throwaway import importable, install
from validator.config import Config, configuration_digest, load_config
from validator.config.explain import closest
from validator.core.rules import in_force
from validator.errors import UserError
from validator.lanes.configured import lane_definition, rules_runtime
from validator.protocols.router.features import table


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[None]:
    with importable(install(tmp_path / "plugins", FILES)):
        yield


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "validator.toml"
    file.write_text(f"[chains.a]\n{text}")
    return load_config(file)


def errors_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        lane_definition(load(tmp_path, text), "a")
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def places(config: Config) -> Any:
    rules: Any = lane_definition(config, "a").create().rules
    return rules.state.configuration.hrmp_channel_max_places


@pytest.mark.usefixtures("outside")
def test_values_override_preset_of_plugin(tmp_path: Path) -> None:
    protocol_line = f"protocol = '{NAME}'\n"
    large = load(tmp_path, f"{protocol_line}caps.preset = 'large'")
    spelled = load(tmp_path, f"{protocol_line}caps.hrmp_channel_max_places = 500")
    over = load(tmp_path, f"{protocol_line}[chains.a.caps]\npreset = 'large'\nhrmp_channel_max_places = 7")
    assert (places(large), places(spelled), places(over), places(load(tmp_path, protocol_line))) == (500, 500, 7, 0)
    digests = [configuration_digest(config.chains["a"]) for config in (large, spelled, over)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("caps.preset = 'huge'", "chains.a.caps.preset: expected 'small' or 'large', found 'huge'"),
        (
            "caps.hrmp_channel_max_place = 1",
            "chains.a.caps.hrmp_channel_max_place: no such key; did you mean 'hrmp_channel_max_places'?",
        ),
        (
            "caps.hrmp_channel_max_places = -1",
            "chains.a.caps.hrmp_channel_max_places: expected a number greater than or equal to 0, found -1",
        ),
        ("caps = 3", "chains.a.caps: expected a table, found 3"),
        (
            "limits.hrmp_channel_max_places = 1",
            f"chains.a: limits: expected caps, which holds the limits of protocol {NAME}",
        ),
        (
            "host_configuration.preset = 'minimal'",
            f"chains.a.host_configuration: expected caps, which holds the limits of protocol {NAME}",
        ),
        ("cap.preset = 'small'", "chains.a.cap: no such key; did you mean 'caps'?"),
    ],
)
def test_invalid_limits_of_plugin_are_reported_when_file_is_read(text: str, line: str, tmp_path: Path) -> None:
    assert errors_of(tmp_path, f"protocol = '{NAME}'\n{text}") == [f"validator.toml: {line}"]


def test_table_of_limits_with_a_key_of_every_chain_is_refused_in_one_line(tmp_path: Path) -> None:
    files = {name: text.replace('"caps"', '"balances"') for name, text in FILES.items()}
    assert files != FILES
    with importable(install(tmp_path / "plugins", files)):
        (line,) = errors_of(tmp_path, f"protocol = '{NAME}'")
    assert line.startswith(f"chain a: protocol {NAME} keeps its limits in the table balances, which is a key of every")


@pytest.mark.usefixtures("outside")
def test_invalid_limits_are_reported_with_other_errors(tmp_path: Path) -> None:
    text = f"protocol = '{NAME}'\nfirst_block = 'x'\nballances = 'ledger'\ncaps.preset = 1\n[jbo]"
    assert sorted(line.split(": ")[1] for line in errors_of(tmp_path, text)) == [
        "chains.a.ballances",
        "chains.a.caps.preset",
        "chains.a.first_block",
        "jbo",
    ]


@pytest.mark.usefixtures("outside")
def test_environment_overrides_limits_of_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_CHAINS__A__CAPS__PRESET", "small")
    assert places(load(tmp_path, f"protocol = '{NAME}'\ncaps.preset = 'large'")) == 2
    monkeypatch.setenv("VALIDATOR_CHAINS__A__CAPS__PRESET", "huge")
    assert errors_of(tmp_path, f"protocol = '{NAME}'") == [
        "environment: chains.a.caps.preset: expected 'small' or 'large', found 'huge'"
    ]


def test_limits_of_protocol_installed_later_are_checked_when_lane_is_created(tmp_path: Path) -> None:
    """A protocol in an artefact can be found only once the artefact is in use."""
    config = load(tmp_path, f"protocol = '{NAME}'\n[chains.a.caps]\nhrmp_channel_max_place = 1")
    good = load(tmp_path, f"protocol = '{NAME}'\n[chains.a.caps]\npreset = 'small'")
    strange = load(tmp_path, f"protocol = '{NAME}'\n[chains.a.bounds]\npreset = 'small'")
    with pytest.raises(UserError, match=r"no installed plugin of group .* has this name"):
        lane_definition(config, "a")
    with importable(install(tmp_path / "plugins", FILES)):
        with pytest.raises(UserError) as caught:
            lane_definition(config, "a")
        assert str(caught.value) == (
            "chains.a.caps.hrmp_channel_max_place: no such key; did you mean 'hrmp_channel_max_places'?"
        )
        with pytest.raises(
            UserError, match=r"^chains\.a\.bounds: expected caps, which holds the limits of protocol outside$"
        ):
            lane_definition(strange, "a")
        assert places(good) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "limits.max_upward_queue_size = 1",
            "validator.toml: chains.a: limits: expected host_configuration, which holds the limits of protocol router",
        ),
        (
            "protocol = 'early-hrmp'\nhost_configuration.preset = 'minimal'",
            "validator.toml: chains.a.host_configuration: expected limits, which holds the limits of protocol early-hrmp",
        ),
        (
            "protocol = 'early-hrmp'\nlimits.hrmp_channel_max_place = 1",
            "chains.a.limits.hrmp_channel_max_place: no such limit of early-hrmp; known are hrmp_channel_max_places, ",
        ),
        (
            "protocol = 'early-hrmp'\nlimits.hrmp_channel_max_places = 'x'",
            'chains.a.limits.hrmp_channel_max_places: expected an integer from 0 to 4294967295, found "x"',
        ),
        ("ballances = 'ledger'", "validator.toml: chains.a.ballances: no such key; did you mean 'balances'?"),
    ],
)
def test_wrong_limits_table_is_refused_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    (found,) = errors_of(tmp_path, text)
    assert found.startswith(line)


def test_configuration_survives_json(tmp_path: Path) -> None:
    config = load(tmp_path, "host_configuration.preset = 'minimal'\nhost_configuration.hrmp_open_request_ttl = 9")
    again = Config.model_validate(config.model_dump(mode="json"))
    assert again == config
    assert configuration_digest(again.chains["a"]) == configuration_digest(config.chains["a"])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hrmp_max_msg", "hrmp_max_message_num_per_candidate"),
        ("hrmp_chan_max_size", "hrmp_channel_max_size"),
        ("upward_queue_count", "max_upward_queue_count"),
        ("max_upward_mesage_size", "max_upward_message_size"),
        ("hrmp_channel_max_place", "hrmp_channel_max_places"),
        ("max_upwrad_queue_count", "max_upward_queue_count"),
        ("", None),
        ("_", None),
        ("nothing", None),
    ],
)
def test_suggestion_shares_the_words(name: str, meant: str | None) -> None:
    known = [
        "hrmp_channel_max_places",
        "hrmp_channel_max_size",
        "hrmp_channel_max_total_size",
        "hrmp_max_message_num_per_candidate",
        "max_upward_message_size",
        "max_upward_queue_count",
    ]
    assert closest(name, known) == meant


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
