# SPDX-License-Identifier: Apache-2.0
"""Objects for operators of Kubernetes: the alerts for that of Prometheus, topics and users for Strimzi."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from validator.config import load_config
from validator.kafka.topics import topic_config
from validator.rights import RIGHTS
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, METRICS_TOPIC, TOPICS

if TYPE_CHECKING:
    from validator.config.model import Topics
    from validator.rights import Right
    from validator.topics import Topic

ROOT: Final = Path(__file__).parents[1]
MANIFESTS: Final = ROOT / "deploy" / "kubernetes"
TOML: Final = "base/validator.toml"
TOPICS_FILE, USERS_FILE, RULES_FILE = "strimzi/topics.yaml", "strimzi/users.yaml", "monitoring/rules.yaml"
RULES: Final = ROOT / "deploy" / "prometheus" / "validator.rules.yml"

MADE: Final = "# Made by `make generate` from {source}: change that.\n"

CLUSTER: Final = "kafka"
"""Name of the cluster of brokers in `kubernetes/strimzi/kafka.yaml`."""

USERS: Final = {
    "the job": "validator-job",
    "a transport": "validator-transport",
    "producers": "validator-producers",
    "consumers": "validator-consumers",
    "readers": "validator-readers",
    "who asks dry runs": "validator-dry-runs",
    "who replays dead letters": "validator-replays",
}
"""The names on Kafka of the users of `validator.rights`. Topics are made by Strimzi, so nobody has the rights of `topics create`."""

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


def users() -> str:
    """Return the users as objects of Strimzi, with the rights that suffice and no others."""
    prefix = configured().prefix
    return MADE.format(source="validator/rights.py") + "---\n".join(
        _user(user, name, "".join(_acl(right, each, prefix) for right in RIGHTS[user] for each in right.names))
        for user, name in USERS.items()
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


def _acl(right: Right, name: str, prefix: str) -> str:
    pattern = "prefix" if name.endswith("*") else "literal"
    return f"""\
      - resource:
          type: {RESOURCES[right.kind]}
          name: {prefix}{name.removesuffix("*")}
          patternType: {pattern}
        operations: [{", ".join(right.operations)}]
"""
