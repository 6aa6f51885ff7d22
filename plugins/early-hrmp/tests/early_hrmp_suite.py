# SPDX-License-Identifier: Apache-2.0
"""Makes the conformance suite of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import early_hrmp_closing
import early_hrmp_messages
import early_hrmp_requests
import early_hrmp_sessions
from early_hrmp_trace import Json, Trace

from validator.testing import suite_text

SUITE = Path(__file__).resolve().parents[1] / "src" / "validator_early_hrmp" / "conformance"
GROUPS: dict[str, Callable[[], Iterator[Trace]]] = {
    "requests": early_hrmp_requests.scenarios,
    "closing": early_hrmp_closing.scenarios,
    "messages": early_hrmp_messages.messages,
    "watermark": early_hrmp_messages.watermarks,
    "downward": early_hrmp_messages.downward,
    "offboarding": early_hrmp_sessions.offboarding,
    "boundary": early_hrmp_sessions.boundaries,
    "delayed": early_hrmp_sessions.delayed,
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
