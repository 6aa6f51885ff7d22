# SPDX-License-Identifier: Apache-2.0
"""The scenarios of the samples that hand over bodies: what is held, and why others are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import BodyPart, EventKind, Held, IngressEvent, RecordOffset, Refused, Settings
from validator_xcmp_bodies.parts import condense, cut, measure

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "xcmp_network_samples.json"


def scenarios() -> list[dict[str, Any]]:
    if not SAMPLES.exists():
        return []
    found = json.loads(SAMPLES.read_text())
    return [each for each in found if any("bodies" in step for step in each["steps"])]


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples of the specification are not next to this checkout")
def test_bodies_of_the_samples() -> None:
    assert scenarios(), "no sample hands over a body"
    for scenario in scenarios():
        play(scenario)


def play(scenario: dict[str, Any]) -> None:
    bodies, offset, roots = Bodies(Settings()), 0, {}
    for step in scenario["steps"]:
        block = step["block"]
        for candidate in step.get("candidates", ()):
            for message in candidate["outbox"]:
                name = candidate["para_id"], message["recipient"], block
                roots[name] = bytes.fromhex(message["root"]), message["size"]
                bodies.apply(event(EventKind.QUEUED, block, name, roots[name]))
            for sent_at, sender in candidate["acks"]:
                name = sender, candidate["para_id"], sent_at
                bodies.apply(event(EventKind.ACKNOWLEDGED, block, name, roots[name]))
        bodies.finish()
        for body, expected in zip(step.get("bodies", ()), step.get("expect", {}).get("bodies", ()), strict=True):
            payloads = [bytes.fromhex(payload) for payload in body["payloads"]]
            found, (part,) = measure(payloads), cut(payloads)
            claim = (found.root, found.size, 0, 1)
            bodies.offer(
                BodyPart(body["sender"], body["recipient"], body["sent_at"], *claim, condense(part)),
                RecordOffset(0, offset),
            )
            offset += 1
            outcomes = [each for each in bodies.finish() if isinstance(each, Held | Refused)]
            assert len(outcomes) == 1, scenario["id"]
            check(outcomes[0], expected, scenario["id"])


def check(outcome: Held | Refused, expected: dict[str, Any], scenario: str) -> None:
    if expected["ok"]:
        assert isinstance(outcome, Held), scenario
        return
    assert isinstance(outcome, Refused), scenario
    assert outcome.refusal.kind in expected.get("error_any_of", [expected["error"]["kind"]]), scenario
    if outcome.refusal.kind == expected["error"]["kind"]:
        assert {"kind": outcome.refusal.kind, **dict(outcome.refusal.fields)} == expected["error"], scenario


def event(kind: EventKind, block: int, name: tuple[int, int, int], content: tuple[bytes, int]) -> IngressEvent:
    sender, recipient, sent_at = name
    return IngressEvent(block, kind, recipient, sender, sent_at, *content)
