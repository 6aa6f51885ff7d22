# SPDX-License-Identifier: Apache-2.0
"""The programs of the extra `deploy`, and the documents that they check."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.tree import ROOT

MANIFESTS = ROOT / "deploy" / "kubernetes"
BASE = MANIFESTS / "base"
CUSTOM = sorted({*MANIFESTS.glob("monitoring/*.yaml"), *MANIFESTS.glob("strimzi/*.yaml")} - {
    *MANIFESTS.glob("*/kustomization.yaml"), MANIFESTS / "strimzi" / "namespace.yaml",
})  # fmt: skip
"""The files with objects of operators, of which Kubernetes itself knows no form."""

OBJECTS = sorted(
    {path for path in MANIFESTS.glob("*/*.yaml") if path.name not in ("kustomization.yaml", "executor.yaml")}
    - set(CUSTOM)
    | {MANIFESTS / "secret.example.yaml"}
)
"""The files with objects for Kubernetes; the template of executors is read by Spark."""


def tool(name: str, source: str = "make lint installs it where it has a wheel") -> str:
    """Return a program of this environment or of the machine; skip the test if there is none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {source}")
    return found


def built(folder: Path) -> list[dict[str, Any]]:
    """Return the objects that kustomize builds from a folder; skip the test without it."""
    alone = shutil.which("kustomize")
    command = [alone, "build"] if alone else [tool("kubectl", "it or kustomize builds the overlays"), "kustomize"]
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [each for each in yaml.safe_load_all(ended.stdout) if each is not None]


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def compose() -> dict[str, Any]:
    """Return `docker-compose.yml`."""
    (found,) = documents(ROOT / "docker-compose.yml")
    return found


def manifests() -> list[dict[str, Any]]:
    """Return all objects for Kubernetes and its operators."""
    return [each for path in (*OBJECTS, *CUSTOM) for each in documents(path)]
