# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, made of the manifests: values take the place of what an installation may change."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.operators import (
    CLUSTER,
    MADE,
    MANIFESTS,
    ROOT,
    RULES_FILE,
    TOML,
    TOPICS_FILE,
    USERS_FILE,
    configured,
    made_manifests,
)
from validator import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHART: Final = ROOT / "deploy" / "helm" / "validator"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart, by its path in `values.yaml`; in a file's ``text``, ``{}`` is where its default stands."""

    path: str
    file: str
    text: str
    meaning: str
    count: int = 1
    """How often the text is in the file."""

    def default_in(self, source: str) -> str:
        """Return the default. Raises `ValueError` if the text is not in its file as often as it should be."""
        before, after = self.text.split("{}")
        found = re.findall(f"{re.escape(before)}(.+?){re.escape(after)}", source)
        if len(found) != self.count or len(set(found)) != 1:
            raise ValueError(f"{self.file}: expected {self.text!r} {self.count} times with one value, found {found}")
        return str(found[0])

    def in_template(self, source: str) -> str:
        """Return the file's text with the value in place of its default."""
        place = "{{ " + f".Values.{self.path}" + " }}"
        return source.replace(self.text.replace("{}", self.default_in(source)), self.text.replace("{}", place))


SPARK, JOB = "base/spark-defaults.conf", "base/job.yaml"
CONSOLE, TRANSPORT, STORAGE = "console/console.yaml", "transport/transport.yaml", "base/storage.yaml"
NETWORK, MONITOR = "base/network.yaml", "monitoring/monitor.yaml"

VALUES: Final = (
    Value("kafka.bootstrapServers", TOML, '"bootstrap.servers" = "{}"', "Addresses of the brokers."),
    Value("kafka.securityProtocol", TOML, '"security.protocol" = "{}"', ""),
    Value("kafka.saslMechanism", TOML, '"sasl.mechanism" = "{}"', ""),
    Value("kafka.username", TOML, '"sasl.username" = "{}"', ""),
    Value(
        "kafka.secret", JOB, "secretRef: { name: {} }",
        "Secret with VALIDATOR_KAFKA__SASL__PASSWORD, and any other secret key of the configuration likewise.",
    ),
    Value(
        "kafka.authority", JOB, "configMapKeyRef: { name: {}, key",
        "ConfigMap with the certificate authority of the brokers in ca.crt; without it the system's authorities are used.",
    ),
    Value("topics.prefix", TOML, 'prefix = "{}"', "What the names of all topics begin with."),
    Value("topics.inputPartitions", TOML, "input_partitions = {}\n", "Partitions of each input topic: as many as there are busy chains."),
    Value("topics.replicationFactor", TOML, "replication_factor = {}\n", ""),
    Value("job.statePartitions", TOML, "state_partitions = {}   #", "One or two for each executor; the checkpoint keeps the first number."),
    Value("job.driverMemory", TOML, 'driver_memory = "{}"', "Heap of the driver."),
    Value("job.workerMemory", TOML, 'worker_memory = "{}"', "Memory of a Python worker with lanes."),
    Value("driver.cpu", JOB, 'requests: { cpu: "{}", memory: 3Gi }', ""),
    Value("driver.memory", JOB, "memory: {} }\n            limits: { memory: 4Gi }", ""),
    Value("driver.memoryLimit", JOB, "limits: { memory: {} }\n          securityContext: *container", ""),
    Value("executors.count", SPARK, "spark.executor.instances" + 62 * " " + "{}\n", "Executors, of one core each."),
    Value("executors.memory", SPARK, "spark.executor.memory " + 64 * " " + "{}\n", "Heap of an executor."),
    Value(
        "executors.memoryOverhead", SPARK, "spark.executor.memoryOverhead" + 57 * " " + "{}\n",
        "For its Python workers: job.workerMemory, 192 MiB for each lane's Kafka clients, and the decode worker.",
    ),
    Value("storage.size", STORAGE, "storage: {}\n", "Size of the job's folder."),
    Value("metrics.namespace", NETWORK, "kubernetes.io/metadata.name: {}\n", "Namespace of the Prometheus that may reach the metrics."),
    Value("console.memoryLimit", CONSOLE, "limits: { memory: {} }", ""),
    Value("transport.name", TRANSPORT, "args: [transport, run, {}, --config", "Which transport runs."),
    Value("transport.replicas", TRANSPORT, "replicas: {}\n", "One is active, the others take over."),
    Value("transport.memoryLimit", TRANSPORT, "limits: { memory: {} }", ""),
)  # fmt: skip

SWITCHES: Final = {
    "console.enabled": (False, "Web pages, reached by a forwarded port."),
    "transport.enabled": (False, "A transport, such as dry-run."),
    "metrics.operator": (False, "ServiceMonitor and PrometheusRule, for a cluster with the Prometheus operator."),
    "strimzi.enabled": (False, "KafkaTopic and KafkaUser objects, for brokers of Strimzi."),
}
"""Values without a text in the manifests: what they add stands in separate folders there."""

GIVEN: Final[dict[str, tuple[Any, str]]] = {
    "image.repository": ("registry.example/validator", "Image of all pods, executors included."),
    "image.tag": (__version__, ""),
    "storage.class": (
        "",
        "Class of the job's folder, which must offer ReadWriteMany; empty means the cluster's default class.",
    ),
    "strimzi.namespace": ("kafka", "Namespace of the brokers."),
    "strimzi.cluster": (CLUSTER, "Name of their Kafka object."),
}
"""Values that the manifests leave to an overlay."""

IMAGE: Final = '"{{ .Values.image.repository }}:{{ .Values.image.tag }}"'

EVERYWHERE: Final = (
    ("namespace: validator\n", "namespace: {{ .Release.Namespace }}\n"),
    ("image: validator\n", f"image: {IMAGE}\n"),
    ("secretRef: { name: validator-kafka }", "secretRef: { name: {{ .Values.kafka.secret }} }"),
    ("configMapKeyRef: { name: kafka-ca, key", "configMapKeyRef: { name: {{ .Values.kafka.authority }}, key"),
)

RESTART: Final = """\
    metadata:
      annotations: # a changed configuration replaces the pods
        checksum/configuration: {{ include (print $.Template.BasePath "/configuration.yaml") . | sha256sum }}
      labels: *labels
"""

CHAINS: Final = "[chains."
"""What begins the part of the configuration that is the chart's value `chains`."""


def escaped(text: str) -> str:
    """Return text that Helm leaves as it is."""
    return text.replace("{{", '{{ "{{" }}')


def source(file: str) -> str:
    """Return a manifest, or what it is made of."""
    return (made_manifests().get(MANIFESTS / file)) or (MANIFESTS / file).read_text(encoding="utf-8")


def template(file: str, *edits: tuple[str, str]) -> str:
    """Return a manifest as a template. Raises `ValueError` if the text of an edit or of a value is not there."""
    text = escaped(source(file))
    for value in VALUES:
        if value.file == file:
            text = value.in_template(text)
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{file}: {old!r} is not there")
        text = text.replace(old, new)
    for old, new in EVERYWHERE:
        text = text.replace(old, new)
    return text


def when(switch: str, text: str) -> str:
    """Return a template that is empty unless a value is true."""
    return f"{{{{- if .Values.{switch} }}}}\n{text}{{{{- end }}}}\n"


def of_pods(labels: str) -> tuple[str, str]:
    """Return the edit by which pods are replaced if the configuration changes."""
    return labels, RESTART


def configuration() -> str:
    """Return the template of the ConfigMaps, which kustomize generates."""
    toml = template(TOML)
    toml = toml[: toml.index(CHAINS)]
    spark = template(
        SPARK,
        (
            "spark.kubernetes.namespace" + 60 * " " + "validator\n",
            "spark.kubernetes.namespace" + 60 * " " + "{{ .Release.Namespace }}\n",
        ),
    )
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: validator-config
  namespace: {{{{ .Release.Namespace }}}}
data:
  validator.toml: |
{indent(toml, "    ").rstrip()}

    {{{{- .Values.chains | nindent 4 }}}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: validator-spark
  namespace: {{{{ .Release.Namespace }}}}
data:
  spark-defaults.conf: |
{indent(spark, "    ")}\
  executor.yaml: |
{indent(template("base/executor.yaml"), "    ")}"""


def templates() -> dict[str, str]:
    """Return the templates of the chart by their names."""
    pods = of_pods("    metadata:\n      labels: *labels\n")
    storage = "  accessModes: [ReadWriteMany]\n"
    storage_class = storage + "{{- with .Values.storage.class }}\n  storageClassName: {{ . }}\n{{- end }}\n"
    name = "app.kubernetes.io/component: {{ .Values.transport.name }}"
    topics = (
        (f"partitions: {configured().input_partitions} #", "partitions: {{ .Values.topics.inputPartitions }} #"),
        (f"replicas: {configured().replication_factor}\n", "replicas: {{ .Values.topics.replicationFactor }}\n"),
    )
    return {
        "configuration.yaml": configuration(),
        "job.yaml": template(JOB, pods, ("VALIDATOR_IMAGE, value: validator }", f"VALIDATOR_IMAGE, value: {IMAGE} }}")),
        "network.yaml": template(NETWORK),
        "rbac.yaml": template("base/rbac.yaml"),
        "storage.yaml": template(STORAGE, (storage, storage_class)),
        "console.yaml": when("console.enabled", template(CONSOLE, pods)),
        "transport.yaml": when(
            "transport.enabled",
            template(
                TRANSPORT, pods, ("app.kubernetes.io/component: dry-run", name),
                ("name: validator-dry-run", "name: validator-{{ .Values.transport.name }}"),
            ),
        ),
        "monitoring.yaml": when("metrics.operator", template(MONITOR) + "---\n" + template(RULES_FILE)),
        "strimzi.yaml": when("strimzi.enabled", strimzi(TOPICS_FILE, *topics) + "---\n" + strimzi(USERS_FILE)),
    }  # fmt: skip


def strimzi(file: str, *edits: tuple[str, str]) -> str:
    """Return the template of topics or users of Strimzi."""
    return template(
        file,
        ("namespace: kafka\n", "namespace: {{ .Values.strimzi.namespace }}\n"),
        (f"strimzi.io/cluster: {CLUSTER}\n", "strimzi.io/cluster: {{ .Values.strimzi.cluster }}\n"),
        (f": {configured().prefix}", ": {{ .Values.topics.prefix }}"),
        *edits,
    )


def values() -> str:
    """Return `values.yaml`."""
    found: dict[str, tuple[Any, str]] = {
        value.path: (yaml.safe_load(value.default_in(source(value.file))), value.meaning) for value in VALUES
    }
    found |= SWITCHES | GIVEN
    groups = list(dict.fromkeys(path.partition(".")[0] for path in ("image.repository", *found)))
    lines = [MADE.format(source="the manifests of deploy/kubernetes and the table of values in deploy/generate.py")]
    for group in groups:
        lines.append(f"\n{group}:\n")
        for path, (default, meaning) in found.items():
            if path.partition(".")[0] == group:
                lines.append(f"  # {meaning}\n" if meaning else "")
                lines.append(f"  {path.partition('.')[2]}: {json.dumps(default)}\n")
    toml = source(TOML)
    lines.append(
        "\n# The tables of the chains, and any other of the configuration (examples/validator.toml).\nchains: |\n"
    )
    lines.append(indent(toml[toml.index(CHAINS) :], "  "))
    return "".join(lines)


def about() -> str:
    """Return `Chart.yaml`."""
    made = MADE.format(source="deploy/generate.py")
    return f"""\
{made}apiVersion: v2
name: validator
description: A streaming validator of cross-chain messages; its driver, executors, console and transports. One release in a namespace.
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.25.0-0"
"""


def made_chart() -> Iterator[tuple[Path, str]]:
    """Yield each file of the chart and its text."""
    yield CHART / "Chart.yaml", about()
    yield CHART / "values.yaml", values()
    for name, text in templates().items():
        yield CHART / "templates" / name, MADE.format(source="the manifests of deploy/kubernetes") + text
