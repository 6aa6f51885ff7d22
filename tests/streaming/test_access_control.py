# SPDX-License-Identifier: Apache-2.0
"""On a Kafka with access control, the rights that docs/operations.md lists suffice for the job, a transport, producers and readers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.cli.follower import invoke
from tests.streaming.harness import produce
from tests.streaming.processes import job
from tests.streaming.reference import IMMEDIATE, chains, reference
from tests.tidy.tree import ROOT
from validator import exit_codes
from validator.client import connect
from validator.config import load_config
from validator.kafka import broker as broker_module
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.client import admin_config
from validator.kafka.login import USER
from validator.service.toml import to_toml

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "acme."
PASSWORD = "not a secret"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:broker;User:{USER}",
}
KINDS = {
    "topics": ResourceType.TOPIC, "groups": ResourceType.GROUP, "transactional ids": ResourceType.TRANSACTIONAL_ID,
}  # fmt: skip
USERS = ("the job", "a transport", "producers", "readers", "topics create")


def rights(user: str) -> list[AclBinding]:
    """Return the rights that the page gives to a user, whose name here has no blanks."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"(?m)^\| {re.escape(user)} \| (.*) \|$", text)
    found = []
    for right in row.split("; "):
        match = re.fullmatch(r"([A-Za-z, ]+) on (topics|groups|transactional ids) `(.+)`", right)
        assert match is not None, right
        operations, kind, names = match.groups()
        for name in names.split("`, `"):
            form = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
            pattern = KINDS[kind], name.removesuffix("*").replace("<prefix>", PREFIX), form
            found += [
                AclBinding(*pattern, f"User:{login(user)}", "*", AclOperation[each.upper()], AclPermissionType.ALLOW)
                for each in operations.split(", ")
            ]
    return found


def login(user: str) -> str:
    return user.replace(" ", "-")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Start a broker with access control, and yield the `[kafka]` tables of the page's users by their name there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_module, "_PROPERTIES", broker_module._PROPERTIES | AUTHORIZER)
        with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
            admin = AdminClient(admin_config(broker.kafka))
            kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            users = [UserScramCredentialUpsertion(login(user), kind, PASSWORD.encode()) for user in USERS]
            asked = [
                *admin.alter_user_scram_credentials(users).values(),
                *admin.create_acls([each for user in USERS for each in rights(user)]).values(),
            ]
            for each in asked:
                each.result()
            yield {user: {**broker.kafka, "sasl.username": login(user), "sasl.password": PASSWORD} for user in USERS}


@pytest.mark.long
@pytest.mark.spark
def test_documented_rights_suffice(guarded: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    chain = chains()[0]
    expected = reference(IMMEDIATE)["verdicts"]
    candidate = [body for block in chain.blocks for topic, body in block.records if topic == "candidates"][-1]

    def configured(user: str) -> Path:
        """Write the configuration of a user: with the same folder of the job for all."""
        tables = {"topics": {"prefix": PREFIX}, "kafka": guarded[user], "metrics": {"listen": "127.0.0.1:0"}}
        job_table = {"directory": str(tmp_path / "job"), "driver_memory": "1g"}
        path = tmp_path / f"{login(user)}.toml"
        path.write_text(to_toml({**tables, "job": job_table, "chains": {chain.lane: chain.table}}), encoding="utf-8")
        return path

    def ended(user: str, *command: str) -> str:
        result = invoke(*command, "--config", str(configured(user)))
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    refused = invoke("topics", "create", "--config", str(configured("readers")))
    assert "could not be created" in refused.output
    made = ended("topics create", "topics", "create", "--transport=dry-run")
    for name in ("verdicts", "metrics", "cursors", "dry-run-requests", "dry-run-answers"):
        assert re.search(rf"(?m)^{re.escape(PREFIX + name)} +created$", made), made
    produce(guarded["producers"], PREFIX, chain.records)
    blocks = sum(record.topic == "blocks" for record in chain.records)
    config = load_config(configured("the job")).model_dump(mode="json", exclude_none=True)
    (tmp_path / "configuration.json").write_text(json.dumps(config), encoding="utf-8")
    with job(tmp_path / "configuration.json") as running:
        running.wait_for_records(guarded["readers"], PREFIX, "receipts", blocks)
        assert running.terminate() == exit_codes.OK
    verdicts = ended("readers", "watch", "verdicts", "--from-beginning", "--json", f"--count={len(expected)}")
    assert len(verdicts.splitlines()) == len(expected)
    assert chain.lane in ended("readers", "lanes")

    command = [sys.executable, "-m", "validator", "transport", "run", "dry-run"]
    transport = subprocess.Popen([*command, f"--config={configured('a transport')}"])
    try:
        with connect(configured("the job")) as client:
            answer = client.dry_run(chain.lane, {**candidate, "block": blocks + 1}, timeout_s=120)
    finally:
        transport.terminate()
        assert transport.wait() == 0
    assert answer.block == blocks + 1
