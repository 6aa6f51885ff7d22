# SPDX-License-Identifier: Apache-2.0
"""Objects for operators of Kubernetes: the alerts for that of Prometheus, topics and users for Strimzi."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.config import load_config
from validator.kafka.topics import topic_config
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, METRICS_TOPIC, TOPICS

if TYPE_CHECKING:
    from validator.config.model import Topics
    from validator.topics import Topic

ROOT: Final = Path(__file__).parents[1]
MANIFESTS: Final = ROOT / "deploy" / "kubernetes"
TOML: Final = "base/validator.toml"
TOPICS_FILE, USERS_FILE, RULES_FILE = "strimzi/topics.yaml", "strimzi/users.yaml", "monitoring/rules.yaml"
RULES: Final = ROOT / "deploy" / "prometheus" / "validator.rules.yml"
RIGHTS: Final = ROOT / "docs" / "operations.md"

MADE: Final = "# Made by `python -m deploy.generate` from {source}: change that.\n"

CLUSTER: Final = "kafka"
"""Name of the cluster of brokers in `kubernetes/strimzi/kafka.yaml`."""

USERS: Final = {
    "the job": "validator-job",
    "a transport": "validator-transport",
    "producers": "validator-producers",
    "readers": "validator-readers",
}
"""The names on Kafka of the users of `docs/operations.md`. Topics are made by Strimzi, so nobody has the rights of `topics create`."""

RESOURCES: Final = {"topics": "topic", "groups": "group", "transactional ids": "transactionalId"}


def made_manifests() -> dict[Path, str]:
    """Return the manifests that are made, by their paths."""
    return {
        MANIFESTS / RULES_FILE: rules(),
        MANIFESTS / TOPICS_FILE: topics(),
        MANIFESTS / USERS_FILE: users(),
    }


def rules() -> str:
    """Return the alerts as an object of the Prometheus operator."""
    text = RULES.read_text(encoding="utf-8")
    head, groups = text.split("groups:\n", 1)
    made = MADE.format(source="deploy/prometheus/validator.rules.yml")
    return f"""\
{made}{head}apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: validator
  namespace: validator
  labels:
    app.kubernetes.io/name: validator
spec:
  groups:
{"".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))}"""


def configured() -> Topics:
    """Return what the manifests' configuration says of topics."""
    return load_config(MANIFESTS / TOML).topics


def topics() -> str:
    """Return every topic as an object of Strimzi: those of the job, of metrics, and of the transport `dry-run`."""
    every = (*TOPICS, METRICS_TOPIC, CURSORS_TOPIC, *DRY_RUN_TOPICS)
    return MADE.format(source="validator/topics.py") + "---\n".join(map(_topic, every))


def _topic(topic: Topic) -> str:
    config = configured()
    partitions = f"{config.input_partitions} # of an input" if topic.direction == "in" else config.output_partitions
    options = "".join(
        f"    {name}: {json.dumps(value)}\n" for name, value in topic_config(topic, topic.retention_ms).items()
    )
    return f"""\
# {topic.purpose}
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata:
  name: validator-{topic.name}
  namespace: kafka
  labels:
    strimzi.io/cluster: {CLUSTER}
spec:
  topicName: {config.prefix}{topic.name}
  partitions: {partitions}
  replicas: {config.replication_factor}
  config:
{options}"""


def rights(page: str) -> dict[str, list[tuple[str, str, list[str]]]]:
    """Return the rights of each user that a page lists: kind of resource, name or prefix with ``*``, operations.

    Raises `ValueError` for a row of another form.
    """
    found = {}
    for user in USERS:
        (row,) = re.findall(rf"(?m)^\| {re.escape(user)} \| (.*) \|$", page)
        found[user] = [right for each in row.split("; ") for right in _rights(each)]
    return found


def _rights(text: str) -> list[tuple[str, str, list[str]]]:
    match = re.fullmatch(r"([A-Za-z, ]+) on (topics|groups|transactional ids) `(.+)`", text)
    if match is None:
        raise ValueError(f"{RIGHTS.name}: expected OPERATIONS on KIND `NAME`, `NAME`, found {text!r}")
    return [(RESOURCES[match[2]], name, match[1].split(", ")) for name in match[3].split("`, `")]


def users() -> str:
    """Return the users as objects of Strimzi, with the rights of the page and no others."""
    prefix = configured().prefix
    listed = rights(RIGHTS.read_text(encoding="utf-8"))
    return MADE.format(source="docs/operations.md, Rights on Kafka") + "---\n".join(
        _user(user, name, "".join(_acl(*each, prefix) for each in listed[user])) for user, name in USERS.items()
    )


def _user(user: str, name: str, acls: str) -> str:
    return f"""\
# {user}
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata:
  name: {name}
  namespace: kafka
  labels:
    strimzi.io/cluster: {CLUSTER}
spec:
  authentication:
    type: scram-sha-512
  authorization:
    type: simple
    acls:
{acls}"""


def _acl(kind: str, name: str, operations: list[str], prefix: str) -> str:
    pattern = "prefix" if name.endswith("*") else "literal"
    return f"""\
      - resource:
          type: {kind}
          name: {name.removesuffix("*").replace("<prefix>", prefix)}
          patternType: {pattern}
        operations: [{", ".join(operations)}]
"""
