# SPDX-License-Identifier: Apache-2.0
"""Writes the table of `docs/changing.md`: when a change of each key takes effect. Run it with ``python -m tests.tidy.change_page``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from validator.config.changes import CHAIN, EFFECTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "changing.md"

NOTES: Final[dict[str, str]] = {
    "topics.prefix": "a checkpoint belongs to its topics: another prefix needs another `[job] directory`",
    "topics.input_partitions": "[add partitions](#add-partitions) to an existing topic",
    "topics.output_partitions": "[add partitions](#add-partitions) to an existing topic",
    "topics.replication_factor": "change an existing topic with Kafka's tools",
    "topics.retention_ms": "change an existing topic with Kafka's tools",
    "kafka": "the same cluster under any address: an input topic with another id than before (`topics.json` in the job's folder), or that "
    "ends before the checkpoint's offsets, is refused",
    "job.directory": "move the folder together with the key, while the job is stopped",
    "job.state_partitions": "Spark keeps the number of an existing checkpoint",
    "job.rebuild": "has an effect only without a checkpoint",
    "job.duplicate_window_blocks": "for a redelivered record: a duplicate or a dead letter",
    "job.headroom_interval_blocks": "verdicts do not depend on it",
    "job.root_interval_blocks": "verdicts do not depend on it; roots are compared where both sides have one",
    "plugins.lock": "the plugins of executed blocks must be among those that it names",
    "plugins.artefacts": "the plugins of executed blocks must be among those that they hold",
    CHAIN: "records that arrived before a lane was added are dead letters: replay them",
    f"{CHAIN}.protocol": "another protocol is another chain",
    f"{CHAIN}.first_block": "of a state file, too",
    f"{CHAIN}.state": "another file with the same state is no change; nor is an import (`validator lanes import`) of it",
    f"{CHAIN}.limits": "or the table of the chain's protocol, as `host_configuration`; a running chain's limits change with a "
    "`session_change`",
    f"{CHAIN}.handlers": "whether the chain has the list at all",
    f"{CHAIN}.handlers.name": "an entry may be added, and one whose block is not executed may be removed",
    f"{CHAIN}.handlers.version": "keep the versions of executed blocks installed",
    f"{CHAIN}.rules.from_block": "an entry may be added, and one whose block is not executed may be removed",
}


def table() -> str:
    """Return the table, as Markdown."""
    rows = [f"| `{key}` | {effect.value} | {NOTES.get(key, '')} |" for key, effect in EFFECTS.items()]
    return "\n".join(["| key | a change takes effect | |", "|---|---|---|", *rows])


def render(text: str) -> str:
    """Return the page with the present table."""
    return re.sub(r"^\| key \|.*?(?=\n\n)", lambda _: table(), text, count=1, flags=re.MULTILINE | re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
