# SPDX-License-Identifier: Apache-2.0
"""What `validator topics list` says of the retention of each topic, through a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.cli.follower import invoke
from validator.cli.topics import duration
from validator.config.toml import to_toml
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics
from validator.topics import DAY_MS, TOPICS

PREFIX = "kept."


@pytest.mark.broker
def test_retention_is_that_of_the_cluster_or_else_the_configured_one(kafka: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "validator.toml"
    topics = {"prefix": PREFIX, "retention_ms": {"verdicts": 3 * DAY_MS, "dispatches": 5 * DAY_MS}}
    config.write_text(to_toml({"kafka": kafka, "topics": topics}), encoding="utf-8")
    create_topics(kafka, prefix=PREFIX, topics=[each for each in TOPICS if each.name != "dispatches"])
    changed = {"retention.ms": "5400000", "retention.bytes": "4096"}
    resource = ConfigResource(
        ResourceType.TOPIC,
        f"{PREFIX}blocks",
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in changed.items()
        ],
    )
    admin = AdminClient(admin_config(kafka))  # kept referenced: otherwise the answer does not arrive
    admin.incremental_alter_configs([resource])[resource].result()

    listed = invoke("topics", "list", "--json", f"--config={config}")
    rows = {row["name"].removeprefix(PREFIX): row for row in map(json.loads, listed.stdout.splitlines())}
    found = {name: (row["retention_ms"], row["retention_bytes"], row["retention_of"]) for name, row in rows.items()}
    assert found["blocks"] == (5_400_000, 4_096, "cluster")
    assert found["verdicts"] == (7 * DAY_MS, -1, "cluster"), "what the file says is for topics that are created later"
    assert found["dispatches"] == (5 * DAY_MS, -1, "configuration"), "it is missing"
    assert found["receipts"] == (-1, -1, "cluster")
    assert found["markers"] == (None, None, "cluster"), "the cluster's default has no effect on a compacted topic"
    shown = {
        line.split()[0].removeprefix(PREFIX): line
        for line in invoke("topics", "list", f"--config={config}").stdout.splitlines()
    }
    assert " 90 minutes, at most 4096 bytes of a partition " in shown["blocks"]
    assert " 7 days " in shown["verdicts"]
    assert " (5 days) " in shown["dispatches"]
    assert " forever " in shown["receipts"]
    assert " newest of each key " in shown["markers"]


@pytest.mark.parametrize(
    ("ms", "words"),
    [(DAY_MS, "1 day"), (36 * 3_600_000, "36 hours"), (60_000, "1 minute"), (1_001, "1001 ms"), (0, "0 ms")],
)
def test_duration_is_in_the_largest_whole_unit(ms: int, words: str) -> None:
    assert duration(ms) == words
