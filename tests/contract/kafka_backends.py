# SPDX-License-Identifier: Apache-2.0
"""The brokers that the contract suite runs against, behind one interface."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from validator.kafka.broker import _PROPERTIES, EmbeddedBroker, _free_ports

if TYPE_CHECKING:
    from pathlib import Path


class Backend(Protocol):
    """A broker that keeps its data across a restart."""

    def start(self) -> str: ...
    def stop(self) -> object: ...


QUICK: Final = {"log.cleaner.backoff.ms": "200"}
"""Options for tests only; by default a broker looks for work to compact every 15 s."""


class QuickBroker(EmbeddedBroker):
    """The embedded broker with these options."""

    def _properties(self, port: int, controller_port: int, own: str) -> str:
        return super()._properties(port, controller_port, own) + "".join(
            f"{key}={value}\n" for key, value in QUICK.items()
        )


def embedded(directory: Path) -> QuickBroker:
    return QuickBroker(directory)


class Container:
    """The published image with the options of the embedded broker."""

    def __init__(self) -> None:
        from testcontainers.core.container import DockerContainer

        self.port = _free_ports(None)[0]
        self.container = DockerContainer("apache/kafka:4.2.1").with_bind_ports(9092, self.port)
        options = (
            _PROPERTIES
            | QUICK
            | {
                "listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093",
                "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "controller.quorum.voters": "1@localhost:9093",
            }
        )
        for name, value in options.items():
            self.container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        self.created = False

    def start(self) -> str:
        if self.created:
            self.container.get_wrapped_container().start()
        else:
            self.container.start()
            self.created = True
        bootstrap = f"localhost:{self.port}"
        for _ in range(60):
            try:
                AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=1.0)
            except KafkaException:
                continue
            return bootstrap
        raise RuntimeError(f"the container does not answer: {self.container.get_logs()!r}")

    def stop(self) -> None:
        self.container.get_wrapped_container().stop()

    def remove(self) -> None:
        self.container.stop()


@cache
def no_docker() -> str | None:
    """Return why no container is available, or None if one is."""
    if shutil.which("docker") is None:
        return "no docker program on PATH"
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "docker info does not answer"
    words = (asked.stderr.strip() or asked.stdout.strip()).splitlines()
    return None if asked.returncode == 0 else f"no Docker engine answers: {words[-1] if words else asked.returncode}"
