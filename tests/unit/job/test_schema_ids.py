# SPDX-License-Identifier: Apache-2.0
"""What a job looks up when it starts, and what `validator schemas register` leaves in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.codecs import codec_for
from tests.registries import OUTPUTS, TWO_VERSIONS
from tests.registry_stand_in import Refused, StandIn, stand_in
from validator.codec.framing import id_header
from validator.codec.schemas import schemas
from validator.config import Config
from validator.errors import Unavailable, UserError
from validator.job import schema_ids as module
from validator.job.installed import all_schemas
from validator.job.schema_ids import NO_IDS, records_in, records_of, register, schema_ids
from validator.topics import INPUT_TOPICS

CODEC = codec_for()
RECORDS = records_of(CODEC)


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
