# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete."""

from __future__ import annotations

from validator_xcmp import errors
from validator_xcmp.proof_documents import GROUPS, vectors
from validator_xcmp.rules import XCMP
from validator_xcmp.state import check_invariants
from xcmp_rule_set import SHARED
from xcmp_suite import SUITE, all_scenarios, made
from xcmp_trace import Json, as_record
from xcmp_vectors import vectors_document

from validator.plugin.protocol_api import LaneRules, Node, Violation
from validator.testing import ProtocolContract

SAMPLES = SHARED / "xcmp_samples.json"
READINGS = [f"X-I{number:02}" for number in range(1, 18)]
RESULT_KEYS = {
    **dict.fromkeys(("msg_hash", "batch_hash"), ("hash",)),
    **dict.fromkeys(("hrmp_link", "xcmp_link"), ("head",)),
    **dict.fromkeys(("cst_root", "mq_root", "msg_root"), ("root",)),
    "proofs": ("ok",),
}
"""By group, what is recomputed; an entry of another group has the whole result under ``expect``."""


class TestProtocol(ProtocolContract):
    """The suite, and the samples if they exist."""

    protocol = "xcmp"
    violations = tuple(
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Violation) and each.kind
    )
    files = (SAMPLES,) if SAMPLES.exists() else ()

    def check(self, rules: LaneRules) -> None:
        """Check the invariants."""
        assert rules.rule_set is XCMP
        check_invariants(rules.state)

    def as_record(self, item: Json) -> Json:
        """Name the call, and the parts of a watermark."""
        return as_record(item)


def test_files_match_scenarios() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in SUITE.iterdir()} == made(), "run make generate"


def test_every_reading_has_scenario() -> None:
    met = {each["id"] for scenario in all_scenarios() for each in scenario.get("interpretation", ())}
    assert sorted(met) == READINGS


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
