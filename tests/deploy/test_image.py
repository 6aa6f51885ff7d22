# SPDX-License-Identifier: Apache-2.0
"""The image: what it copies and installs, how it begins, and what its health check says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.image_requirements import FOLDER
from tests.tidy.tree import ROOT
from validator.kafka.java import find_java

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
ENTRYPOINT = FOLDER / "entrypoint.sh"


def json_of(instruction: str) -> list[str]:
    """Return the arguments of an instruction in its JSON form; the last one counts."""
    return [list(json.loads(found)) for found in re.findall(rf"(?m)^(?:{instruction}) (\[.*\])$", DOCKERFILE)][-1]


def test_image_copies_what_exists_and_nothing_more() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied: set[str] = set()
    for line in re.findall(r"(?m)^COPY (?!--from)(?:--\S+ )?(.*)$", DOCKERFILE):
        copied |= set(line.split()[:-1])
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(path == each or path.startswith(f"{each}/") for each in kept), f"{path} is ignored"
    assert {each for each in kept if not any(path.startswith(each) for path in copied)} == set()
    included = re.findall(r'"/([^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {each for each in included if each != "LICENSE"} <= copied


def test_image_is_not_of_root_and_has_no_secret() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"(?m)^USER (\d+):\d+$", last)
    assert not re.search(r"(?i)^(ARG|ENV) .*(password|secret|token|key)", DOCKERFILE, re.MULTILINE)
    versions = re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)
    assert {each for each in versions if ":" in each} == {"python:3.11-slim-bookworm"}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which `validator` and `java` are those that the tests use."""
    path = f"{folder}:{Path(sys.executable).parent}:{find_java().parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder), **more}


def test_entry_point_begins_the_product(tmp_path: Path) -> None:
    assert json_of("ENTRYPOINT")[-1] == "validator-entrypoint"
    assert "deploy/image/entrypoint.sh /usr/local/bin/validator-entrypoint" in DOCKERFILE
    assert os.access(ENTRYPOINT, os.X_OK)
    command = [ENTRYPOINT, *json_of("CMD"), "--help"]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "validator run" in ended.stdout
    command = [ENTRYPOINT, "run", "--config", str(tmp_path / "absent.toml")]
    ended = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "absent.toml" in ended.stderr


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "128m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "executor-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=1",
    "SPARK_JAVA_OPT_1": "-Dwith=a space",
}
"""What Spark gives to the container of an executor."""


def executor(folder: Path) -> dict[str, str]:
    local = folder / "local"
    local.mkdir()
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    return environment(folder, SPARK_HOME=home, SPARK_LOCAL_DIRS=f"{local},/nowhere", **EXECUTOR)


def test_executor_gets_what_spark_says(tmp_path: Path) -> None:
    given = executor(tmp_path)
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    ended = subprocess.run([ENTRYPOINT, "executor"], env=given, capture_output=True, text=True, check=False)
    folder, *arguments = ended.stdout.splitlines()
    assert folder == str(tmp_path / "local")
    assert arguments[:4] == [EXECUTOR["SPARK_JAVA_OPT_0"], EXECUTOR["SPARK_JAVA_OPT_1"], "-Xms128m", "-Xmx128m"]
    assert arguments[5].endswith(f":{given['SPARK_HOME']}/jars/*")
    options = dict(zip(arguments[7::2], arguments[8::2], strict=True))
    assert options == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "7",
        "--cores": "1",
        "--app-id": "spark-1",
        "--hostname": "127.0.0.1",
        "--resourceProfileId": "0",
        "--podName": "executor-7",
    }


def test_executor_of_spark_takes_these_arguments(tmp_path: Path) -> None:
    """Spark's class reads all of them and looks for its driver, which is not there."""
    ended = subprocess.run(
        [ENTRYPOINT, "executor"], env=executor(tmp_path), capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "Unrecognized options" not in ended.stderr
    assert re.search(r"(Failed to connect to|Connection refused).*127\.0\.0\.1:1", ended.stderr), ended.stderr[-2000:]
