# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete; so do the samples."""

from __future__ import annotations

import json

import pytest
import xcmp_suite
from validator_xcmp import errors
from validator_xcmp.proof_documents import GROUPS, vectors
from xcmp_trace import as_record
from xcmp_vectors import vectors_document

from tests.rule_sets import (
    SHARED,
    Json,
    WrittenSuite,
    check_sample,
    needs_samples,
    reserve_more,
    samples,
    violations_of,
)
from validator.plugin.protocol_api import Node

SAMPLES = SHARED / "xcmp_samples.json"
VECTORS = SHARED / "xcmp_vectors_samples.json"
RESULT_KEYS = {
    **dict.fromkeys(("msg_hash", "batch_hash"), ("hash",)),
    **dict.fromkeys(("hrmp_link", "xcmp_link"), ("head",)),
    **dict.fromkeys(("cst_root", "mq_root", "msg_root"), ("root",)),
    "proofs": ("ok",),
}
"""By group, what is recomputed; an entry of another group has the whole result under ``expect``."""


class TestProtocol(WrittenSuite):
    """The suite, and the samples if they exist."""

    protocol = "xcmp"
    violations = violations_of(errors)
    files = (SAMPLES,) if SAMPLES.exists() else ()
    suite = xcmp_suite
    readings = tuple(f"X-I{number:02}" for number in range(1, 18))

    def as_record(self, item: Json) -> Json:
        """Name the call, and the parts of a watermark."""
        return as_record(item)


@pytest.mark.parametrize("scenario", samples(SAMPLES.name), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    check_sample(scenario, reserve_more)


def test_every_vector_is_recomputed() -> None:
    document = vectors_document()
    results = vectors(Node(document, "vectors"))
    groups = {group: entries for group, entries in document.items() if isinstance(entries, list)}
    assert groups.keys() == results.keys() == GROUPS.keys()
    for group, entries in groups.items():
        assert entries
        for entry, result in zip(entries, results[group], strict=True):
            keys = RESULT_KEYS.get(group)
            expected = entry["expect"] if keys is None else {key: entry[key] for key in keys}
            assert expected
            assert result == expected, (group, entry)


@needs_samples
def test_every_sample_vector_is_recomputed() -> None:
    document = json.loads(VECTORS.read_text(encoding="utf-8"))
    results = vectors(Node(document, "vectors"))
    assert sorted(results) == sorted(group for group, entries in document.items() if isinstance(entries, list))
    for group, entries in document.items():
        if isinstance(entries, list):
            expected = [
                entry["expect"] if "expect" in entry else {key: entry[key] for key in result}
                for entry, result in zip(entries, results[group], strict=True)
            ]
            assert results[group] == expected, group
