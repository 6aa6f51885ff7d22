# SPDX-License-Identifier: Apache-2.0
"""Writes the table of `docs/changing.md`: when a change of each key takes effect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel

from validator.config import Config
from validator.job.start_check import CHAIN, ROWS, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    f"{CHAIN}.handlers": "the first entry; a chain without entries that had some needs `--accept-change LANE:BLOCK`",
    f"{CHAIN}.handlers.name": "an entry may be added, and one whose block is not executed may be removed",
    f"{CHAIN}.handlers.version": "keep the versions of executed blocks installed",
    f"{CHAIN}.rules.from_block": "an entry may be added, and one whose block is not executed may be removed",
}


def configuration_keys() -> list[str]:
    """Return every key of the configuration, in the model's order. Entries of a list share one; a table with free keys is one."""
    return list(_keys(Config, ""))


def _keys(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{path}{name}"
        inner = _table_in(field.annotation)
        if inner is None:
            yield key
        elif key == "chains":
            yield from (CHAIN, *_keys(inner, f"{CHAIN}."))
        else:
            if key == f"{CHAIN}.handlers":  # without the list, messages are only weighed: that it exists matters, too
                yield key
            yield from _keys(inner, f"{key}.")


def _table_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a table, or of the tables in a list or table; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _table_in(each)) is not None), None)


def row_of(key: str) -> Row | None:
    """Return the row of a key, or of the innermost table that has one; that of a chain is for the chain as a whole."""
    table = key
    while table and table not in ROWS:
        table = table.rpartition(".")[0]
    return None if table == CHAIN != key else ROWS.get(table)


def table() -> str:
    """Return the table, as Markdown."""
    rows = ["| key | a change takes effect | a start compares it | |", "|---|---|---|---|"]
    for key in configuration_keys():
        row = row_of(key)
        assert row is not None, key
        rows.append(f"| `{key}` | {row.effect.value} | {row.compared} | {NOTES.get(key, '')} |")
    return "\n".join(rows)


def made() -> dict[Path, str]:
    """Return the page with the present table."""
    text = PAGE.read_text(encoding="utf-8")
    return {PAGE: re.sub(r"^\| key \|.*?(?=\n\n)", lambda _: table(), text, count=1, flags=re.MULTILINE | re.DOTALL)}
