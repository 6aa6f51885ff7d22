# SPDX-License-Identifier: Apache-2.0
"""The consumers of examples/consumers print the committed verdicts of both forms, once each, and continue where they ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pyspark
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.follower import follower
from tests.registry_stand_in import StandIn, stand_in
from tests.sending import committed
from validator.client import connect
from validator.codec.decode import decode_record
from validator.codec.framing import id_header
from validator.codec.json_form import to_json
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.core.inputs import Source
from validator.kafka.broker import java_properties
from validator.kafka.jars import ensure_jars
from validator.kafka.settings import admin_config, producer_config
from validator.lanes.configured import configured_codec
from validator.topics import INPUT_TOPICS

CONSUMERS = Path(__file__).parents[2] / "examples/consumers"
PREFIX = "consumers."
SCHEMA = schemas()["validator.Verdict"]
SECONDS_MAX = 300

PARTITIONS = 4
VERDICTS = 24


class Topic(NamedTuple):
    """A topic of verdicts: every second one is framed, and between them are some that were never committed."""

    registry: StandIn
    plain: list[bytes]
    expected: list[dict[str, Any]]


@pytest.fixture(scope="module")
def topic(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    lane = follower(tmp_path_factory.mktemp("lane"), kafka, PREFIX, blocks=6)
    lane.judge(lane.records)
    plain = [record.value for record in committed(kafka, PREFIX, ["verdicts"])]
    with stand_in() as registry:
        frame = id_header(registry.add("any", SCHEMA.source))
        framed = [frame + value[HEADER_SIZE:] for value in plain]
        _send(kafka, framed[:3], commit=False)
        _send(kafka, framed, commit=True)
        yield Topic(registry, plain, [*map(shown, plain), *map(shown, plain)])


def _send(
    kafka: dict[str, object],
    values: list[bytes],
    *,
    commit: bool,
    name: str = f"{PREFIX}verdicts",
    partitions: int = 1,
) -> None:
    producer = Producer(producer_config(kafka, transactional_id=f"{PREFIX}test"))
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(name, value, partition=number % partitions)
    producer.flush(SECONDS_MAX)
    if commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


def shown(value: bytes) -> dict[str, Any]:
    record = to_json("verdicts", value)
    kept = {name: record[name] for name in ("lane", "block", "kind", "index", "para_id")}
    outcome = "accepted" if record["ok"] else "rejected"
    error = (record.get("error") or {}).get("kind")
    return {**kept, "outcome": outcome, "error": error, "id": f"0x{record['id'].removeprefix('0x')}"}


def _settings(path: Path, table: dict[str, Any]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in table.items()), encoding="utf-8")
    return str(path)


def _schemas(folder: Path) -> str:
    folder.mkdir()
    for number, schema in enumerate(schemas().versions[SCHEMA.name]):
        (folder / f"{number}.avsc").write_text(json.dumps(schema.source), encoding="utf-8")
    return str(folder)


@dataclass
class Consumer:
    """A compiled program: its command line for a group and options, and what its last run has printed."""

    command: Callable[[str, tuple[str, ...]], list[str]]
    printed: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, group: str, *options: str) -> list[dict[str, Any]]:
        """Return what it prints."""
        done = self._run(group, options)
        assert done.returncode == 0, done.stderr[-3000:]
        return self.printed

    def fails(self, group: str, *options: str) -> str:
        """Return what it says on standard error when it fails."""
        done = self._run(group, options)
        assert done.returncode == 1, done.stderr[-3000:]
        return done.stderr

    def _run(self, group: str, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = self.command(group, options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        self.printed = [json.loads(line) for line in done.stdout.splitlines()]
        return done


def _jars() -> list[Path]:
    spark = Path(pyspark.__file__).parent / "jars"
    needed = ["avro-1.*.jar", "jackson-annotations-*.jar", "jackson-core-2*.jar", "jackson-databind-*.jar"]
    return [*(jar for name in needed for jar in spark.glob(name)), *ensure_jars()]


@pytest.fixture(scope="module")
def java(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """Compile the program with the jars that are here anyway: Kafka's client of the broker, Avro and Jackson of Spark."""
    if shutil.which("javac") is None:
        pytest.skip("only a JRE is here: javac is needed")
    folder = tmp_path_factory.mktemp("java")
    path = os.pathsep.join(map(str, [folder, *_jars()]))
    source = CONSUMERS / "java/Verdicts.java"
    subprocess.run(
        ["javac", "-Xlint:all", "-Werror", "-proc:none", "-cp", path, "-d", folder, source],
        check=True,
        timeout=SECONDS_MAX,
    )
    settings, versions = _settings(folder / "settings", java_properties(kafka)), _schemas(folder / "schemas")

    program = ["java", "-XX:TieredStopAtLevel=1", "-cp", path, "Verdicts", settings]
    return Consumer(lambda group, options: [*program, group, versions, *options])


@pytest.fixture(scope="module")
def go(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """Build the program; its modules come from Go's module proxy unless they are in Go's cache."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    program = folder / "verdicts"
    built = subprocess.run(
        ["go", "build", "-mod=readonly", "-o", program, "."],
        cwd=CONSUMERS / "go",
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if built.returncode != 0 and "dial tcp" in built.stderr:
        pytest.skip("no module proxy answers, and the modules are not in Go's cache")
    assert built.returncode == 0, built.stderr
    settings, versions = _settings(folder / "settings", dict(kafka)), _schemas(folder / "schemas")

    def command(group: str, options: tuple[str, ...]) -> list[str]:
        flags = [option.replace("--", "-") for option in options]
        return [str(program), *flags, settings, group, versions]

    return Consumer(command)


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the programs and their packages, which npm fetches unless its cache has them."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("javascript")
    shutil.copytree(CONSUMERS / "javascript", folder, dirs_exist_ok=True)
    install = ["npm", "install", "--prefer-offline", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    fetched = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if re.search("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENOTCACHED", fetched.stderr):
        pytest.skip("no package registry answers, and npm's cache has not all packages")
    assert fetched.returncode == 0, fetched.stderr
    return folder


@pytest.fixture(scope="module")
def js(javascript: Path, kafka: dict[str, object]) -> Consumer:
    settings, versions = _settings(javascript / "settings", dict(kafka)), _schemas(javascript / "schemas")
    program = ["node", str(javascript / "consumer.js")]
    return Consumer(lambda group, options: [*program, *options, settings, group, versions])


def check_resumes(run: Consumer, _: dict[str, object], topic: Topic, group: str) -> None:
    """End in the middle of a poll, between the forms, and continue with the next verdict; what was aborted never shows."""
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url)
    first = len(topic.expected) // 2 + 1
    found = run(group, "--count", str(first), *options)
    found += run(group, "--count", str(len(topic.expected) - first), *options)
    assert found == topic.expected


def check_partitions(run: Consumer, kafka: dict[str, object], topic: Topic, group: str) -> None:
    """End in the middle of a poll that has brought records of several partitions: each verdict is printed once."""
    name = f"{group}.verdicts"
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    _send(kafka, topic.plain[:VERDICTS], commit=True, name=name, partitions=PARTITIONS)
    options = ("--topic", name)
    first = VERDICTS * 3 // 8
    found = run(group, "--count", str(first), *options)
    found += run(group, "--count", str(VERDICTS - first), *options)
    assert Counter(each["id"] for each in found) == Counter(each["id"] for each in topic.expected[:VERDICTS])


def check_unreadable(run: Consumer, kafka: dict[str, object], topic: Topic, group: str) -> None:
    """End at a value of no form; what was printed before it is taken."""
    name = f"{group}.verdicts"
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    _send(kafka, [*topic.plain[:3], b"neither"], commit=True, name=name)
    assert "expected c301 or 00, found a value of 7 bytes" in run.fails(group, "--topic", name)
    assert run.printed == topic.expected[:3]
    run.fails(group, "--topic", name)
    assert run.printed == []


def check_reads_on(run: Consumer, kafka: dict[str, object], topic: Topic, group: str) -> None:
    """Wait behind what a first poll has brought, and print what is sent meanwhile."""
    name = f"{group}.verdicts"
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    _send(kafka, topic.plain[:3], commit=True, name=name)
    command = run.command(group, ("--topic", name, "--count", "6"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(3)]
        _send(kafka, topic.plain[3:6], commit=True, name=name)
        found += [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert found == topic.expected[:6]


def check_filters(run: Consumer, _: dict[str, object], topic: Topic, group: str) -> None:
    para = topic.expected[-1]["para_id"]
    expected = [each for each in topic.expected if each["para_id"] == para]
    assert 0 < len(expected) < len(topic.expected)
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url, "--para", str(para))
    assert run(group, "--count", str(len(expected)), *options) == expected


def test_verdicts_are_of_every_sort(topic: Topic) -> None:
    assert {each["outcome"] for each in topic.expected} == {"accepted", "rejected"}
    assert len(topic.expected) > 20


def test_client_library_reads_the_same(kafka: dict[str, object], topic: Topic) -> None:
    tables = {"kafka": kafka, "topics": {"prefix": PREFIX}, "schema_registry": {"url": topic.registry.url}}
    with connect(tables) as client, client.verdicts() as verdicts:
        found = [(each.block, each.kind, each.index, each.ok) for each in verdicts]
    expected = [(each["block"], each["kind"], each["index"], each["outcome"] == "accepted") for each in topic.expected]
    assert found == expected


def test_java_prints_both_forms(java: Consumer, topic: Topic) -> None:
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url)
    assert java(f"{PREFIX}java-all", "--count", str(len(topic.expected)), *options) == topic.expected


def test_java_names_a_missing_topic(java: Consumer) -> None:
    assert "topic acme.verdicts does not exist" in java.fails(f"{PREFIX}java-missing", "--topic", "acme.verdicts")


def test_javascript_prints_both_forms(js: Consumer, topic: Topic) -> None:
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url)
    assert js(f"{PREFIX}js-all", "--count", str(len(topic.expected)), *options) == topic.expected


def test_javascript_names_a_missing_topic(js: Consumer) -> None:
    assert "topic acme.verdicts does not exist" in js.fails(f"{PREFIX}js-missing", "--topic", "acme.verdicts")


def test_javascript_sends_a_block_that_a_lane_executes(
    javascript: Path, kafka: dict[str, object], tmp_path: Path
) -> None:
    prefix = "consumers-js."
    lane = follower(tmp_path, kafka, prefix, blocks=1)
    para = lane.config.chains["polkadot"].genesis_paras[0].para_id
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name in ("validator.Block", "validator.router.Candidate"):
        (folder / f"{name}.avsc").write_text(json.dumps(schemas()[name].source), encoding="utf-8")
    settings = _settings(tmp_path / "settings", dict(kafka))
    block = [settings, str(folder), "polkadot", "1", str(para), "0"]
    subprocess.run(
        ["node", str(javascript / "producer.js"), "--prefix", prefix, *block], check=True, timeout=SECONDS_MAX
    )
    items = []
    for record in committed(kafka, prefix, ["candidates", "blocks"]):
        source = Source(record.topic, record.partition, record.offset)
        decoded = decode_record(configured_codec(lane.config), INPUT_TOPICS[record.topic], record.value, source)
        assert isinstance(decoded, tuple), decoded
        items.append(decoded[1])
    ((_, output),) = lane.worker.process(items)
    (verdict,) = (to_json("verdicts", record.value) for record in output if record.topic == "verdicts")
    assert (verdict["para_id"], verdict["ok"]) == (para, True)


@pytest.mark.long  # compiling takes a minute and a half of both cores
def test_go_names_a_missing_topic(go: Consumer) -> None:
    assert go.fails(f"{PREFIX}go-missing", "--topic", "acme.verdicts") == "topic acme.verdicts does not exist\n"


def test_readme_names_the_versions_that_are_tested() -> None:
    readme = (CONSUMERS / "README.md").read_text(encoding="utf-8")
    go = re.search(r"^go (\d+\.\d+)", (CONSUMERS / "go/go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert go is not None
    assert f"**In Go**, {go[1]} or newer" in readme
    used = {jar.name for jar in _jars()}
    pom = ElementTree.parse(CONSUMERS / "java/pom.xml").getroot()
    found = pom.findall("dependencies/dependency")
    assert found
    for each in found:
        group, artifact, version = (each.findtext(name, "") for name in ("groupId", "artifactId", "version"))
        assert f"{artifact}-{version}.jar" in used
        assert f"`{group}:{artifact}:{version}`" in readme


@pytest.mark.long
@pytest.mark.parametrize("check", [check_resumes, check_reads_on, check_filters, check_partitions, check_unreadable])
@pytest.mark.parametrize("language", ["java", "go", "js"])
def test_each_verdict_is_printed_once(
    request: pytest.FixtureRequest, kafka: dict[str, object], topic: Topic, language: str, check: Callable[..., None]
) -> None:
    check(request.getfixturevalue(language), kafka, topic, f"{PREFIX}{language}-{check.__name__}")
