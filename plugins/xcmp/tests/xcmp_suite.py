# SPDX-License-Identifier: Apache-2.0
"""Makes the conformance suite of the package."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import xcmp_candidates
import xcmp_requests
import xcmp_sessions
from xcmp_trace import Json, Trace
from xcmp_vectors import vectors_document

from validator.testing import suite_text

SUITE = Path(__file__).resolve().parents[1] / "src" / "validator_xcmp" / "conformance"
GROUPS: dict[str, Callable[[], Iterator[Trace]]] = {
    "opening": xcmp_requests.opening,
    "accepting": xcmp_requests.accepting,
    "ageing": xcmp_requests.ageing,
    "close_requests": xcmp_requests.requests_to_close,
    "bitfield": xcmp_candidates.bitfields,
    "watermark": xcmp_candidates.watermarks,
    "enactment": xcmp_candidates.enactments,
    "downward": xcmp_candidates.downward,
    "closing": xcmp_sessions.closings,
    "offboarding": xcmp_sessions.offboarding,
    "roots": xcmp_sessions.roots,
}


def text_of(group: str) -> str:
    """Return a group's file."""
    return suite_text(trace.json for trace in GROUPS[group]())


def vectors_text() -> str:
    """Return the file of vectors: one line for each entry."""
    parts = []
    for name, entries in vectors_document().items():
        if isinstance(entries, list):
            lines = ",\n  ".join(json.dumps(entry) for entry in entries)
            parts.append(f'"{name}": [\n  {lines}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(entries)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def made() -> dict[Path, str]:
    """Return the suite's files."""
    return {SUITE / f"{group}.json": text_of(group) for group in GROUPS} | {SUITE / "vectors.json": vectors_text()}


def all_scenarios() -> list[Json]:
    """Return every scenario of the suite."""
    return [trace.json for scenarios in GROUPS.values() for trace in scenarios()]
