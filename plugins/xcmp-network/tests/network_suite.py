# SPDX-License-Identifier: Apache-2.0
"""Makes the conformance suite of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import network_acks
import network_queues
import network_sessions
from network_trace import Json, Trace

from validator.testing import suite_text

SUITE = Path(__file__).resolve().parents[1] / "src" / "validator_xcmp_network" / "conformance"
GROUPS: dict[str, Callable[[], Iterator[Trace]]] = {
    "queues": network_queues.queues,
    "outbox": network_queues.outboxes,
    "bounds": network_queues.bounds,
    "acks": network_acks.acknowledgements,
    "liveness": network_acks.liveness,
    "fairness": network_acks.fairness,
    "inside": network_acks.inside_a_block,
    "bodies": network_sessions.bodies,
    "sessions": network_sessions.sessions,
    "composed": network_sessions.composed,
}


def text_of(group: str) -> str:
    """Return a group's file."""
    return suite_text(trace.json for trace in GROUPS[group]())


def made() -> dict[Path, str]:
    """Return the suite's files."""
    return {SUITE / f"{group}.json": text_of(group) for group in GROUPS}


def all_scenarios() -> list[Json]:
    """Return every scenario of the suite."""
    return [trace.json for scenarios in GROUPS.values() for trace in scenarios()]
