# SPDX-License-Identifier: Apache-2.0
"""Commands with a schema registry read framed records as plain ones, and put back what the registry did not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.follower import LANE, Follower, follower, invoke, lines
from tests.codecs import encoded
from tests.registries import RegistryServer
from tests.registry_stand_in import stand_in
from tests.sending import committed, send
from validator.client import connect
from validator.codec.decode import decode_record
from validator.codec.encode import encode_dead_letter, fitted
from validator.codec.framing import framed_id, id_header
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.config import load_config
from validator.config.toml import to_toml
from validator.core.inputs import DeadLetter, RecordKind, Source
from validator.job.schema_ids import records_of, register, schema_ids
from validator.lanes.configured import configured_codec
from validator.transports.output_reader import KafkaOutputReader

OUTPUTS = ("verdicts", "dispatches", "channel-events", "headroom", "receipts", "lanes")


class World:
    """A lane whose whole output is on two prefixes: plain, and framed."""

    def __init__(self, tmp_path: Path, kafka: dict[str, object], registry: RegistryServer) -> None:
        self.prefix = f"framed-form-{tmp_path.name}."
        plain = f"plain-form-{tmp_path.name}."
        self.plain = follower(_made(tmp_path / "plain"), kafka, plain, blocks=12)
        self.framed = follower(_made(tmp_path / "framed"), kafka, self.prefix, blocks=12)
        self.plain.judge(self.plain.records)
        path = self.framed.config_path
        table = to_toml({"schema_registry": {**registry.table, "write": "confluent"}})
        path.write_text(f"{path.read_text(encoding='utf-8')}\n{table}", encoding="utf-8")
        self.config = load_config(path)
        self.records = records_of(configured_codec(self.config))
        list(register(self.config, self.records))
        self.ids = schema_ids(self.config, self.records)
        found = [(each.topic, each.key, each.value) for each in committed(kafka, plain, OUTPUTS)]
        send(kafka, self.prefix, [(topic, key, self.frame(topic, value)) for topic, key, value in found])

    def frame(self, topic: str, value: bytes) -> bytes:
        return self.ids.frames[topic, value[:HEADER_SIZE]] + value[HEADER_SIZE:]

    def both(self, *arguments: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return what a command prints of the plain topics, and of the framed ones."""
        plain, framed = (invoke(*arguments, "--json", each.option()) for each in (self.plain, self.framed))
        assert plain.exit_code == framed.exit_code == 0, framed.stderr
        return lines(plain.stdout), lines(framed.stdout)


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, object], registry_server: RegistryServer) -> World:
    return World(tmp_path_factory.mktemp("world"), kafka, registry_server)


@pytest.mark.parametrize("topic", OUTPUTS[:-1])
def test_watch_shows_the_same_of_both_forms(world: World, topic: str) -> None:
    plain, framed = world.both("watch", topic)
    assert len(plain) > 0
    assert framed == plain


def test_watch_without_the_registry_says_once_what_to_set(world: World, tmp_path: Path) -> None:
    text = world.framed.config_path.read_text(encoding="utf-8").partition("[schema_registry]")[0]
    (tmp_path / "validator.toml").write_text(text, encoding="utf-8")
    found = invoke("watch", "verdicts", "--json", f"--config={tmp_path / 'validator.toml'}")
    assert found.exit_code == 0
    assert found.stdout == ""
    first, more = found.stderr.splitlines()
    own = framed_id(world.ids.frames["verdicts", schemas()["validator.Verdict"].header])
    assert first.startswith("validator: verdicts[")
    assert first.endswith(
        f"found a record in Confluent's framing, with schema id {own}: to read these, set [schema_registry] url; they are not shown"
    )
    count = len(lines(invoke("watch", "verdicts", "--json", world.plain.option()).stdout))
    assert more == f"validator: {count - 1} more records in Confluent's framing are not shown"


def test_watch_names_each_id_that_the_registry_lacks_once(world: World, tmp_path: Path) -> None:
    with stand_in() as empty:
        text = world.framed.config_path.read_text(encoding="utf-8").partition("[schema_registry]")[0]
        path = tmp_path / "validator.toml"
        path.write_text(f'{text}[schema_registry]\nurl = "{empty.url}"\n', encoding="utf-8")
        found = invoke("watch", "headroom", "--json", f"--config={path}")
        first, *others = found.stderr.splitlines()
        own = {framed_id(frame) for (topic, _), frame in world.ids.frames.items() if topic == "headroom"}
        assert len(others) + 1 in (2, len(own) + 1), "the ids that the topic has, and how many records more"
        assert first.endswith(f"for which {empty.url} has no schema of ours; such records are not shown")
        assert "more records in Confluent's framing are not shown" in others[-1]


def test_lanes_are_the_same(world: World) -> None:
    plain, framed = world.both("lanes")
    assert [each["executed_block"] for each in framed] == [each["executed_block"] for each in plain] == [12]


def test_transports_get_plain_values(world: World) -> None:
    def values(of: Follower) -> list[bytes]:
        config = load_config(of.config_path)
        reader = KafkaOutputReader(config.kafka, config.topics.prefix, ["verdicts"], lambda: None, lambda: False)
        try:
            count = sum(reader.ends().values())
            return [record.value for record in (reader.receive(60) for _ in range(count)) if record is not None]
        finally:
            reader.close()

    assert values(world.framed) == values(world.plain) != []


def test_what_the_registry_did_not_know_is_shown_and_put_back_as_it_was_sent(
    world: World, registry_server: RegistryServer, kafka: dict[str, object]
) -> None:
    """The letter was written by a job that did not know the id; since then, somebody has registered the schema."""
    value = encoded("blocks", {"lane": LANE, "block": 13, "candidates": 0, "requests": 0, "downward": 0})
    schema = world.config.schema_registry
    assert schema.write == "confluent"
    block = next(each for each in world.records if each.current.name == "validator.Block").current
    framed = id_header(registry_server.add("late", {**block.source, "doc": "late"})) + value[HEADER_SIZE:]
    source = Source(f"{world.prefix}blocks", 0, 0)
    letter = decode_record(configured_codec(world.config).knowing(world.ids.headers), RecordKind.BLOCK, framed, source)
    assert isinstance(letter, DeadLetter)
    assert letter.raw == framed
    record = encode_dead_letter(fitted(letter))
    send(kafka, world.prefix, [("dead-letters", LANE.encode(), world.frame("dead-letters", record.value))])

    (shown,) = lines(invoke("dead-letters", "show", "0/0", "--json", world.framed.option()).stdout)
    assert shown["reason"] == "UNKNOWN_SCHEMA"
    assert shown["raw"] == f"0x{framed.hex()}"
    replayed = invoke("dead-letters", "replay", "0/0", world.framed.option())
    assert replayed.exit_code == 0, replayed.output
    (back,) = committed(kafka, world.prefix, ["blocks"], keeps_form=True)
    assert back.value == framed
    assert framed_id(back.value) is not None


def test_client_library_reads_framed_records(world: World) -> None:
    with (
        connect(world.framed.config_path) as client,
        connect(world.plain.config_path) as other,
        client.verdicts(lane=LANE) as framed,
        other.verdicts(lane=LANE) as plain,
    ):
        assert [(each.id, each.ok) for each in framed] == [(each.id, each.ok) for each in plain]
