# SPDX-License-Identifier: Apache-2.0
"""Makes the conformance suite of the Router."""

from __future__ import annotations

from pathlib import Path

from tests.router import (
    chain_scenarios,
    downward_scenarios,
    heights_scenarios,
    horizontal_scenarios,
    later_downward_scenarios,
    later_notifications_scenarios,
    later_requests_scenarios,
    later_watermark_scenarios,
    message_queue_scenarios,
    notifications_scenarios,
    order_scenarios,
    requests_scenarios,
    session_scenarios,
    signals_scenarios,
    system_channels_scenarios,
    upward_scenarios,
    watermark_scenarios,
)
from tests.router.trace import Json
from validator.testing import suite_text

SUITE = Path(__file__).resolve().parents[2] / "validator" / "protocols" / "router" / "conformance"
GROUPS = {
    "requests": requests_scenarios,
    "session": session_scenarios,
    "horizontal": horizontal_scenarios,
    "watermark": watermark_scenarios,
    "downward": downward_scenarios,
    "upward": upward_scenarios,
    "notifications": notifications_scenarios,
    "order": order_scenarios,
    "heights": heights_scenarios,
    "later_notifications": later_notifications_scenarios,
    "later_requests": later_requests_scenarios,
    "later_downward": later_downward_scenarios,
    "later_watermark": later_watermark_scenarios,
    "message_queue": message_queue_scenarios,
    "system_channels": system_channels_scenarios,
    "signals": signals_scenarios,
    "chain": chain_scenarios,
}


def scenarios_of(group: str) -> list[Json]:
    """Return the scenarios of a group in their order."""
    return [trace.json for trace in GROUPS[group].scenarios()]


def text_of(group: str) -> str:
    """Return a group's file."""
    return suite_text(scenarios_of(group))


def made() -> dict[Path, str]:
    """Return every group's file."""
    return {SUITE / f"{group}.json": text_of(group) for group in GROUPS}
