# SPDX-License-Identifier: Apache-2.0
"""The manifests agree with each other, with the image and with what the job needs of a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest

from streaming.options import cluster_options, session_options
from tests.cli.follower import invoke
from tests.deploy.tools import BASE, MANIFESTS, ROOT, built, documents, manifests
from validator.config import Config, load_config
from validator.kafka.java import find_java
from validator.metrics.endpoint import BRIEF

FOUND = manifests()


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in FOUND if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pod() -> dict[str, Any]:
    return dict(one("Deployment", "validator-job")["spec"]["template"]["spec"])


def console() -> dict[str, Any]:
    return dict(one("Deployment", "validator-console")["spec"]["template"]["spec"])


def transport() -> dict[str, Any]:
    return dict(one("Deployment", "validator-dry-run")["spec"]["template"]["spec"])


def spark_defaults() -> dict[str, str]:
    text = (BASE / "spark-defaults.conf").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)


def executor() -> dict[str, Any]:
    (found,) = documents(BASE / "executor.yaml")
    return found


def kustomization(folder: str) -> dict[str, Any]:
    (found,) = documents(MANIFESTS / folder / "kustomization.yaml")
    return found


@pytest.mark.parametrize("folder", ["base", "console", "transport", "monitoring", "strimzi"])
def test_kustomization_lists_every_file(folder: str) -> None:
    listed = kustomization(folder)
    generated = [name for each in listed.get("configMapGenerator", ()) for name in each["files"]]
    files = {path.name for path in (MANIFESTS / folder).iterdir()} - {"kustomization.yaml"}
    assert sorted([*listed["resources"], *generated]) == sorted(files)


def test_example_replaces_what_an_installation_has_of_its_own() -> None:
    overlay = kustomization("example")
    assert [*overlay["resources"], *overlay["components"]] == ["../base", "../console", "../transport", "../monitoring"]
    images = {
        container["image"]
        for kind, name in (
            ("Deployment", "validator-job"), ("Deployment", "validator-console"), ("Deployment", "validator-dry-run"),
        )
        for spec in (one(kind, name)["spec"]["template"]["spec"],)
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    }  # fmt: skip
    assert {each["name"] for each in overlay["images"]} == images
    base, own = ((MANIFESTS / folder / "validator.toml").read_text(encoding="utf-8") for folder in ("base", "example"))
    assert tomllib.loads(base) == tomllib.loads(own)


def test_kustomize_builds_the_example() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in built(MANIFESTS / "example")}
    job = found["Deployment", "validator-job"]["spec"]["template"]["spec"]
    image = "registry.example/validator:1.0"
    assert {container["image"] for container in (*job["initContainers"], *job["containers"])} == {image}
    (named,) = (each["value"] for each in job["containers"][0]["env"] if each["name"] == "VALIDATOR_IMAGE")
    assert named == image
    assert found["PersistentVolumeClaim", "validator-job"]["spec"]["storageClassName"] == "nfs"
    mounted = {each["configMap"]["name"] for each in job["volumes"] if "configMap" in each}
    generated = {name for kind, name in found if kind == "ConfigMap"}
    assert mounted == generated
    console = found["Deployment", "validator-console"]["spec"]["template"]["spec"]
    assert {each["configMap"]["name"] for each in console["volumes"] if "configMap" in each} < mounted


def test_everything_is_in_one_namespace() -> None:
    for each in FOUND:
        if each["kind"] != "Namespace":
            of_brokers = each["apiVersion"].startswith("kafka.strimzi.io/")
            assert each["metadata"]["namespace"] == ("kafka" if of_brokers else "validator"), each["kind"]
    assert spark_defaults()["spark.kubernetes.namespace"] == "validator"


def test_configuration_fits_the_manifests() -> None:
    config = Config.model_validate(tomllib.loads((BASE / "validator.toml").read_text(encoding="utf-8")))
    mounts = {each["name"]: each["mountPath"] for each in pod()["containers"][0]["volumeMounts"]}
    assert config.job.directory.startswith(f"{mounts['job']}/")
    assert config.job.master.startswith("k8s://")
    assert config.metrics.listen == f"0.0.0.0:{ports()['metrics']}"
    assert spark_defaults()["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['spark']}/executor.yaml"
    assert environment()["SPARK_CONF_DIR"] == mounts["spark"]
    assert environment()["VALIDATOR_IMAGE"] == pod()["containers"][0]["image"]
    assert spark_defaults()["spark.kubernetes.container.image"] == "${env:VALIDATOR_IMAGE}"
    instances = int(spark_defaults()["spark.executor.instances"])
    assert instances <= config.job.state_partitions <= 2 * instances


def environment() -> dict[str, Any]:
    """Return the driver's environment: values, and where Kubernetes takes them from."""
    return {each["name"]: each.get("value") or each["valueFrom"] for each in pod()["containers"][0]["env"]}


def ports() -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in pod()["containers"][0]["ports"]}


def test_executors_find_the_driver_and_belong_to_it() -> None:
    defaults = spark_defaults()
    assert defaults["spark.driver.host"] == "${env:POD_IP}"
    assert environment()["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert (int(defaults["spark.driver.port"]), int(defaults["spark.driver.blockManager.port"])) == (
        ports()["driver"],
        ports()["blocks"],
    )
    assert defaults["spark.kubernetes.driver.pod.name"] == "${env:POD_NAME}"
    assert environment()["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    served = {
        port["port"] for rule in one("NetworkPolicy", "validator-driver")["spec"]["ingress"] for port in rule["ports"]
    }
    assert served == set(ports().values())
    assert pod()["serviceAccountName"] == one("RoleBinding", "validator-driver")["subjects"][0]["name"]


def test_driver_and_executors_share_the_folder() -> None:
    prefix = "spark.kubernetes.executor.volumes.persistentVolumeClaim.job"
    claim = spark_defaults()[f"{prefix}.options.claimName"]
    mounts = {each["name"]: each["mountPath"] for each in pod()["containers"][0]["volumeMounts"]}
    assert spark_defaults()[f"{prefix}.mount.path"] == mounts["job"]
    assert {"name": "job", "persistentVolumeClaim": {"claimName": claim}} in pod()["volumes"]
    assert one("PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteMany"]


def test_pods_have_the_user_of_the_image_and_no_rights() -> None:
    user, group = re.findall(r"(?m)^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"))[-1]
    for spec in (pod(), console(), transport(), executor()["spec"]):
        rights = spec["securityContext"]
        assert (rights["runAsUser"], rights["runAsGroup"], rights["runAsNonRoot"]) == (int(user), int(group), True)
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_spark_defaults_leave_to_the_job_what_the_job_sets() -> None:
    set_by_job = {*session_options("", "1g", 1), *cluster_options("k8s://there:1", "quick")}
    assert "spark.executor.cores" in set_by_job
    assert set_by_job & set(spark_defaults()) == set()


def test_metrics_are_served_before_the_job_is_ready() -> None:
    service = one("Service", "validator-job")["spec"]
    assert service["ports"] == [{"name": "metrics", "port": ports()["metrics"]}]
    assert service["publishNotReadyAddresses"] is True


def test_lost_driver_is_replaced_by_itself_and_soon() -> None:
    """A StatefulSet would wait until somebody has removed the pod of a machine that does not answer."""
    deployment = one("Deployment", "validator-job")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    left = {each["key"]: each for each in pod()["tolerations"]}
    assert set(left) == {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}
    for each in left.values():
        assert (each["operator"], each["effect"], each["tolerationSeconds"]) == ("Exists", "NoExecute", 60)


def test_executors_of_one_machine_or_zone_are_as_few_as_there_is_room_for() -> None:
    spec, labels = executor()["spec"], executor()["metadata"]["labels"]
    (apart,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    selected = apart["podAffinityTerm"]["labelSelector"]
    (kinds,) = selected["matchExpressions"]
    driver = one("Deployment", "validator-job")["spec"]["template"]["metadata"]["labels"]
    for each in (labels, driver):
        assert selected["matchLabels"].items() <= each.items()
        assert each[kinds["key"]] in kinds["values"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    for each in (spread, *transport()["topologySpreadConstraints"]):
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"  # on one machine everything still runs
    assert spread["labelSelector"]["matchLabels"] == labels


def test_processes_of_a_transport_are_on_two_machines_and_a_drain_leaves_one() -> None:
    deployment = one("Deployment", "validator-dry-run")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    (spread,) = transport()["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["labelSelector"]["matchLabels"]) == ("kubernetes.io/hostname", labels)
    budget = one("PodDisruptionBudget", "validator-dry-run")["spec"]
    assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
    assert deployment["replicas"] > budget["maxUnavailable"]


def test_authority_of_the_brokers_is_a_key_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in (pod(), console(), transport()):
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            (name,) = (each["name"] for each in container["env"] if "configMapKeyRef" in each.get("valueFrom", {}))
            monkeypatch.setenv(name, "the certificate")
            assert load_config(BASE / "validator.toml").kafka["ssl.ca.pem"] == "the certificate"


def test_budget_and_policies_select_the_pods() -> None:
    labels = executor()["metadata"]["labels"]
    assert one("PodDisruptionBudget", "validator-executors")["spec"]["selector"]["matchLabels"] == labels
    assert one("NetworkPolicy", "validator-executor")["spec"]["podSelector"]["matchLabels"] == labels
    driver = one("Deployment", "validator-job")["spec"]["template"]["metadata"]["labels"]
    assert one("NetworkPolicy", "validator-driver")["spec"]["podSelector"]["matchLabels"] == driver


@pytest.mark.parametrize(
    "arguments",
    [
        each["args"]
        for spec in (pod(), console(), transport())
        for each in (*spec.get("initContainers", ()), *spec["containers"])
    ],
)
def test_command_is_one_of_the_product(arguments: list[str]) -> None:
    answered = invoke(*arguments, "--help")
    assert answered.exit_code == 0, answered.output


def test_console_listens_where_service_and_probe_ask() -> None:
    (container,) = console()["containers"]
    (port,) = container["ports"]
    assert f"0.0.0.0:{port['containerPort']}" in container["args"]
    assert one("Service", "validator-console")["spec"]["ports"] == [{"name": "console", "port": port["containerPort"]}]
    assert container["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    labels = one("Deployment", "validator-console")["spec"]["template"]["metadata"]["labels"]
    policy = one("NetworkPolicy", "validator-console")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert policy.get("ingress", []) == []


def test_commands_read_what_the_job_reads() -> None:
    of_job = {each["name"]: each for each in pod()["volumes"]}
    mounts = {each["name"]: each for each in pod()["containers"][0]["volumeMounts"]}
    for spec in (console(), transport()):
        assert all(of_job[each["name"]] == each for each in spec["volumes"])
        (container,) = spec["containers"]
        assert all(mounts[each["name"]] == each for each in container["volumeMounts"])
        assert container["envFrom"] == pod()["containers"][0]["envFrom"]
        assert all(each in pod()["containers"][0]["env"] for each in container["env"])


def test_probes_ask_what_is_served() -> None:
    driver = pod()["containers"][0]
    assert driver["livenessProbe"]["httpGet"] == {"path": BRIEF, "port": "metrics"}
    assert driver["startupProbe"]["tcpSocket"] == {"port": "metrics"}
    program, *arguments = driver["readinessProbe"]["exec"]["command"]
    assert program == "validator"
    assert invoke(*arguments, "--help").exit_code == 0


SPARK = """
from pyspark import SparkConf, SparkContext
context = SparkContext(conf=SparkConf().setMaster("local[1]").setAppName("defaults"))
of_kubernetes = context._jvm.org.apache.spark.deploy.k8s.Config
read = context._jsc.sc().conf()
print(read.get(of_kubernetes.KUBERNETES_DRIVER_POD_NAME()).get())
print(read.get(of_kubernetes.CONTAINER_IMAGE()).get())
print(context.getConf().get("spark.driver.host"))
"""


@pytest.mark.spark
@pytest.mark.long
def test_spark_takes_name_address_and_image_from_the_environment() -> None:
    pods = {"POD_NAME": "validator-job-7d4b", "POD_IP": "127.0.0.1", "VALIDATOR_IMAGE": "there/validator:1"}
    given = os.environ | pods | {"SPARK_CONF_DIR": str(BASE), "JAVA_HOME": str(find_java().resolve().parent.parent)}
    ended = subprocess.run([sys.executable, "-c", SPARK], env=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout.split() == [pods["POD_NAME"], pods["VALIDATOR_IMAGE"], pods["POD_IP"]]
