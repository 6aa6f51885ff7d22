# SPDX-License-Identifier: Apache-2.0
"""The manifests agree with each other, with the image and with what the job needs of a cluster."""

from __future__ import annotations

import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from streaming.options import cluster_options, session_options
from tests.cli.follower import invoke
from tests.deploy.tools import BASE, MANIFESTS, ROOT, documents, manifests, tool
from validator.config import Config
from validator.service.metric_endpoint import BRIEF

FOUND = manifests()


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in FOUND if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def pod() -> dict[str, Any]:
    return dict(one("StatefulSet", "validator-job")["spec"]["template"]["spec"])


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


@pytest.mark.parametrize("folder", ["base", "console", "transport"])
def test_kustomization_lists_every_file(folder: str) -> None:
    listed = kustomization(folder)
    generated = [name for each in listed.get("configMapGenerator", ()) for name in each["files"]]
    files = {path.name for path in (MANIFESTS / folder).iterdir()} - {"kustomization.yaml"}
    assert sorted([*listed["resources"], *generated]) == sorted(files)


def test_example_replaces_what_an_installation_has_of_its_own() -> None:
    overlay = kustomization("example")
    assert [*overlay["resources"], *overlay["components"]] == ["../base", "../console", "../transport"]
    images = {
        container["image"]
        for kind, name in (
            ("StatefulSet", "validator-job"), ("Deployment", "validator-console"), ("Deployment", "validator-dry-run"),
        )
        for spec in (one(kind, name)["spec"]["template"]["spec"],)
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    }  # fmt: skip
    assert {each["name"] for each in overlay["images"]} == images
    base, own = ((MANIFESTS / folder / "validator.toml").read_text(encoding="utf-8") for folder in ("base", "example"))
    assert tomllib.loads(base) == tomllib.loads(own)


def test_kustomize_builds_the_example() -> None:
    built = subprocess.run(
        [
            tool("kustomize", "it has no wheel; the example is otherwise only compared with the base"),
            "build",
            str(MANIFESTS / "example"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    found = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(built.stdout)}
    job = found["StatefulSet", "validator-job"]["spec"]["template"]["spec"]
    image = "registry.example/validator:1.0"
    assert {container["image"] for container in (*job["initContainers"], *job["containers"])} == {image}
    (named,) = (each["value"] for each in job["containers"][0]["env"] if each["name"] == "VALIDATOR_IMAGE")
    assert named == image
    assert found["PersistentVolumeClaim", "validator-job"]["spec"]["storageClassName"] == "nfs"
    mounted = {each["configMap"]["name"] for each in job["volumes"] if "configMap" in each}
    generated = {name for kind, name in found if kind == "ConfigMap"}
    assert mounted == generated | {"kafka-ca"}
    console = found["Deployment", "validator-console"]["spec"]["template"]["spec"]
    assert {each["configMap"]["name"] for each in console["volumes"] if "configMap" in each} < mounted


def test_everything_is_in_one_namespace() -> None:
    for each in FOUND:
        if each["kind"] != "Namespace":
            assert each["metadata"]["namespace"] == "validator", each["kind"]
    assert spark_defaults()["spark.kubernetes.namespace"] == "validator"


def test_configuration_fits_the_manifests() -> None:
    config = Config.model_validate(tomllib.loads((BASE / "validator.toml").read_text(encoding="utf-8")))
    mounts = {each["name"]: each["mountPath"] for each in pod()["containers"][0]["volumeMounts"]}
    assert config.job.directory.startswith(f"{mounts['job']}/")
    assert config.job.master.startswith("k8s://")
    assert str(config.kafka["ssl.ca.location"]).startswith(f"{mounts['ca']}/")
    assert config.metrics.listen == f"0.0.0.0:{ports()['metrics']}"
    assert spark_defaults()["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['spark']}/executor.yaml"
    env = {each["name"]: each["value"] for each in pod()["containers"][0]["env"]}
    assert env == {"SPARK_CONF_DIR": mounts["spark"], "VALIDATOR_IMAGE": pod()["containers"][0]["image"]}
    assert spark_defaults()["spark.kubernetes.container.image"] == "${env:VALIDATOR_IMAGE}"
    instances = int(spark_defaults()["spark.executor.instances"])
    assert instances <= config.job.state_partitions <= 2 * instances


def ports() -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in pod()["containers"][0]["ports"]}


def test_executors_find_the_driver_and_belong_to_it() -> None:
    defaults, service = spark_defaults(), one("Service", "validator-job")
    assert defaults["spark.driver.host"] == service["metadata"]["name"]
    assert {each["name"]: each["port"] for each in service["spec"]["ports"]} == ports()
    assert (int(defaults["spark.driver.port"]), int(defaults["spark.driver.blockManager.port"])) == (
        ports()["driver"],
        ports()["blocks"],
    )
    assert defaults["spark.kubernetes.driver.pod.name"] == "validator-job-0"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert pod()["serviceAccountName"] == one("RoleBinding", "validator-driver")["subjects"][0]["name"]


def test_driver_and_executors_share_the_folder() -> None:
    prefix = "spark.kubernetes.executor.volumes.persistentVolumeClaim.job"
    claim = spark_defaults()[f"{prefix}.options.claimName"]
    mounts = {each["name"]: each["mountPath"] for each in pod()["containers"][0]["volumeMounts"]}
    assert spark_defaults()[f"{prefix}.mount.path"] == mounts["job"]
    assert {"name": "job", "persistentVolumeClaim": {"claimName": claim}} in pod()["volumes"]
    assert one("PersistentVolumeClaim", claim)["spec"]["accessModes"] == ["ReadWriteMany"]
    ca = [each["mountPath"] for each in executor()["spec"]["containers"][0]["volumeMounts"] if each["name"] == "ca"]
    assert ca == [mounts["ca"]]


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


def test_budget_and_policies_select_the_pods() -> None:
    labels = executor()["metadata"]["labels"]
    assert one("PodDisruptionBudget", "validator-executors")["spec"]["selector"]["matchLabels"] == labels
    assert one("NetworkPolicy", "validator-executor")["spec"]["podSelector"]["matchLabels"] == labels
    driver = one("StatefulSet", "validator-job")["spec"]["template"]["metadata"]["labels"]
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


def test_probes_ask_what_is_served() -> None:
    driver = pod()["containers"][0]
    assert driver["livenessProbe"]["httpGet"] == {"path": BRIEF, "port": "metrics"}
    assert driver["startupProbe"]["tcpSocket"] == {"port": "metrics"}
    program, *arguments = driver["readinessProbe"]["exec"]["command"]
    assert program == "validator"
    assert invoke(*arguments, "--help").exit_code == 0
