# SPDX-License-Identifier: Apache-2.0
"""The consumers of examples/consumers print the committed verdicts of both forms, once each, and continue where they ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyspark
import pytest
from confluent_kafka import Producer

from tests.cli.follower import follower
from tests.registry_stand_in import StandIn, stand_in
from validator.client import connect
from validator.codec.framing import id_header
from validator.codec.json_form import to_json
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.kafka.client import producer_config
from validator.kafka.jars import ensure_jars
from validator.kafka.reader import TopicReader
from validator.kafka.spark_options import java_properties

CONSUMERS = Path(__file__).parents[2] / "examples/consumers"
PREFIX = "consumers."
SCHEMA = schemas()["validator.Verdict"]
SECONDS_MAX = 300

Run: TypeAlias = Callable[..., list[dict[str, Any]]]


class Topic(NamedTuple):
    """A topic of verdicts: every second one is framed, and between them are some that were never committed."""

    registry: StandIn
    expected: list[dict[str, Any]]


@pytest.fixture(scope="module")
def topic(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topic]:
    lane = follower(tmp_path_factory.mktemp("lane"), kafka, PREFIX, blocks=6)
    lane.judge(lane.records)
    with TopicReader(kafka, PREFIX, ["verdicts"]) as reader:
        plain = [record.value for record in reader.read_to_end()]
    with stand_in() as registry:
        frame = id_header(registry.add("any", SCHEMA.source))
        framed = [frame + value[HEADER_SIZE:] for value in plain]
        _send(kafka, framed[:3], commit=False)
        _send(kafka, framed, commit=True)
        yield Topic(registry, [*map(shown, plain), *map(shown, plain)])


def _send(kafka: dict[str, object], values: list[bytes], *, commit: bool) -> None:
    producer = Producer(producer_config(kafka, transactional_id=f"{PREFIX}test"))
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for value in values:
        producer.produce(f"{PREFIX}verdicts", value)
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
    for number, schema in enumerate(schemas().every_version(SCHEMA.name)):
        (folder / f"{number}.avsc").write_text(json.dumps(schema.source), encoding="utf-8")
    return str(folder)


def _lines(command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def java(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Compile the program with the jars that are here anyway: Kafka's client of the broker, Avro and Jackson of Spark."""
    if shutil.which("javac") is None:
        pytest.skip("only a JRE is here: javac is needed")
    folder = tmp_path_factory.mktemp("java")
    spark = Path(pyspark.__file__).parent / "jars"
    needed = ["avro-1.*.jar", "jackson-annotations-*.jar", "jackson-core-2*.jar", "jackson-databind-*.jar"]
    jars = [*(jar for name in needed for jar in spark.glob(name)), *ensure_jars("broker")]
    path = os.pathsep.join(map(str, [folder, *jars]))
    source = CONSUMERS / "java/Verdicts.java"
    subprocess.run(
        ["javac", "-Xlint:all", "-Werror", "-proc:none", "-cp", path, "-d", folder, source],
        check=True,
        timeout=SECONDS_MAX,
    )
    settings, versions = _settings(folder / "settings", java_properties(kafka)), _schemas(folder / "schemas")

    def run(group: str, *options: str) -> list[dict[str, Any]]:
        return _lines(["java", "-XX:TieredStopAtLevel=1", "-cp", path, "Verdicts", settings, group, versions, *options])

    return run


@pytest.fixture(scope="module")
def go(kafka: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Run:
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

    def run(group: str, *options: str) -> list[dict[str, Any]]:
        flags = [option.replace("--", "-") for option in options]
        return _lines([str(program), *flags, settings, group, versions])

    return run


def check_resumes(run: Run, topic: Topic, group: str) -> None:
    """End in the middle of a poll, between the forms, and continue with the next verdict; what was aborted never shows."""
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url)
    first = len(topic.expected) // 2 + 1
    found = run(group, "--count", str(first), *options)
    found += run(group, "--count", str(len(topic.expected) - first), *options)
    assert found == topic.expected


def check_filters(run: Run, topic: Topic, group: str) -> None:
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


def test_java_prints_both_forms(java: Run, topic: Topic) -> None:
    options = ("--topic", f"{PREFIX}verdicts", "--registry", topic.registry.url)
    assert java(f"{PREFIX}java-all", "--count", str(len(topic.expected)), *options) == topic.expected


@pytest.mark.long
def test_java_resumes(java: Run, topic: Topic) -> None:
    check_resumes(java, topic, f"{PREFIX}java")


@pytest.mark.long
def test_java_filters_by_para(java: Run, topic: Topic) -> None:
    check_filters(java, topic, f"{PREFIX}java-para")


@pytest.mark.long
def test_go_resumes(go: Run, topic: Topic) -> None:
    check_resumes(go, topic, f"{PREFIX}go")


@pytest.mark.long
def test_go_filters_by_para(go: Run, topic: Topic) -> None:
    check_filters(go, topic, f"{PREFIX}go-para")
