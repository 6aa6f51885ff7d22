# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: it is one of version 3.1, and says the truth about parameters, records and problems."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from validator.client.topics import OUTPUTS
from validator.serve.parameters import FILTERS, filters_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serve.conftest import Served

needs_contract = pytest.mark.skipif(
    any(find_spec(each) is None for each in ("schemathesis", "openapi_spec_validator")),
    reason="schemathesis and openapi-spec-validator come with the extra contract: make setup EXTRAS=contract",
)


@pytest.fixture
def document(served: Served) -> Any:
    return served.get("/openapi.json")


@needs_contract
def test_document_is_openapi(document: Any) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"


@needs_contract
@pytest.mark.parametrize("topic", OUTPUTS)
def test_records_have_the_schemas_of_their_list(served: Served, document: Any, topic: str) -> None:
    from jsonschema import Draft202012Validator

    content = document["paths"][f"/v1/{topic}"]["get"]["responses"]["200"]["content"]["application/json"]
    check = Draft202012Validator({**content["schema"], "components": document["components"]})
    page = served.get(f"/v1/{topic}", limit=1000)
    assert page["items"] or topic == "ingress-events"
    check.validate(page)
    if page["items"]:
        spoilt = {**page, "items": [{**page["items"][0], "lane": 7}]}
        assert not check.is_valid(spoilt)


def test_document_has_each_list_with_its_filters(served: Served, document: Any) -> None:
    for topic in served.running.web.topics.values():
        for path in (f"/v1/{topic.name}", f"/v1/{topic.name}/events"):
            names = [each["name"] for each in document["paths"][path]["get"]["parameters"]]
            assert names[: len(filters_of(topic))] == [each.name for each in filters_of(topic)]
            assert len(set(names)) == len(names)
    verdicts = served.running.web.topics["verdicts"]
    assert {each.name for each in filters_of(verdicts)} == {each.name for each in FILTERS} | {"hash"}
    lane = document["paths"]["/v1/verdicts"]["get"]["parameters"][0]
    assert lane["schema"] == {"type": "string", "enum": ["polkadot"]}


def test_descriptions_come_from_the_schemas(document: Any) -> None:
    verdict = document["components"]["schemas"]["validator.Verdict"]
    assert verdict["properties"]["block"]["description"] == "Relay-chain block number that the record belongs to."
    assert verdict["properties"]["ok"]["type"] == "boolean"
    assert "error" not in verdict["required"]


@pytest.mark.long
@needs_contract
def test_schemathesis_finds_nothing(served: Served, document: Any) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import given as gives
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_dict(document)
    calls = 0
    base = str(served.client.base_url)
    headers = dict(served.client.headers)
    for operation in _operations(schema):
        topic = operation.path.split("/")[2:3]
        if operation.path.endswith("/events") or not {*topic} <= {"verdicts", "dead-letters", "headroom", "lanes"}:
            continue  # an answer without an end; a topic that does not exist, which takes Kafka two seconds

        @gives(case=operation.as_strategy())
        @settings(
            max_examples=10,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.generate],
        )
        def ask(case: Any) -> None:
            nonlocal calls
            calls += 1
            given = {"Authorization": headers["authorization"]}
            # by its schema a cursor is any text, but only texts of earlier answers are cursors
            excluded = [positive_data_acceptance] if "cursor" in (case.query or {}) else []
            case.call_and_validate(base_url=base, headers=given, excluded_checks=excluded)

        ask()
    assert calls > 40


def _operations(schema: Any) -> Iterator[Any]:
    for found in schema.get_all_operations():
        yield found.ok()
