# SPDX-License-Identifier: Apache-2.0
"""All targets, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import channel, payloads, records, relay_chain, stored, texts

if TYPE_CHECKING:
    from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    each.name: each
    for each in (
        *records.TARGETS,
        *texts.TARGETS,
        *stored.TARGETS,
        *payloads.TARGETS,
        *channel.TARGETS,
        *relay_chain.TARGETS,
    )
}
