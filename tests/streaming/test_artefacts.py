# SPDX-License-Identifier: Apache-2.0
"""Executors import a plugin that is not installed from a packed artefact; a fault of the plugin ends the job's process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.distributions import files_of, packed
from tests.streaming.harness import consume, decoded, produce
from tests.streaming.processes import JobProcess, job
from tests.streaming.test_faults import EXITS, FAULT_AT, FAULTY, LANE, records
from validator import exit_codes
from validator.kafka.topics import create_topics
from validator.metrics.definitions import BY_NAME
from validator.plugin.pack import pack

pytestmark = pytest.mark.spark


def configuration(directory: Path, kafka: dict[str, Any], prefix: str, artefacts: list[Path]) -> Path:
    settings = {
        "topics": {"prefix": prefix},
        "kafka": dict(kafka),
        "job": {"directory": str(directory / "job"), "driver_memory": "1g", "master": "local-cluster[1,1,1024]"},
        "metrics": {"listen": "127.0.0.1:0"},
        "plugins": {"artefacts": [str(each) for each in artefacts]},
        "chains": {
            LANE: {
                "host_configuration": {"preset": "polkadot-2023"},
                "genesis_paras": [{"para_id": 2000}, {"para_id": 2001}],
                "handlers": [{"name": "faulty", "version": "1.0.0"}],
            }
        },
    }
    path = directory / "configuration.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def failed(running: JobProcess) -> dict[str, Any]:
    events = running.events()
    assert [each["event"] for each in events if each["event"] == "restarting"] == []
    assert events[-1]["event"] == "failed"
    return events[-1]


def scraped(running: JobProcess) -> dict[tuple[str, ...], float]:
    """Return what the job's endpoint serves, by name and labels."""
    with urlopen(running.named("metrics")[0]["address"]) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *in_order(sample.name, sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def in_order(name: str, labels: dict[str, str]) -> list[str]:
    return [labels[label] for label in BY_NAME[name].labels] if name in BY_NAME else list(labels.values())


def check_scrape(found: dict[tuple[str, ...], float], dispatches: int) -> None:
    """One scrape has what the driver and an executor in a separate process know of a lane whose handler fails."""
    assert found["validator_job_ready",] == found["validator_metrics_kafka_up",] == 1
    assert found["validator_job_batches_total",] >= 1
    assert found["validator_job_batch_duration_seconds_count",] == found["validator_job_batches_total",]
    assert found["validator_lane_state", LANE, "parked"] == 1
    assert ("validator_lane_state", LANE, "running") not in found
    assert found["validator_lane_executed_block", LANE] == FAULT_AT - 1
    assert found["validator_lane_blocks_behind", LANE] == found["validator_lane_newest_block", LANE] - FAULT_AT + 1 > 0
    assert found["validator_lane_seconds_behind", LANE] > 0
    assert found["validator_lane_records_total", LANE, "accepted"] > 0
    assert found["validator_lane_batch_part_seconds_total", LANE, "execute"] > 0
    assert found["validator_para_upward_dispatched_total", LANE, "2000"] == dispatches > 0
    assert found["process_cpu_seconds_total",] > 0


def test_executors_import_artefact_and_its_fault_parks_the_lane(kafka: dict[str, Any], tmp_path: Path) -> None:
    prefix = "artefacts."
    create_topics(kafka, prefix=prefix)
    wheel = packed(tmp_path / "throwaway_faulty-1.0.0-py3-none-any.whl", files_of("faulty", "1.0.0", FAULTY))
    artefact = pack(str(wheel), tmp_path / "artefacts").path
    given = records(EXITS)
    before, after = given[: 2 * (FAULT_AT - 1)], given[2 * (FAULT_AT - 1) :]
    produce(kafka, prefix, before)
    with job(configuration(tmp_path, kafka, prefix, [artefact])) as running:
        running.wait_for_records(kafka, prefix, "receipts", FAULT_AT - 1)
        running.wait_for_records(kafka, prefix, "lanes", 1)
        statuses = len(consume(kafka, prefix, ("lanes",))["lanes"])
        produce(kafka, prefix, after)
        running.wait_for_records(kafka, prefix, "lanes", statuses + 1)
        running.wait_for(
            lambda: ("validator_lane_parked", LANE, "handler") in scraped(running), "the scrape says parked"
        )
        found = scraped(running)
        assert running.terminate() == exit_codes.OK
    parked = decoded(consume(kafka, prefix, ("lanes",)), "lanes")[-1]
    assert "handler faulty@1.0.0 (exits): SystemExit raised, at " in parked["reason"]
    assert f"; block {FAULT_AT}, para " in parked["reason"]
    dispatches = decoded(consume(kafka, prefix, ("dispatches",)), "dispatches")
    assert {each["handler"] for each in dispatches} == {"faulty@1.0.0"}
    assert {each["block"] for each in dispatches} == set(range(1, FAULT_AT))
    check_scrape(found, sum(each["para_id"] == 2000 for each in dispatches))
