# SPDX-License-Identifier: Apache-2.0
"""The chart, the alerts, topics and users are what their sources say; and the chart is the manifests."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from deploy import operators
from deploy.chart import CHART, SWITCHES, Value, values
from deploy.generate import made
from deploy.operators import MANIFESTS, RULES, topics
from tests.deploy.test_tools import KUBERNETES
from tests.deploy.tools import documents, manifests, tool
from tests.streaming.test_access_control import PREFIX, bindings
from validator.kafka.topics import topic_config
from validator.rights import RIGHTS
from validator.topics import CURSORS_TOPIC, DRY_RUN_TOPICS, INPUT_TOPICS, METRICS_TOPIC, TOPICS

USERS = {name: user for user, name in operators.USERS.items()}
KINDS = {"topic": "TOPIC", "group": "GROUP", "transactionalId": "TRANSACTIONAL_ID"}
PATTERNS = {"prefix": "PREFIXED", "literal": "LITERAL"}


def test_chart_has_no_other_files() -> None:
    assert {path for path in CHART.rglob("*") if path.is_file()} == {path for path in made() if CHART in path.parents}


def test_alerts_of_the_operator_are_those_of_prometheus() -> None:
    (rule,) = (each for each in manifests() if each["kind"] == "PrometheusRule")
    (source,) = documents(RULES)
    assert rule["spec"] == source


def test_scraped_job_has_the_name_that_alerts_ask_for() -> None:
    (monitor,) = (each for each in manifests() if each["kind"] == "ServiceMonitor")
    (service,) = (
        each for each in manifests() if each["kind"] == "Service" and each["metadata"]["name"] == "validator-job"
    )
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == ["metrics"]
    asked = set(re.findall(r'job="(\w+)"', RULES.read_text(encoding="utf-8")))
    assert asked == {labels[monitor["spec"]["jobLabel"]]}


def test_every_topic_is_one_of_strimzi_as_the_product_would_make_it() -> None:
    found = {each["spec"]["topicName"]: each["spec"] for each in yaml.safe_load_all(topics())}
    expected = (*TOPICS, METRICS_TOPIC, CURSORS_TOPIC, *DRY_RUN_TOPICS)
    assert set(found) == {f"validator.{each.name}" for each in expected}
    for each in expected:
        spec = found[f"validator.{each.name}"]
        assert spec["config"] == topic_config(each, each.retention_ms)
        assert spec["replicas"] == 3
        assert spec["partitions"] == (4 if each.name in INPUT_TOPICS else 1)


def test_brokers_keep_what_two_of_them_have_and_one_may_be_lost() -> None:
    found = {each["kind"]: each["spec"] for each in documents(MANIFESTS / "strimzi" / "kafka.yaml")}
    pool, config = found["KafkaNodePool"], found["Kafka"]["kafka"]["config"]
    assert pool["replicas"] == 3
    replicated = ("default", "offsets.topic", "transaction.state.log")
    assert {config[f"{each}.replication.factor"] for each in replicated} == {3}
    assert {config["min.insync.replicas"], config["transaction.state.log.min.isr"]} == {2}
    (apart,) = pool["template"]["pod"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert found["Kafka"]["kafka"]["rack"] == {"topologyKey": "topology.kubernetes.io/zone"}


def test_users_of_strimzi_have_the_rights_that_suffice_on_a_broker() -> None:
    """`tests/streaming/test_access_control.py` runs with the same rights, under another prefix."""
    found = {each["metadata"]["name"]: each["spec"] for each in documents(MANIFESTS / "strimzi" / "users.yaml")}
    assert set(found) == set(USERS)
    assert set(USERS.values()) == set(RIGHTS) - {"topics create"}
    for name, user in USERS.items():
        assert found[name]["authentication"] == {"type": "scram-sha-512"}
        given = {
            (KINDS[acl["resource"]["type"]], acl["resource"]["name"], PATTERNS[acl["resource"]["patternType"]], operation.upper())
            for acl in found[name]["authorization"]["acls"]
            for operation in acl["operations"]
        }  # fmt: skip
        assert given == {
            (each.restype.name, each.name.replace(PREFIX, "validator."), each.resource_pattern_type.name, each.operation.name)
            for each in bindings(user)
        }  # fmt: skip


def test_producers_write_to_input_topics_alone() -> None:
    """A producer that could write to `markers` could make a lane believe that blocks are emitted which are not."""
    (user,) = (each for each in manifests() if each["metadata"]["name"] == "validator-producers")
    acls = user["spec"]["authorization"]["acls"]
    assert [each["resource"] for each in acls] == [
        {"type": "topic", "name": f"validator.{topic}", "patternType": "literal"} for topic in INPUT_TOPICS
    ]
    assert {tuple(each["operations"]) for each in acls} == {("Write", "Describe")}


def test_value_that_is_not_in_its_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected 'a = \{\}' 1 times with one value, found \['1', '2'\]"):
        Value("a", "there", "a = {}", "").default_in("a = 1\na = 2\n")


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their paths."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def set_all(tables: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    """Return values of the chart with others, given by their paths."""
    for path, value in by.items():
        group, name = path.split(".")
        tables[group][name] = value
    return tables


def plain(given: dict[str, Any]) -> str:
    """Return the chart rendered without Helm: it uses little of the language of templates."""
    known = flat(given)

    def shown(match: re.Match[str]) -> str:
        expression = match[1]
        if expression.startswith("include "):
            return " a-digest"
        if expression == ".Values.chains | nindent 4":
            return "\n" + indent(known["chains"], "    ")
        values = {'"{{"': "{{", ".Release.Namespace": "validator", ".": known["storage.class"]}
        values |= {f".Values.{path}": value for path, value in known.items()}
        return ("" if match[0].startswith("{{") else match[0][0]) + str(values[expression])

    texts = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        open_, lines = [True], []
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if match := re.fullmatch(r"\{\{- (?:if|with) \.Values\.([\w.]+) \}\}\n", line):
                open_.append(bool(known[match[1]]))
            elif line == "{{- end }}\n":
                open_.pop()
            elif all(open_):
                lines.append(line)
        texts.append(re.sub(r"(?:(?<=\n)\s+(?=\{\{-))?\{\{-? (.+?) \}\}", shown, "".join(lines)))
    return "---\n".join(texts)


def helm(given: dict[str, Any], folder: Path) -> str:
    """Return the chart rendered by Helm; skip the test without it."""
    (folder / "values.yaml").write_text(yaml.safe_dump(given), encoding="utf-8")
    program = tool("helm", "make deploy-tools compiles it")
    command = [
        program,
        "template",
        "validator",
        str(CHART),
        "--namespace=validator",
        f"--kube-version={KUBERNETES[0]}",  # one that Go has compiled knows of no newer one than 1.20
        "--values",
        str(folder / "values.yaml"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a rendered chart by kind and name."""
    found = [each for each in yaml.safe_load_all(text) if each is not None]
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found)
    return named


@pytest.mark.parametrize("renderer", ["plain", "helm"])
def test_chart_with_everything_is_the_manifests(renderer: str, tmp_path: Path) -> None:
    given = set_all(yaml.safe_load(values()), dict.fromkeys(SWITCHES, True))
    found = objects(plain(given) if renderer == "plain" else helm(given, tmp_path))
    config, spark = found.pop(("ConfigMap", "validator-config")), found.pop(("ConfigMap", "validator-spark"))
    base = MANIFESTS / "base"
    assert tomllib.loads(config["data"]["validator.toml"]) == tomllib.loads(
        (base / "validator.toml").read_text(encoding="utf-8")
    )
    assert spark["data"] == {
        name: (base / name).read_text(encoding="utf-8") for name in ("spark-defaults.conf", "executor.yaml")
    }
    for each in found.values():
        if each["kind"] == "Deployment":
            template = each["spec"]["template"]
            assert list(template["metadata"].pop("annotations")) == ["checksum/configuration"]
            image = f"{given['image']['repository']}:{given['image']['tag']}"
            for container in (*template["spec"].get("initContainers", ()), *template["spec"]["containers"]):
                assert container["image"] == image
                container["image"] = "validator"
                for variable in container["env"]:
                    if variable["name"] == "VALIDATOR_IMAGE":
                        assert variable["value"] == image
                        variable["value"] = "validator"
    assert found == {
        (each["kind"], each["metadata"]["name"]): each
        for each in manifests()
        if each["kind"] not in ("Namespace", "Secret", "Kafka", "KafkaNodePool")
    }


@pytest.mark.parametrize("renderer", ["plain", "helm"])
def test_every_value_of_the_chart_changes_what_it_names(renderer: str, tmp_path: Path) -> None:
    given = set_all(yaml.safe_load(values()), dict.fromkeys(SWITCHES, True))
    before = flat(given)
    others = {
        path: 7 if isinstance(value, int) else f"{value}x"
        for path, value in before.items()
        if path not in SWITCHES and path != "chains"
    }
    text = plain(set_all(given, others)) if renderer == "plain" else helm(set_all(given, others), tmp_path)
    found = objects(text)
    config = tomllib.loads(found["ConfigMap", "validator-config"]["data"]["validator.toml"])
    assert config["kafka"]["bootstrap.servers"] == others["kafka.bootstrapServers"]
    assert (config["topics"]["prefix"], config["topics"]["input_partitions"]) == ("validator.x", 7)
    assert found["PersistentVolumeClaim", "validator-job"]["spec"]["storageClassName"] == "x"
    assert found["KafkaTopic", "validator-blocks"]["spec"] | {"config": {}} == {
        "topicName": "validator.xblocks", "partitions": 7, "replicas": 7, "config": {},
    }  # fmt: skip
    assert found["KafkaTopic", "validator-markers"]["spec"]["partitions"] == 1
    for acl in found["KafkaUser", "validator-producers"]["spec"]["authorization"]["acls"]:
        assert acl["resource"]["name"].startswith("validator.x")
    pods = found["Deployment", "validator-job"]["spec"]["template"]["spec"]
    assert pods["containers"][0]["envFrom"] == [{"secretRef": {"name": "validator-kafkax"}}]
    assert pods["containers"][0]["resources"] == {
        "requests": {"cpu": "7", "memory": "3Gix"},
        "limits": {"memory": "4Gix"},
    }
    assert ("Deployment", "validator-dry-runx") in found
    for path, value in others.items():
        assert path == "metrics.namespace" or str(value) in text, path


@pytest.mark.parametrize("renderer", ["plain", "helm"])
def test_chart_without_what_is_switched_off_is_the_job(renderer: str, tmp_path: Path) -> None:
    given = yaml.safe_load(values())
    kinds = {kind for kind, _ in objects(plain(given) if renderer == "plain" else helm(given, tmp_path))}
    assert kinds == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "PodDisruptionBudget", "Role", "RoleBinding", "Service",
        "ServiceAccount",
    }  # fmt: skip


def test_chart_is_clean_for_helm() -> None:
    command = [tool("helm", "make deploy-tools compiles it"), "lint", "--strict", str(CHART)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def schemas(version: str, folder: Path) -> Path:
    """Write the schemas of `kubernetes-validate` where kubeconform finds them, with places in the folder for addresses of a server."""
    package = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: make lint installs it"
    )
    kept = Path(package.__file__).parent / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    assert kept.is_dir()
    for path in kept.iterdir():
        table = json.loads(path.read_text(encoding="utf-8").replace("/api/_definitions.json#", "_definitions.json#"))
        table.pop("$id", None)
        (folder / path.name).write_text(json.dumps(table), encoding="utf-8")
    return folder


@pytest.mark.parametrize("version", KUBERNETES)
def test_rendered_chart_has_the_form_of_kubernetes(version: str, tmp_path: Path) -> None:
    """Objects of operators are left out: no package has their schemas."""
    program = tool("kubeconform", "make deploy-tools compiles it")
    place = schemas(version, tmp_path) / "{{.ResourceKind}}{{.KindSuffix}}.json"
    given = set_all(yaml.safe_load(values()), dict.fromkeys(SWITCHES, True))
    custom = "ServiceMonitor,PrometheusRule,KafkaTopic,KafkaUser"
    command = [program, "-strict", "-summary", "-skip", custom, "-kubernetes-version", f"{version}.0"]

    def conform(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-schema-location", str(place)], input=text, capture_output=True, text=True, check=False
        )

    rendered = helm(given, tmp_path)
    ended = conform(rendered)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"Valid: 1\d, Invalid: 0, Errors: 0", ended.stdout), ended.stdout
    wrong = conform(rendered.replace("replicas: 1 ", "replicaz: 1 ", 1))
    assert wrong.returncode != 0
    assert "replicaz" in wrong.stdout
