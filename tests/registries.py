# SPDX-License-Identifier: Apache-2.0
"""Schema registries by Confluent's REST interface: the stand-in, and Apicurio's server, which Java runs with everything in memory."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tests.listening import free_port
from tests.registry_stand_in import stand_in
from validator.codec.schemas import make_schema
from validator.errors import UserError
from validator.job.schema_ids import RecordSchemas
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java

APICURIO = Path(__file__).parent / "ivy/apicurio.xml"
STARTED_S_MAX = 300
TWO_VERSIONS = RecordSchemas(
    "channel-requests",
    tuple(
        make_schema(
            {
                "type": "record",
                "name": "a.Record",
                "fields": [{"name": each, "type": "int", "default": 0} for each in names],
            },
            version=version,
        )
        for version, names in enumerate(("a", "ab"), 1)
    ),
)
"""A record whose second version has a field more."""
OUTPUTS = {
    "verdicts",
    "dispatches",
    "channel-events",
    "ingress-events",
    "headroom",
    "receipts",
    "dead-letters",
    "lanes",
}
"""Topics whose records a job may frame."""


class RegistryServer:
    """A running registry. ``table`` is the `[schema_registry]` of its clients."""

    def __init__(self, url: str, user: str = "", password: str = "") -> None:
        self.url = url
        self.table = {"url": url} | ({"user": user, "password": password} if user else {})
        self._login = b64encode(f"{user}:{password}".encode()).decode()

    def ask(self, method: str, *path: str, query: str = "", body: Any = None) -> Any:
        """Return the answer to a request. Raises `HTTPError`."""
        request = Request(
            "/".join([self.url, *(quote(part, safe="") for part in path)]) + query,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json", "Authorization": f"Basic {self._login}"},
            method=method,
        )
        with urlopen(request, timeout=STARTED_S_MAX) as answer:
            return json.load(answer)

    def add(self, subject: str, schema: Any) -> int:
        """Add a version to a subject, and return the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found: int = self.ask("POST", "subjects", subject, "versions", body={"schema": text})["id"]
        return found

    def subjects(self) -> set[str]:
        return set(self.ask("GET", "subjects"))

    def schemas(self, subject: str) -> list[Any]:
        """Return the versions of a subject, in their order."""
        numbers = self.ask("GET", "subjects", subject, "versions")
        return [json.loads(self.ask("GET", "subjects", subject, "versions", str(each))["schema"]) for each in numbers]

    def set_level(self, subject: str, level: str) -> None:
        self.ask("PUT", "config", subject, body={"compatibility": level})

    def level(self, *subject: str) -> str:
        """Return the compatibility of a subject, or that of all subjects that have none."""
        found: str = self.ask("GET", "config", *subject)["compatibilityLevel"]
        return found

    def clear(self) -> None:
        """Delete every subject with its compatibility; ids remain."""
        for each in self.subjects():
            for query in ("", "?permanent=true"):  # the second one is refused before the first
                self.ask("DELETE", "subjects", each, query=query)


@contextmanager
def standing_in() -> Iterator[RegistryServer]:
    """Serve the stand-in, which admits one user."""
    with stand_in(login="reader:secret") as held:
        yield RegistryServer(held.url, "reader", "secret")


@contextmanager
def apicurio(folder: Path) -> Iterator[RegistryServer]:
    """Run Apicurio's server with its files in a folder; skip the test where it cannot be fetched."""
    try:
        (archive,) = ensure_jars(APICURIO)
    except UserError as error:
        if "could not be fetched" not in str(error):  # such as another sum than the published one
            raise
        pytest.skip(str(error))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (program,) = folder.glob("apicurio-registry-app-*-runner.jar")
    port = free_port()
    settings = {
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "APICURIO_REST_DELETION_ARTIFACT_ENABLED": "true",
    }
    command: list[str | Path] = [find_java(), "-XX:TieredStopAtLevel=1", "-jar", program]
    server = RegistryServer(f"http://127.0.0.1:{port}/apis/ccompat/v7")
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log) as process,
    ):
        try:
            _await(server, process)
            for doc in ("first", "second"):  # first requests take longer than the product waits on a busy machine
                server.add("warm", {"type": "record", "name": "Warm", "fields": [], "doc": doc})
                server.set_level("warm", "BACKWARD_TRANSITIVE")
            server.clear()
            yield server
        finally:
            process.terminate()
            process.wait(60)


def _await(server: RegistryServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + STARTED_S_MAX
    while not _answers(server):
        assert process.poll() is None, f"Apicurio ended with code {process.returncode}"
        assert time.monotonic() < deadline, f"Apicurio did not answer within {STARTED_S_MAX} s"
        time.sleep(0.5)


def _answers(server: RegistryServer) -> bool:
    try:
        server.subjects()
    except (HTTPError, URLError, ConnectionError):
        return False
    return True
