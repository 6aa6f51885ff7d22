# SPDX-License-Identifier: Apache-2.0
"""The compose file: what its services mount, say to each other, and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.follower import invoke
from tests.deploy.tools import ROOT, compose, documents
from validator.config import load_config
from validator.lanes.configured import check_chains

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
OWN = {name: each for name, each in SERVICES.items() if each["image"] == "validator"}
CONFIG = ROOT / "deploy" / "compose" / "validator.toml"


def test_default_is_broker_and_job() -> None:
    assert {name for name, each in SERVICES.items() if "profiles" not in each} == {"kafka", "topics", "job"}
    profiles = {name: each["profiles"] for name, each in SERVICES.items() if "profiles" in each}
    assert {each for found in profiles.values() for each in found} == {
        "console",
        "monitoring",
        "registry",
        "serve",
        "ui",
    }
    comment = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").partition("x-validator")[0]
    assert all(f"--profile {each}" in comment for found in profiles.values() for each in found)


def test_ports_are_published_to_this_machine_only() -> None:
    published = [port for each in SERVICES.values() for port in each.get("ports", ())]
    assert len(published) == len(set(published)) > 5
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_images_have_versions_and_containers_have_no_rights() -> None:
    for name, each in SERVICES.items():
        assert name in OWN or ":" in each["image"], name
    for each in OWN.values():
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
        assert each["security_opt"] == ["no-new-privileges:true"]


def test_mounted_files_exist_and_volumes_are_declared() -> None:
    declared = compose()["volumes"]
    for each in SERVICES.values():
        for mount in each.get("volumes", ()):
            source = mount.replace("${VALIDATOR_CONFIG:-", "").replace("}", "").split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in declared, mount


def test_secrets_are_in_no_file_of_the_tree() -> None:
    secret = compose()["secrets"]["grafana-admin"]["file"]
    assert secret.startswith(".validator/")
    assert "/.validator/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    settings = [f"{name}={value}" for each in SERVICES.values() for name, value in each.get("environment", {}).items()]
    assert [each for each in settings if "password" in each.lower()] == [
        "GF_SECURITY_ADMIN_PASSWORD__FILE=/run/secrets/grafana-admin"
    ]


def test_configuration_is_one_that_the_job_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OWN["job"]["environment"].items():
        monkeypatch.setenv(name, value)
    config = load_config(CONFIG)
    check_chains(config)
    assert config.kafka["bootstrap.servers"] == "kafka:19092"
    assert config.job.directory == f"{folder_of_volume()}/job"
    assert config.metrics.listen is not None


def folder_of_volume() -> str:
    (mount,) = (each for each in OWN["job"]["volumes"] if each.startswith("validator-data:"))
    return str(mount.split(":")[1])


def test_prometheus_scrapes_the_job_with_the_rules_of_the_tree() -> None:
    own, shipped = (documents(ROOT / "deploy" / folder / "prometheus.yml")[0] for folder in ("compose", "prometheus"))
    (port,) = {load_config(CONFIG).metrics.listen}
    (scrape,) = own["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [f"job:{str(port).rpartition(':')[2]}"]}]
    for each in (own, shipped):
        del each["scrape_configs"][0]["static_configs"]
    assert own == shipped
    mounted = [each.split(":")[1] for each in SERVICES["prometheus"]["volumes"]]
    assert {Path(each).name for each in mounted[:2]} == {"prometheus.yml", *own["rule_files"]}


def test_grafana_finds_dashboard_and_prometheus() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = documents(folder / "datasources" / "prometheus.yml")[0]["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = documents(folder / "dashboards" / "validator.yml")[0]["providers"]
    mounted = dict(each.split(":")[:2] for each in SERVICES["grafana"]["volumes"])
    assert Path(mounted["./deploy/grafana/validator.json"]).parent == Path(provider["options"]["path"])
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "validator.json").read_text(encoding="utf-8"))
    (variable,) = (each for each in dashboard["templating"]["list"] if each["type"] == "datasource")
    assert variable["query"] == source["type"]


@pytest.mark.parametrize("name", [name for name, each in OWN.items() if "command" in each])
def test_command_is_one_of_the_product(name: str) -> None:
    command = OWN[name]["command"]
    answered = invoke(*command, "--help")
    assert answered.exit_code == 0, answered.output
    assert command[command.index("--config") + 1] in OWN[name]["volumes"][0]


def test_topics_are_created_on_a_broker(kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = CONFIG.read_text(encoding="utf-8").replace("/var/lib/validator", str(tmp_path))
    own = tmp_path / "validator.toml"
    own.write_text(f'{settings}\n[topics]\nprefix = "compose."\n', encoding="utf-8")
    monkeypatch.setenv("VALIDATOR_KAFKA", json.dumps(dict(kafka)))
    command = [str(own) if each.startswith("/etc/") else each for each in OWN["topics"]["command"]]
    answered = invoke(*command)
    assert answered.exit_code == 0, answered.output
    assert "compose.verdicts  created" in answered.output
