# SPDX-License-Identifier: Apache-2.0
"""`validator.toml`: its meaning, and the errors for invalid files."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pydantic import BaseModel
from validator_simulators import settings_of_profile
from validator_simulators.demo.command import configuration
from validator_simulators.router.traffic import RouterSimulation

from validator.config import Chain, Config, Job, Topics, load_config
from validator.config.chain import GenesisPara, HandlerTable, RulesTable
from validator.config.model import DeadLetters, Plugins
from validator.config.toml import to_toml
from validator.core import limits
from validator.core.types import Para, ParaKind
from validator.errors import UserError
from validator.kafka.settings import flatten
from validator.kafka.topics import PREFIX
from validator.lanes.configured import check_chains, lane_definition
from validator.protocols.router.configuration import (
    CONFIGURATION_FIELDS,
    LATER_FIELDS,
    LIMITS_TABLE,
    NEVER,
    PRESETS,
    HostConfiguration,
)
from validator.protocols.router.rules import ROUTER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


EXAMPLE = Path(__file__).parents[3] / "examples" / "validator.toml"


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "validator.toml"
    file.write_text(text)
    return load_config(file)


def errors_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def resolved(chain: Chain) -> HostConfiguration:
    """Return the limits in the genesis state of a chain's lane."""
    config = Config(chains={"a": chain})
    rules = lane_definition(config, "a").create().rules
    assert rules.rule_set is ROUTER
    return rules.state.host_configuration


# --- the example ---


def uncommented() -> str:
    """Return the reference with every key that it comments out, which have no space after their ``#``."""
    return re.sub(r'^#(?=[\[a-z"])', "", EXAMPLE.read_text(), flags=re.MULTILINE)


def test_example_runs_as_it_is() -> None:
    config = load_config(EXAMPLE)
    check_chains(config)
    polkadot = Chain(host_configuration={"preset": "polkadot-2021-09"}, genesis_paras=[GenesisPara(para_id=2000)])
    assert config == Config(chains={"polkadot": polkadot})


def test_example_names_every_key() -> None:
    tables = tomllib.loads(uncommented())
    chains = list(tables["chains"].values())
    assert set(tables) == set(Config.model_fields)
    assert set(tables["topics"]) == set(Topics.model_fields)
    assert set(tables["job"]) == set(Job.model_fields)
    assert set(tables["dead_letters"]) == set(DeadLetters.model_fields)
    assert set(tables["plugins"]) == set(Plugins.model_fields)
    assert {name for chain in chains for name in chain} == {*Chain.model_fields, LIMITS_TABLE.key}
    assert set(chains[0][LIMITS_TABLE.key]) == {"preset", *CONFIGURATION_FIELDS}
    assert set(chains[1][LIMITS_TABLE.key]) == {"preset", *LATER_FIELDS}
    assert {key for entry in chains[1]["rules"] for key in entry} == set(RulesTable.model_fields)
    assert set(chains[0]["genesis_paras"][0]) == set(GenesisPara.model_fields)
    assert set(chains[1]["handlers"][0]) == set(HandlerTable.model_fields)


def test_every_key_of_example_has_comment() -> None:
    text = uncommented().splitlines()
    lines = [line for line in text if line and not line.startswith(("#", "[", '"sasl', '"security'))]
    assert [line for line in lines if "#" not in line] == []
    tables = [at for at, line in enumerate(text) if line.startswith("[") and not line.startswith(("[topics]", "[job]"))]
    assert [text[at] for at in tables if not text[at - 1].startswith("#")] == []


def test_example_shows_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, uncommented())
    assert config.job == Job(headroom_interval_blocks=10)
    assert config.dead_letters == DeadLetters()
    assert config.topics == Topics(retention_ms={"verdicts": 2_592_000_000})
    polkadot = config.chains["polkadot"]
    defaults = Chain(
        host_configuration=polkadot.limit_tables()["host_configuration"],
        genesis_paras=polkadot.genesis_paras,
        ump_weights=polkadot.ump_weights,
    )
    assert polkadot == defaults
    assert resolved(polkadot) == replace(PRESETS["polkadot-2021-09"], hrmp_open_request_ttl=2)
    assert config.chains["kusama"].state == str(tmp_path / "kusama-STATE.json")
    assert config.plugins.lock == str(tmp_path / "plugins.lock")
    assert config.plugins.artefacts == [str(tmp_path / "remark-1.0.0-2b6a1f0c.zip")]
    assert Config().plugins == Plugins(lock=None, artefacts=[])


# --- meaning ---


def test_missing_file_gives_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_config() == Config()
    (tmp_path / "validator.toml").write_text("[job]\nmaster = 'local[1]'\n")
    assert load_config().job.master == "local[1]"


def test_defaults_match_configured_parts() -> None:
    assert Topics().prefix == PREFIX
    assert resolved(Chain()) == HostConfiguration()
    assert tuple(LIMITS_TABLE.maxima) == (*CONFIGURATION_FIELDS, *LATER_FIELDS)
    assert LIMITS_TABLE.optional == set(LATER_FIELDS)


def test_named_preset_sets_every_limit(tmp_path: Path) -> None:
    for name, preset in PRESETS.items():
        config = load(tmp_path, f"[chains.a]\nhost_configuration.preset = '{name}'")
        assert resolved(config.chains["a"]) == preset
    for name in ("minimal", "dev-2020-11"):
        assert [key for key in CONFIGURATION_FIELDS if not getattr(PRESETS[name], key) and "deposit" not in key] == []
    assert PRESETS["kusama-2022"].hrmp_open_request_ttl == NEVER == limits.U32_MAX


def test_value_overrides_preset_even_if_zero(tmp_path: Path) -> None:
    text = "[chains.a.host_configuration]\npreset = 'minimal'\nhrmp_sender_deposit = 0\nmax_upward_queue_size = 7"
    assert resolved(load(tmp_path, text).chains["a"]) == replace(
        PRESETS["minimal"], hrmp_sender_deposit=0, max_upward_queue_size=7
    )


def test_chain_converts_to_core_types(tmp_path: Path) -> None:
    chain = load(
        tmp_path,
        f"""
        [chains.a]
        enactment = "on-inclusion"
        balances = "unlimited"
        ump_weights = {{ "00FF" = 5, "" = 6 }}
        genesis_paras = [
            {{ para_id = 9 }},
            {{ para_id = 1, kind = "parathread", balance = {limits.U128_MAX} }},
        ]
        """,
    ).chains["a"]
    assert chain.core_ump_weights() == {b"\x00\xff": 5, b"": 6}
    assert chain.core_paras() == (Para(1, ParaKind.PARATHREAD, limits.U128_MAX), Para(9))


@pytest.mark.parametrize(
    "text",
    [
        '[kafka]\nbootstrap.servers = "a:1"\nsocket.keepalive.enable = true',
        '[kafka]\n"bootstrap.servers" = "a:1"\n"socket.keepalive.enable" = true',
        '[kafka.bootstrap]\nservers = "a:1"\n[kafka.socket]\nkeepalive.enable = true',
    ],
)
def test_kafka_table_accepts_any_key(tmp_path: Path, text: str) -> None:
    config = load(tmp_path, text)
    assert config.kafka == {"bootstrap.servers": "a:1", "socket.keepalive.enable": True}
    assert flatten(config.kafka)["bootstrap.servers"] == "a:1"


# --- the environment ---


def test_environment_overrides_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VALIDATOR_JOB__MASTER", "local[2]")
    monkeypatch.setenv("VALIDATOR_JOB__STATE_PARTITIONS", "4")
    monkeypatch.setenv("VALIDATOR_CHAINS__POLKADOT__HRMP_NOTIFICATIONS", "true")
    monkeypatch.setenv("VALIDATOR_CHAINS__POLKADOT__GENESIS_PARAS", '[{"para_id": 5}]')
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "b:2")
    monkeypatch.setenv("VALIDATOR_KAFKA__SASL__PASSWORD", "1e5")
    config = load(
        tmp_path,
        "[kafka]\n'bootstrap.servers' = 'a:1'\nlinger.ms = 5\n[job]\nmaster = 'x'\nblocks_ahead_max = 7\n"
        "[chains.polkadot]\nfirst_block = 3",
    )
    assert config.kafka == {"bootstrap.servers": "b:2", "linger.ms": 5, "sasl.password": "1e5"}
    assert (config.job.master, config.job.state_partitions, config.job.blocks_ahead_max) == ("local[2]", 4, 7)
    polkadot = config.chains["polkadot"]
    assert (polkadot.hrmp_notifications, polkadot.first_block, polkadot.core_paras()) == (True, 3, (Para(5),))


def test_number_in_environment_is_text_where_key_takes_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VALIDATOR_JOB__DIRECTORY", "2024")
    monkeypatch.setenv("VALIDATOR_JOB__MASTER", '"local[3]"')
    monkeypatch.setenv("VALIDATOR_PLUGINS__LOCK", "null")
    monkeypatch.setenv("VALIDATOR_CHAINS__POLKADOT__STATE", "7")
    config = load(tmp_path, '[plugins]\nlock = "there"\n')
    assert (config.job.directory, config.job.master, config.plugins.lock) == ("2024", "local[3]", None)
    assert config.chains["polkadot"].state == "7"


def test_environment_variable_can_hold_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VALIDATOR_KAFKA", '{"bootstrap.servers": "b:2", "linger": {"ms": 4}}')
    assert load(tmp_path, "").kafka == {"bootstrap.servers": "b:2", "linger.ms": 4}


@pytest.mark.parametrize("text", ['{"sasl.password": "hidden",}', "5", "[]", "", "[" * 20_000])
def test_environment_variable_of_kafka_that_is_no_table_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setenv("VALIDATOR_KAFKA", text)
    (line,) = errors_of(tmp_path, "")
    assert (
        line == "VALIDATOR_KAFKA: expected a JSON object of Kafka's options"
    )  # without its value, which may have a password


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "kafka." + "a." * 2_000 + "a = 1"])
def test_deep_nesting_is_one_line(tmp_path: Path, text: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert "validator.toml: " in line
    assert len(line) < 200


def test_invalid_environment_variable_is_reported_as_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALIDATOR_JOB__MASTR", "local[2]")
    monkeypatch.setenv("VALIDATOR_JBO__MASTER", "local[2]")
    monkeypatch.setenv("VALIDATOR_HOME", "/elsewhere")
    assert errors_of(tmp_path, "[job]\nstate_partitions = 0") == [
        "validator.toml: job.state_partitions: expected a number greater than or equal to 1, found 0",
        "environment: job.mastr: no such key; did you mean 'master'?",
        "environment: jbo: no such key; did you mean 'job'?",
    ]


# --- errors ---


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[topic]", "topic: no such key; did you mean 'topics'?"),
        (
            "zzz = 1",
            "zzz: no such key; known are audit, chains, dead_letters, job, jobs, kafka, metrics, plugins, schema_registry, topics",
        ),
        ("topics = 5", "topics: expected a table, found 5"),
        (
            f"[job]\nstate_partitions = 0x{'f' * 9_000}",
            "job.state_partitions: expected a number less than or equal to 10000, found a number of more than 4,300 digits",
        ),
        ("kafka = 5", "kafka: expected a table, found 5"),
        ("[topics]\nprefix = 5", "topics.prefix: expected a string, found 5"),
        (
            "[topics]\nprefix = 'a b'",
            "topics.prefix: expected at most 100 letters, digits, '.', '_' and '-', found 'a b'",
        ),
        ("[topics]\ninput_partitions = '3'", "topics.input_partitions: expected an integer, found '3'"),
        ("[topics]\ninput_partitions = true", "topics.input_partitions: expected an integer, found True"),
        ("[topics]\ninput_partitions = 1.0", "topics.input_partitions: expected an integer, found 1.0"),
        (
            "[topics.retention_ms]\nverdict = 1",
            "topics.retention_ms: 'verdict' is none of the topics; did you mean 'verdicts'?",
        ),
        ("[topics.retention_ms]\nlanes = 1", "topics.retention_ms: no retention for 'lanes': a compacted topic keeps"),
        (
            "[job]\ndirectory = 's3a://bucket/job'",
            "job.directory: expected a path that the driver and every executor reach, found the URI 's3a://bucket/job'",
        ),
        ("[job]\ndriver_memory = '511m'", "job.driver_memory: expected at least 512m, found '511m'"),
        ("[job]\nworker_memory = '128m'", "job.worker_memory: expected at least 256m, found '128m'"),
        ("[job]\nmaster = 'yarnn'", "job.master: expected local, local[N], local[*], local-cluster["),
        ("[job]\nmaster = 'local[0]'", "job.master: expected local, local[N], local[*], local-cluster["),
        ("[job]\ndriver_memory = '2 GB'", "job.driver_memory: expected a size such as 512m or 4g, found '2 GB'"),
        (
            "[chains.Polkadot]",
            "chains.Polkadot: expected a name of at most 64 lower-case letters, digits, '.', '_' and '-' that",
        ),
        ("[plugins]\nlock = 1", "plugins.lock: expected a string, found 1"),
        ("[plugins]\nlock = ''", "plugins.lock: expected "),
        ('[plugins]\nlock = "a\\u0000"', "plugins.lock: expected a path, found '"),
        ('[plugins]\nartefacts = ["\\u0000.zip"]', "plugins.artefacts[0]: expected a path, found '"),
        ('[job]\ndirectory = "\\u0000"', "job.directory: expected a path, found '"),
        ('[chains.a]\nstate = "\\u0000"', "chains.a.state: expected a path, found '"),
        ('[schema_registry]\nca_file = ""', "schema_registry.ca_file: expected a path, found ''"),
        ("[job]\nmaster = ''", "job.master: expected text that is not empty, found ''"),
        ("[plugins]\nartefacts = ['a.whl']", "plugins.artefacts[0]: expected a file whose name ends with .zip, "),
        ("[plugins]\nartefacts = [1]", "plugins.artefacts[0]: expected a string, found 1"),
        ("[plugins]\nartefacts = ['a.zip', 'b/a.zip']", "plugins.artefacts: a.zip is listed twice"),
        ("[plugins]\nartefacts = ['a-1-0.zip', 'a-2-1.zip']", "plugins.artefacts: a-1-0.zip and a-2-1.zip hold one"),
        ("[chains.'a/b']", "chains.a/b: expected a name of at most 64 lower-case"),
        ("[chains]\na = 1", "chains.a: expected a table, found 1"),
        ("[chains.a]\nprotocol = 'X c m'", "chains.a.protocol: expected a name of at most 64 lower-case"),
        ("[chains.a]\nenactment = 'late'", "chains.a.enactment: expected 'immediate' or 'on-inclusion', found 'late'"),
        ("[chains.a]\nfirst_block = 0", "chains.a.first_block: expected a number greater than or equal to 1, found 0"),
        (
            "[chains.a]\nhost_configuration.max_upward_mesage_size = 1",
            "chains.a.host_configuration.max_upward_mesage_size: no such key; did you mean 'max_upward_message_size'?",
        ),
        (
            "[chains.a]\nhost_configuration.preset = 'polkadot'",
            "chains.a.host_configuration.preset: expected 'minimal', 'dev-2020-11', 'polkadot-2021-09', ",
        ),
        (
            f"[chains.a]\nhost_configuration.hrmp_sender_deposit = {limits.U128_MAX + 1}",
            f"chains.a.host_configuration.hrmp_sender_deposit: expected a number less than or equal to {limits.U128_MAX}",
        ),
        (
            "[[chains.a.genesis_paras]]\nkind = 'parachain'",
            "chains.a.genesis_paras[0].para_id: expected a value, found none",
        ),
        (
            "[chains.a]\ngenesis_paras = [{para_id = 1}, {para_id = 1}]",
            "chains.a.genesis_paras: para 1 is listed twice",
        ),
        (
            "[chains.a]\ngenesis_paras = [{para = 1, para_id = 1}]",
            "chains.a.genesis_paras[0].para: no such key; did you mean",
        ),
        ("[chains.a]\nump_weights = { xy = 1 }", "chains.a.ump_weights: expected payloads in hex as keys, found 'xy'"),
        (
            "[chains.a]\nump_failing_messages = ['0']",
            "chains.a.ump_failing_messages: expected payloads in hex, found '0'",
        ),
        ("[chains.a]\nump_weights = { 0A = 1, 0a = 2 }", "chains.a.ump_weights: payload 0a is listed twice"),
        (
            "[chains.a]\nump_weights.00 = -1",
            "chains.a.ump_weights.00: expected a number greater than or equal to 0, found -1",
        ),
        (
            "[chains.a]\nstate = 's.json'\ngenesis_paras = [{para_id = 1}]",
            "chains.a: expected state or genesis_paras, found both",
        ),
    ],
)
def test_invalid_value_is_reported_with_its_key(tmp_path: Path, text: str, line: str) -> None:
    lines = errors_of(tmp_path, text)
    assert len(lines) == 1
    assert lines[0].startswith(f"validator.toml: {line}")


@pytest.mark.parametrize("value", ["2020-01-01", "12:00:00", "[nan]", "{ a = inf }"])
def test_plugin_configuration_accepts_only_json_values(tmp_path: Path, value: str) -> None:
    what = "expected text, numbers, booleans, lists and tables, found a date, a time, nan or inf"
    assert errors_of(tmp_path, f"[transports.mail]\nkey = {value}") == [f"validator.toml: transports.mail: {what}"]
    handlers = f"[[chains.a.handlers]]\nname = 'remark'\nconfig.key = {value}"
    assert errors_of(tmp_path, handlers) == [f"validator.toml: chains.a.handlers[0].config: {what}"]
    assert load(tmp_path, "[transports.mail]\nkey = [{ a = 1.5 }]").transports == {"mail": {"key": [{"a": 1.5}]}}


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    text = "[jbo]\n[topics]\nprefx = ''\n[job]\nmaster = 1\n[chains.A]\n[chains.b]\nfirst_block = 'x'\nballances = 'ledger'"
    assert sorted(line.split(":")[1].strip() for line in errors_of(tmp_path, text)) == [
        "chains.A",
        "chains.b.ballances",
        "chains.b.first_block",
        "jbo",
        "job.master",
        "topics.prefx",
    ]


def test_missing_or_malformed_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.toml: the configuration cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")
    assert errors_of(tmp_path, "a = ")[0].startswith("validator.toml: expected TOML: ")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(UserError, match=r"latin\.toml: expected TOML: "):
        load_config(tmp_path / "latin.toml")


def test_misspelt_key_of_a_handler_table_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    file = tmp_path / "validator.toml"
    file.write_text('[[chains.a.handlers]]\nname = "remark"\nform_block = 3\n', encoding="utf-8")
    with pytest.raises(
        UserError, match=r"chains\.a\.handlers\[0\]\.form_block: no such key; did you mean 'from_block'\?"
    ):
        load_config(file)


def test_date_among_limits_is_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "validator.toml"
    file.write_text('[chains.a]\nprotocol = "xcmp"\nlimits.xcmp_channel_capacity = 2026-01-01\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"chains\.a\.limits\.xcmp_channel_capacity: expected") as error:
        lane_definition(load_config(file), "a")
    assert "\n" not in str(error.value)


REGISTRY = '[schema_registry]\nurl = "https://registry.example:8081"\n'


def test_schema_registry_reaches_whoever_reads_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(tmp_path, "").kafka == {}
    monkeypatch.setenv("VALIDATOR_SCHEMA_REGISTRY__PASSWORD", "123:4")
    monkeypatch.setenv("VALIDATOR_SCHEMA_REGISTRY__USER", "me")
    config = load(
        tmp_path, f'{REGISTRY}ca_file = "ca.pem"\ncertificate_file = "c.pem"\nkey_file = "k.pem"\nkey_password = "s"'
    )
    assert config.kafka == {
        "schema.registry.url": "https://registry.example:8081",
        "schema.registry.basic.auth.user.info": "me:123:4",
        "schema.registry.ssl.ca.location": "ca.pem",
        "schema.registry.ssl.certificate.location": "c.pem",
        "schema.registry.ssl.key.location": "k.pem",
        "schema.registry.ssl.key.password": "s",
    }
    assert flatten(config.kafka) == {}
    assert Config.model_validate(config.model_dump(mode="json")) == config, "as a job's process gets it"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[schema_registry]\nwrite = "confluent"', "schema_registry: write needs url"),
        (f'{REGISTRY}user = "me"', "schema_registry: expected user and password, found one of them"),
        (f'{REGISTRY}key_file = "k"', "schema_registry: key_file and key_password need certificate_file"),
        (f'{REGISTRY}subjects = "topic"', "schema_registry.subjects"),
        ('[schema_registry]\nurl = "https://me:secret@registry.example"', "schema_registry.url"),
        ('[schema_registry]\nurl = "registry.example:8081"', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a, b"', "commas, found 'http://a, b'"),
        ('[schema_registry]\nurl = "http://a,,http://b"', "schema_registry.url"),
        ('[schema_registry]\nurl = ""', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a:x"', "schema_registry.url: expected addresses that begin with"),
        ('[schema_registry]\nurl = "http://a:65536"', "schema_registry.url"),
        ('[schema_registry]\nurl = "http://a\\u0000:1"', "schema_registry.url"),
        (f'{REGISTRY}user = ""', "schema_registry.user: expected a name without a colon, found nothing"),
        ('[kafka]\n"schema.registry.url" = "https://r"', "schema_registry: [kafka] schema.registry.url cannot be set"),
    ],
)
def test_wrong_schema_registry_is_named(tmp_path: Path, text: str, words: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert words in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[schema_registry]\nurl = "http://me:12345@b"', "schema_registry.url: expected addresses that begin with"),
        ('[schema_registry]\nurl = "http://a,http://me:12345@b"', "found a user there: set user and password"),
        ('[schema_registry]\nurl = "me:12345@b"', "found a user there: set user and password"),
        ('[schema_registry]\nurl = "http://a?token=12345"', "found a query or a fragment there"),
        ('[schema_registry]\nurl = "http://a/b#12345"', "found a query or a fragment there"),
        (f'{REGISTRY}user = "me:12345"', "schema_registry.user: expected a name without a colon, found one with it"),
        (f'{REGISTRY}user = "me"\npassword = 12345', "schema_registry.password: expected text, found another type"),
        (f"{REGISTRY}user = 12345", "schema_registry.user: expected text, found another type"),
        (f'{REGISTRY}certificate_file = "c"\nkey_password = 12345', "schema_registry.key_password: expected text"),
    ],
)
def test_wrong_schema_registry_shows_no_secret(tmp_path: Path, text: str, words: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert words in line
    assert "12345" not in line


@pytest.mark.parametrize(
    "url", ["http://a", "https://a.b:1/c/d/", "http://a,https://b:2", "http://a, http://[::1]:8081"]
)
def test_addresses_of_a_schema_registry(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f'[schema_registry]\nurl = "{url}"').schema_registry.url == url


def keys(model: type[BaseModel], place: str, header: str) -> Iterator[tuple[str, str, str]]:
    """Yield, for each key of a table and of those below it, the place that errors name, the table's header and the key."""
    for name, field in model.model_fields.items():
        if header:
            yield place, header, name
        for kind, is_list, is_mapping in models(field.annotation):
            inner = f"{name}[0]" if is_list else f"{name}.a" if is_mapping else name
            here = f"{place}.{inner}" if place else inner
            path = here.replace("[0]", "")
            yield from keys(kind, here, f"[[{path}]]" if is_list else f"[{path}]")


def models(
    kind: Any, *, is_list: bool = False, is_mapping: bool = False
) -> Iterator[tuple[type[BaseModel], bool, bool]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, is_list, is_mapping
    origin = getattr(kind, "__origin__", None)
    for part in get_args(kind):
        yield from models(part, is_list=is_list or origin is list, is_mapping=is_mapping or origin is dict)


KEYS = [(place, header, key) for place, header, key in keys(Config, "", "") if len(key) > 3]


def test_every_table_is_there() -> None:
    headers = {header for _, header, _ in KEYS}
    assert {
        "[job]",
        "[chains.a]",
        "[[chains.a.handlers]]",
        "[[chains.a.rules]]",
        "[[chains.a.genesis_paras]]",
    } <= headers


@pytest.mark.parametrize(("place", "header", "key"), KEYS, ids=lambda value: value)
def test_a_misspelt_key_gets_a_suggestion(tmp_path: Path, place: str, header: str, key: str) -> None:
    misspelt = key[:2] + key[3:]
    path = tmp_path / "validator.toml"
    path.write_text(f"{header}\n{misspelt} = 1\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert f": {place}.{misspelt}: no such key; did you mean " in str(caught.value)


def test_none_is_left_out() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": 1})) == {"b": 1}


@pytest.mark.parametrize("enactment", ["immediate", "on-inclusion"])
def test_configuration_of_simulated_chain_loads(tmp_path: Path, enactment: str) -> None:
    chain = RouterSimulation(settings_of_profile("demo", seed=3, blocks=1, enactment=enactment)).chain()
    path = tmp_path / "validator.toml"
    path.write_text(to_toml(configuration(chain, tmp_path)), encoding="utf-8")
    config = load_config(path).chains["polkadot"]
    assert {para.para_id: para.balance for para in config.core_paras()} == {
        p["para_id"]: p["balance"] for p in chain["genesis_paras"]
    }
    assert config.enactment == enactment
    assert config.limit_tables()["host_configuration"]["hrmp_sender_deposit"] == chain["config"]["hrmp_sender_deposit"]
    assert {payload.hex(): weight for payload, weight in config.core_ump_weights().items()} == chain["ump_weights"]
