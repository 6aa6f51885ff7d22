# SPDX-License-Identifier: Apache-2.0
"""What the image and the compose services run, run here without containers: the job with its health check, and the console."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.deploy.test_compose import CONFIG, OWN
from tests.deploy.test_image import ENTRYPOINT, environment, json_of
from tests.listening import free_port
from tests.streaming.harness import wait_until
from validator.kafka.topics import create_topics

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker]


class Container:
    """The entry point with a service's command, in the environment of a service."""

    def __init__(self, folder: Path, kafka: dict[str, Any]) -> None:
        self.folder, self.metrics, self.console, self.serve = folder, free_port(), free_port(), free_port()
        self.config = folder / "validator.toml"
        text = CONFIG.read_text(encoding="utf-8").replace("/var/lib/validator", str(folder))
        text = text.replace("0.0.0.0:9464", f"127.0.0.1:{self.metrics}")
        self.config.write_text(f'{text}\n[topics]\nprefix = "containers."\n', encoding="utf-8")
        settings = {"VALIDATOR_KAFKA": json.dumps(kafka)}
        if (cache := os.environ.get("XDG_CACHE_HOME")) is not None:
            settings["XDG_CACHE_HOME"] = cache
        self.environment = environment(folder, **settings) | {"HOME": str(Path.home())}

    def command(self, arguments: list[str]) -> list[str]:
        """Return a command with the paths and ports of this machine."""
        places = {
            "/etc/validator/validator.toml": str(self.config),
            "0.0.0.0:8480": f"127.0.0.1:{self.console}",
            "0.0.0.0:8481": f"127.0.0.1:{self.serve}",
        }
        return [places.get(each, each) for each in arguments]

    @contextmanager
    def running(self, arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run the entry point; its output goes to `output` in the folder."""
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [str(ENTRYPOINT), *self.command(arguments)],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def health(self) -> tuple[int, str]:
        """Run the image's health check."""
        check = json_of("HEALTHCHECK .*|  CMD")
        ended = subprocess.run(
            self.command(check), env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return ended.returncode, ended.stdout


@pytest.fixture
def container(tmp_path: Path, kafka: dict[str, Any]) -> Container:
    create_topics(kafka, prefix="containers.")
    return Container(tmp_path, dict(kafka))


def test_job_of_the_image_is_healthy_until_it_ends(container: Container) -> None:
    log = container.folder / "output"
    code, line = container.health()
    assert (code, line.startswith("no job answers at ")) == (1, True)
    with container.running(json_of("CMD")) as job:

        def healthy() -> bool:
            assert job.poll() is None, log.read_text(encoding="utf-8")
            return container.health() == (0, "the job runs: 1 lane, 0 parked, 0 blocks behind\n")

        wait_until(healthy, "the job is healthy", log)
        with urlopen(f"http://127.0.0.1:{container.metrics}/metrics") as answer:
            assert b"validator_job_ready 1.0" in answer.read()
        job.send_signal(signal.SIGTERM)
        wait_until(lambda: job.poll() is not None, "the job ends", log)
    assert job.returncode == 0
    assert container.health()[0] == 1


@pytest.mark.parametrize(("service", "port", "page"), [("console", 8480, "/"), ("serve", 8481, "/openapi.json")])
def test_server_of_the_service_wants_its_token(container: Container, service: str, port: int, page: str) -> None:
    log = container.folder / "output"
    with container.running(OWN[service]["command"]) as console:
        found: list[re.Match[str]] = []

        def said() -> bool:
            assert console.poll() is None, log.read_text(encoding="utf-8")
            found.extend(re.finditer(r"(http://127\.0\.0\.1:\d+)/\?token=(\S+)", log.read_text(encoding="utf-8")))
            return bool(found)

        wait_until(said, f"{service} prints its address", log)
        address, token = found[0].groups()
        program = OWN[service]["healthcheck"]["test"][1:]
        check = [each.replace(f"http://127.0.0.1:{port}", address) for each in program]
        assert subprocess.run(check, env=container.environment, check=False).returncode == 0
        with urlopen(Request(f"{address}{page}", headers={"Authorization": f"Bearer {token}"})) as answer:
            assert b"polkadot" in answer.read()
        with pytest.raises(OSError, match="401"):
            urlopen(f"{address}{page}")
        console.send_signal(signal.SIGTERM)
        wait_until(lambda: console.poll() is not None, f"{service} ends", log)
    assert console.returncode == 0
