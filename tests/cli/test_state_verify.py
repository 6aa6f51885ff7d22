# SPDX-License-Identifier: Apache-2.0
"""`validator state verify`, on states made in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.follower import LANE
from tests.cli.stored_job import BATCH, Job, refused
from validator.kafka.settings import admin_config


def test_lane_equal_to_its_topics_verifies(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records[:-1], batches=7)
    result = followed.verify()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(
        f"OK: lane {LANE} after block 59, batch {BATCH} equals the lane rebuilt from "
    )
    assert "differs" not in result.stdout
    (printed,) = [json.loads(line) for line in followed.verify("--json", f"--lane={LANE}").stdout.splitlines()]
    assert (printed["ok"], printed["records"], printed["executed_block"]) == (True, len(followed.chain.records) - 1, 59)
    checks = {check["what"]: check for check in printed["checks"]}
    assert checks["waiting records"]["stored"] != "0 records"
    assert checks["last receipts on the topic"]["stored"].startswith("59 compared, ")
    assert all(check["same"] for check in checks.values())


def test_later_inputs_and_duplicates_do_not_matter(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    half = len(records) // 2
    # records sent again are late or duplicates in any batch; and the topics continue beyond the consumed offsets
    again = [*records[:half], *records[: half // 2], *records[half:], *records[-40:]]
    followed.follow(again, batches=5)
    before = dict(followed.consumed)
    followed.follow(records[:30], batches=1, judged=[])
    assert followed.consumed == before
    result = followed.verify("--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == len(again)


def test_lane_with_another_history_differs(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    accepted = {
        (each["block"], each["index"]) for each in followed.chain.expected if each["kind"] == "downward" and each["ok"]
    }
    place = next(
        at
        for at, (kind, record) in enumerate(records)
        if kind == "downward-messages" and (record["block"], record["index"]) in accepted
    )
    forged = deepcopy(records)
    forged[place][1]["msg"] = "ff" + forged[place][1]["msg"][2:]
    followed.follow(records, judged=forged)
    para = records[place][1]["para_id"]
    result = followed.verify()
    assert result.exit_code == 1, result.output
    assert f"DIFFERENT: lane {LANE} after block 30" in result.stdout
    assert f"  pages of paras: para {para}\n" in result.stdout, result.stdout
    printed = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in printed["checks"] if not check["same"]}
    assert not printed["ok"]
    assert {"state root", "pages of paras", "fingerprints of records"} <= differing
    assert not {"executed block", "consumed", "accepted", "waiting records"} & differing


def test_lost_record_is_found(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records, judged=followed.chain.records[:-1])
    kind = followed.chain.records[-1][0]
    followed.consumed[followed.prefix + kind, 0] += 1
    printed = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in printed["checks"] if not check["same"]}
    assert {"executed block", "consumed", "waiting records"} <= differing


def test_inputs_removed_by_retention_are_named(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    admin = AdminClient(admin_config(followed.chain.config.kafka))
    for future in admin.delete_records([TopicPartition(f"{followed.prefix}blocks", 0, 3)]).values():
        future.result()
    refused(followed.verify(), f"block 1 is missing: {followed.prefix}blocks begins with block 4")


def test_topics_other_than_the_jobs_are_refused(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    place = (f"{followed.prefix}blocks", 0)
    followed.consumed[place] += 1
    refused(followed.verify(), f"{place[0]}[0] ends at offset 30, but the checkpoint's batch has consumed it up to 31")
    followed.consumed = {("other.blocks", 0): 30}
    refused(followed.verify(), "[topics] prefix: the checkpoint belongs to the topics other.blocks, expected ")


def test_unconfigured_lane_cannot_be_verified(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    refused(followed.verify("--lane=kusama"), "--lane: its first block is unknown: no chain 'kusama' is configured")
    text = followed.chain.config_path.read_text(encoding="utf-8").replace("chains.polkadot", "chains.kusama")
    followed.chain.config_path.write_text(text, encoding="utf-8")
    result = followed.verify()
    assert result.exit_code == 2
    assert "lane polkadot is skipped: it is not configured" in result.stderr
    assert "none of the configured lanes is in the checkpoint" in result.stderr


def test_changed_configuration_is_reported(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    text = followed.chain.config_path.read_text(encoding="utf-8")
    followed.chain.config_path.write_text(
        text.replace("ump_default_weight = ", "ump_default_weight = 1"), encoding="utf-8"
    )
    result = followed.verify()
    # the lane is rebuilt under the configuration that it is stored under
    assert result.exit_code == 0, result.output
    assert "the configuration differs from the one that its state was stored with" in result.stderr
