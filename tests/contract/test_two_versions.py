# SPDX-License-Identifier: Apache-2.0
"""What an earlier program has emitted, whose records lack a field, is compared with what this one emits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sending import send
from validator.codec import json_form
from validator.codec.codec import Codec
from validator.codec.encode import OutputRecord
from validator.codec.json_form import encode_json
from validator.codec.schemas import SchemaSet, make_schema, schemas
from validator.history.against import Against, Deployment, compare_deployments
from validator.history.emitted import Emitted, EmittedDiffers
from validator.kafka.topics import create_topics

LANE = "polkadot"
BEFORE = schemas()["validator.Receipt"]
MOOD = {"name": "mood", "type": "long", "default": 0}
AFTER = make_schema({**BEFORE.source, "fields": [*BEFORE.source["fields"], MOOD]}, version=2)
RECEIPT = {
    **{field["name"]: 1 for field in BEFORE.source["fields"]},
    "lane": LANE, "state_root": None, "runtime_digest": "00" * 32,
}  # fmt: skip
EARLIER = encode_json(BEFORE, RECEIPT)
GLAD, SAD, OTHER = (
    encode_json(AFTER, RECEIPT | more) for more in ({"mood": 1}, {"mood": 2}, {"mood": 1, "session": 2})
)


@pytest.fixture(autouse=True)
def _both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SchemaSet({**schemas().versions, BEFORE.name: (BEFORE, AFTER)})
    monkeypatch.setattr("validator.codec.codec.schemas", lambda: known)
    codec = Codec.of(())
    monkeypatch.setattr(json_form, "shared_codec", lambda: codec)


def emitted(kafka: dict[str, Any], name: str, receipt: bytes) -> Deployment:
    prefix = f"two-versions-{name}."
    create_topics(kafka, prefix=prefix)
    send(kafka, prefix, [("receipts", LANE.encode(), receipt)])
    return Deployment(name, kafka, prefix)


def test_rebuild_compares_the_fields_that_the_earlier_program_had(kafka: dict[str, Any]) -> None:
    def compare(name: str, there: bytes, here: bytes) -> None:
        found = Emitted(kafka, emitted(kafka, name, there).prefix, "receipts", LANE)
        try:
            found.compare(1, [OutputRecord("receipts", LANE.encode(), here)])
        finally:
            found.close()

    compare("rebuild", EARLIER, GLAD)
    with pytest.raises(EmittedDiffers, match="receipts has session 1, the rebuild 2"):
        compare("rebuild-other", EARLIER, OTHER)
    with pytest.raises(EmittedDiffers, match="receipts has mood 1, the rebuild 2"):
        compare("rebuild-same", GLAD, SAD)


def test_deployments_are_compared_by_the_fields_that_both_programs_have(kafka: dict[str, Any]) -> None:
    earlier, glad, sad, other = (
        emitted(kafka, name, value)
        for name, value in {"earlier": EARLIER, "glad": GLAD, "sad": SAD, "other": OTHER}.items()
    )

    def different(one: Deployment, two: Deployment) -> list[str]:
        found: Against = compare_deployments(one, two, LANE)
        assert found.compared == 1
        return [each.field for each in found.differences]

    assert different(earlier, glad) == different(glad, earlier) == []
    assert different(earlier, other) == ["session"]
    assert different(glad, sad) == ["mood"]
