# SPDX-License-Identifier: Apache-2.0
"""What a job looks up when it starts, and what `validator schemas register` leaves in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.codecs import codec_for
from tests.registry_stand_in import Refused, StandIn, stand_in
from validator.codec.framing import id_header
from validator.codec.schemas import make_schema, schemas
from validator.config import Config
from validator.errors import Unavailable, UserError
from validator.job import schema_ids as module
from validator.job.installed import all_schemas
from validator.job.schema_ids import NO_IDS, RecordSchemas, records_in, records_of, register, schema_ids, subject_of
from validator.topics import INPUT_TOPICS

CODEC = codec_for()
RECORDS = records_of(CODEC)
TWO_VERSIONS = RecordSchemas(
    "channel-requests",
    tuple(
        make_schema(
            {
                "type": "record",
                "name": "a.Record",
                "fields": [{"name": each, "type": "int", "default": 0} for each in names],
            },
            version=version,
        )
        for version, names in enumerate(("a", "ab"), 1)
    ),
)
OUTPUTS = {
    "verdicts",
    "dispatches",
    "channel-events",
    "ingress-events",
    "headroom",
    "receipts",
    "dead-letters",
    "lanes",
}


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with stand_in() as held:
        yield held


def config(held: StandIn, **more: Any) -> Config:
    return Config(topics={"prefix": "p."}, schema_registry={"url": held.url, **more})


def test_records_are_those_of_the_topics_of_a_job() -> None:
    assert {each.topic for each in RECORDS} == {*INPUT_TOPICS, *OUTPUTS, "dry-run-requests", "dry-run-answers"}
    names = {each.current.name for each in RECORDS}
    assert {"validator.LaneOrder", "validator.router.Candidate", "validator.Verdict"} <= names
    for each in RECORDS:
        assert [one.version for one in each.versions] == [*range(1, len(each.versions) + 1)]


def test_installed_records_include_those_of_all_plugins() -> None:
    found = {(each.topic, each.current.name) for each in records_in(*all_schemas())}
    assert {(each.topic, each.current.name) for each in RECORDS} < found
    assert ("candidates", "validator.xcmp.Candidate") in found
    assert ("xcmp.bodies", "validator.xcmp_bodies.Body") in found
    assert not {topic for topic, _ in found} & module.INTERNAL_TOPICS


def test_registering_twice_changes_nothing(registry: StandIn) -> None:
    first = list(register(config(registry), RECORDS))
    assert all(each.is_new for each in first)
    held = {subject: list(texts) for subject, texts in registry.subjects.items()}
    again = list(register(config(registry), RECORDS))
    assert registry.subjects == held
    assert [each._replace(is_new=True) for each in again] == first
    assert not any(each.is_new for each in again)


def test_versions_are_registered_in_their_order_with_their_compatibility(registry: StandIn) -> None:
    list(register(config(registry), RECORDS))
    for record in RECORDS:
        subject = subject_of(config(registry), record)
        assert subject == f"p.{record.topic}-{record.current.name}"
        assert len(registry.subjects[subject]) == 1
        expected = "BACKWARD_TRANSITIVE" if record.topic in (*INPUT_TOPICS, "dry-run-requests") else "FULL_TRANSITIVE"
        assert registry.levels[subject] == expected
    assert [each.version for each in register(config(registry), [TWO_VERSIONS])] == [1, 2]
    texts = [json.dumps(each.source) for each in TWO_VERSIONS.versions]
    assert registry.subjects["p.channel-requests-a.Record"] == texts


def test_subjects_may_be_named_by_the_record_alone(registry: StandIn) -> None:
    list(register(config(registry, subjects="record"), RECORDS))
    assert set(registry.subjects) == {each.current.name for each in RECORDS}


def test_a_subject_with_another_schema_is_refused(registry: StandIn) -> None:
    registry.add("p.blocks-validator.Block", {"type": "record", "name": "validator.Block", "fields": []})
    with pytest.raises(UserError, match=r"subject p\.blocks-validator\.Block: Schema being registered is incompatible"):
        list(register(config(registry), RECORDS))


def test_compatibility_of_a_subject_that_exists_is_left_alone(registry: StandIn) -> None:
    block = next(each for each in RECORDS if each.current.name == "validator.Block")
    registry.add("p.blocks-validator.Block", block.versions[0].source)
    first = next(iter(register(config(registry), [block])))
    assert not first.is_new
    assert registry.levels == {}
    assert first.compatibility == "BACKWARD", "that of all subjects"
    registry.levels["p.blocks-validator.Block"] = "NONE"
    assert next(iter(register(config(registry), [block]))).compatibility == "NONE"


def test_compatibility_that_could_not_be_set_is_set_by_the_next_run(registry: StandIn) -> None:
    verdict = next(each for each in RECORDS if each.current.name == "validator.Verdict")
    registry.level_fails = True
    with pytest.raises(Unavailable, match=r"subject p\.verdicts-validator\.Verdict: Error in the backend"):
        list(register(config(registry), [verdict]))
    assert registry.subjects == {}
    registry.level_fails = False
    found = list(register(config(registry), [verdict]))
    assert registry.levels == {"p.verdicts-validator.Verdict": "FULL_TRANSITIVE"}
    assert {each.compatibility for each in found} == {"FULL_TRANSITIVE"}


def test_compatibility_is_set_after_the_first_version_if_the_registry_wants_so(registry: StandIn) -> None:
    registry.level_needs_subject = True
    found = list(register(config(registry), [TWO_VERSIONS]))
    assert registry.levels == {"p.channel-requests-a.Record": "BACKWARD_TRANSITIVE"}
    assert len(found) == 2
    assert {each.compatibility for each in found} == {"BACKWARD_TRANSITIVE"}
    puts = [at for at, (method, _) in enumerate(registry.asked) if method == "PUT"]
    posts = [at for at, (method, _) in enumerate(registry.asked) if method == "POST"]
    assert puts[1] < posts[1], "before the second version, which the registry checks"


def test_compatibility_that_may_not_be_read_is_unknown(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = registry.answer

    def refusing(method: str, path: list[str], body: Any) -> Any:
        if method == "GET" and path[0] == "config":
            raise Refused(403, 40301, "Forbidden")
        return answer(method, path, body)

    monkeypatch.setattr(registry, "answer", refusing)
    assert {each.compatibility for each in register(config(registry), RECORDS[:1])} == {None}


def test_job_knows_every_version_and_frames_what_it_emits(registry: StandIn) -> None:
    list(register(config(registry), RECORDS))
    found = schema_ids(config(registry, write="confluent"), RECORDS)
    assert set(found.headers.values()) == set(CODEC.by_header) & {
        each.header for record in RECORDS for each in record.versions
    }
    assert {topic for topic, _ in found.frames} == OUTPUTS
    for (_, header), frame in found.frames.items():
        assert found.headers[frame] == header
    assert schema_ids(config(registry), RECORDS) == found._replace(frames={})


def test_ids_are_found_under_the_names_that_serializers_choose(registry: StandIn) -> None:
    """A producer that registers by itself names the subject after the topic, and its text is its own."""
    schema = schemas()["validator.router.Candidate"]
    own = registry.add("p.candidates-value", json.dumps({**schema.source, "doc": "generated"}))
    other = registry.add("validator.router.Candidate", schema.canonical)
    registry.add("somebody.else-value", schema.source)
    found = schema_ids(config(registry), RECORDS)
    assert found.headers == {id_header(own): schema.header, id_header(other): schema.header}


def test_of_equal_schemas_the_last_version_is_written(registry: StandIn) -> None:
    list(register(config(registry), RECORDS))
    schema = schemas()["validator.Verdict"]
    last = registry.add("p.verdicts-validator.Verdict", json.dumps({**schema.source, "doc": "other"}))
    found = schema_ids(config(registry, write="confluent"), RECORDS)
    assert found.frames["verdicts", schema.header] == id_header(last)


def test_what_is_to_be_written_must_be_registered(registry: StandIn) -> None:
    expected = (
        rf"^schema registry {registry.url}: subject p\.[a-z-]+-validator\.\w+ has no version that equals our schema of validator\.\w+: "
        r"run `validator schemas register`$"
    )
    with pytest.raises(UserError, match=expected):
        schema_ids(config(registry, write="confluent"), RECORDS)
    assert schema_ids(config(registry), RECORDS) == NO_IDS


def test_number_of_versions_is_bounded(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    list(register(config(registry), RECORDS))
    monkeypatch.setattr(module, "VERSIONS_MAX", 3)
    registry.asked.clear()
    with pytest.raises(UserError, match=r"expected at most 3 versions, found more, up to subject p\."):
        schema_ids(config(registry), RECORDS)
    assert not [path for _, path in registry.asked if "/versions/" in path], "it was asked for no version"
    block = next(each for each in RECORDS if each.current.name == "validator.Block")
    for size in range(3):
        registry.add("p.blocks-validator.Block", {"type": "fixed", "name": "F", "size": size + 1})
    with pytest.raises(UserError, match=r"subject p\.blocks-validator\.Block: expected at most 3 versions, found \d"):
        list(register(config(registry), [block]))


def test_number_of_versions_counts_equal_ones(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schemas()["validator.Verdict"]
    for number in range(4):
        registry.add("p.verdicts-value", json.dumps({**schema.source, "doc": str(number)}))
    monkeypatch.setattr(registry, "ids", dict.fromkeys(registry.ids, 7))
    monkeypatch.setattr(module, "VERSIONS_MAX", 3)
    with pytest.raises(UserError, match="expected at most 3 versions"):
        schema_ids(config(registry), RECORDS)
    monkeypatch.setattr(module, "VERSIONS_MAX", 4)
    assert schema_ids(config(registry), RECORDS).headers == {id_header(7): schema.header}


def test_an_id_of_two_schemas_is_refused(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them a record has been written with, nobody can say."""
    registry.add("p.receipts-value", schemas()["validator.Receipt"].source)
    registry.add("p.verdicts-value", schemas()["validator.Verdict"].source)
    monkeypatch.setattr(registry, "ids", dict.fromkeys(registry.ids, 7))
    expected = (
        f"^schema registry {registry.url}: expected one schema for each id, found two for id 7: "
        r"subject p\.receipts-value, version 1 and subject p\.verdicts-value, version 1$"
    )
    with pytest.raises(UserError, match=expected):
        schema_ids(config(registry), RECORDS)


def test_answer_that_names_another_subject_is_not_taken_for_that_one(
    registry: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipt, verdict = (schemas()[f"validator.{name}"] for name in ("Receipt", "Verdict"))
    ids = [registry.add("p.receipts-value", receipt.source), registry.add("p.verdicts-value", verdict.source)]
    version = registry._version
    monkeypatch.setattr(registry, "_version", lambda *place: {**version(*place), "subject": "p.verdicts-value"})
    found = schema_ids(config(registry), RECORDS)
    assert found.headers == {id_header(ids[0]): receipt.header, id_header(ids[1]): verdict.header}


def test_progress_is_said_while_the_registry_is_asked(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        registry.add("p.verdicts-value", {"type": "fixed", "name": "F", "size": number + 1})
    monkeypatch.setattr(module, "PROGRESS_S", 0)
    said: list[tuple[int, int]] = []
    schema_ids(config(registry), RECORDS, lambda asked, of: said.append((asked, of)))
    assert said == [(asked, 5) for asked in range(5)]
    monkeypatch.setattr(module, "PROGRESS_S", 3600)
    said.clear()
    schema_ids(config(registry), RECORDS, lambda asked, of: said.append((asked, of)))
    assert said == []


def test_without_a_registry_nobody_is_asked() -> None:
    assert schema_ids(Config(), RECORDS) == NO_IDS
