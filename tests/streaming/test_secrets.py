# SPDX-License-Identifier: Apache-2.0
"""No password is in the job's folder, in a log or on a command line, whichever source reads and whatever fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.crash.processes import of_session, workers_of
from tests.streaming.harness import produce, wait_until
from tests.streaming.reference import chains
from validator.config.toml import to_toml
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics, list_topics

MARK = "5ecre7-of-the-marked-user"
USER = "marked"


def holders(folder: Path) -> list[Path]:
    """Return the files that hold the password. A file or a folder that is removed meanwhile holds nothing."""
    found = []
    for parent, _, names in os.walk(folder):  # it passes over folders that are gone
        for path in (Path(parent, name) for name in names):
            try:
                if path.is_file() and MARK.encode() in path.read_bytes():
                    found.append(path)
            except FileNotFoundError:
                pass
    return found


def shown(process: int) -> list[str]:
    """Return the command lines of a job's processes that show the password, to anybody on the machine."""
    return [each.command for each in of_session(process) if MARK in each.command]


def failed(lines: list[str]) -> bool:
    """Return whether a job has begun a batch again."""
    return any(json.loads(line)["event"] == "restarting" for line in list(lines))


def kill_workers(process: int, enough: Callable[[], bool]) -> None:
    """Kill every worker of a job as soon as it runs, so that a batch fails."""
    while not enough():
        for worker in workers_of(process):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[1,1,1024]", marks=pytest.mark.long)])
def test_password_of_the_environment_is_in_no_file(master: str, kafka: dict[str, Any], tmp_path: Path) -> None:
    prefix = f"secrets.{master.partition('[')[0]}."
    create_topics(kafka, prefix=prefix)
    wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), MARK.encode())
    admin = AdminClient(admin_config(kafka))
    for future in admin.alter_user_scram_credentials([wanted]).values():
        future.result()
    chain = chains()[0]
    tables = {
        "topics": {"prefix": prefix},
        "kafka": {name: value for name, value in kafka.items() if name != "sasl.password"} | {"sasl.username": USER},
        "job": {"directory": str(tmp_path / "job"), "driver_memory": "1g", "master": master},
        "chains": {chain.lane: chain.table},
    }
    settings = tmp_path / "validator.toml"
    settings.write_text(to_toml(tables), encoding="utf-8")
    last = max(record.block for record in chain.records)
    lines: list[str] = []

    def blocks() -> int:
        return next(each.records or 0 for each in list_topics(kafka, prefix=prefix) if each.name == f"{prefix}receipts")

    def executed(upto: int) -> None:
        wanted = sum(record.topic == "blocks" and record.block <= upto for record in chain.records)
        log = tmp_path / "job" / "logs" / "spark.log"
        wait_until(lambda: blocks() > wanted or process.poll() is not None, f"receipts up to block {upto}", log)
        assert process.poll() is None, lines

    command = [sys.executable, "-m", "validator", "run", "--json", "--config", str(settings)]
    environment = os.environ | {"VALIDATOR_KAFKA__SASL__PASSWORD": MARK}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        assert process.stderr is not None
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
        reader.start()
        try:
            produce(kafka, prefix, [each for each in chain.records if each.block <= last // 2])
            executed(last // 2)
            job = json.loads((tmp_path / "job" / "job.json").read_text(encoding="utf-8"))["pid"]
            assert holders(tmp_path) == []
            assert shown(job) == []
            with ThreadPoolExecutor(1) as killer:  # a batch that fails writes all that Spark says of it to the log
                killed = killer.submit(kill_workers, job, lambda: failed(lines) or process.poll() is not None)
                produce(kafka, prefix, [each for each in chain.records if each.block > last // 2])
                killed.result()
            executed(last)
            assert holders(tmp_path) == []
        finally:
            process.terminate()
            process.wait()
            reader.join()
    assert failed(lines), lines
    assert (tmp_path / "job" / "logs" / "spark.log").stat().st_size > 0
    assert holders(tmp_path) == []
    assert not any(MARK in line for line in lines)
