# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a schema registry: the part of Confluent's REST interface that the product and its examples use, on loopback.

As in the original, a schema has one id however many subjects have it, subjects number their versions from 1, a new version must be
compatible with the last one, and errors carry a code besides the HTTP status.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from validator.codec.compatibility import incompatibilities

FIRST_ID = 100_001
"""Ids of more than two bytes, so that a reader that drops a byte is noticed."""
DRIP_S = 0.01
"""Seconds between two bytes of an answer that drips."""


class Refused(Exception):
    """An answer with an error code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class StandIn:
    """What a registry holds. ``asked`` lists the requests, method and path.

    While they are set, ``broken`` is the status of every answer, ``raw`` the bytes of every answer, ``plain_text`` makes errors a page
    instead of JSON, ``headers`` are added to answers, and answers ``drip``, byte by byte, from their "header" or "body" on.
    ``accepted`` has the codings that requests accept. ``level`` is the compatibility of all other subjects; setting one
    may fail (``level_fails``), or need a version (``level_needs_subject``), as with some registries.
    """

    def __init__(self, login: str | None = None) -> None:
        self.url = ""
        self.ids: dict[str, int] = {}
        self.subjects: dict[str, list[str]] = {}
        self.levels: dict[str, str] = {}
        self.level = "BACKWARD"
        self.level_fails = self.level_needs_subject = False
        self.asked: list[tuple[str, str]] = []
        self.broken: int | None = None
        self.raw: bytes | None = None
        self.plain_text = False
        self.headers: dict[str, str] = {}
        self.drip = ""
        self.accepted: set[str | None] = set()
        self.login = login

    def add(self, subject: str, schema: Any) -> int:
        """Add a version to a subject without any check, and return the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        versions = self.subjects.setdefault(subject, [])
        if text not in versions:
            versions.append(text)
        return self.ids.setdefault(text, FIRST_ID + len(self.ids))

    def answer(self, method: str, path: list[str], body: Any) -> Any:
        match method, path:
            case "GET", ["subjects"]:
                return sorted(self.subjects)
            case "DELETE", ["subjects", subject]:
                self.levels.pop(subject, None)
                return list(range(1, len(self.subjects.pop(subject, [])) + 1))
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case "GET", ["subjects", subject, "versions", number]:
                return self._version(subject, 0 if number == "latest" else int(number))
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self._register(subject, body["schema"])}
            case "GET", ["schemas", "ids", number]:
                found = next((text for text, each in self.ids.items() if each == int(number)), None)
                if found is None:
                    raise Refused(404, 40403, f"Schema {number} not found")
                return {"schema": found}
            case "GET", ["config"]:
                return {"compatibilityLevel": self.level}
            case "GET", ["config", subject]:
                if subject not in self.levels:
                    raise Refused(
                        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
                    )
                return {"compatibilityLevel": self.levels[subject]}
            case "PUT", ["config", subject]:
                if self.level_fails:
                    raise Refused(500, 50001, "Error in the backend data store")
                if self.level_needs_subject:
                    self._versions(subject)
                self.levels[subject] = body["compatibility"]
                return {"compatibility": body["compatibility"]}
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _versions(self, subject: str) -> list[str]:
        if subject not in self.subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, subject: str, number: int) -> dict[str, Any]:
        """Return a version; 0 is the last one."""
        texts = self._versions(subject)
        text = texts[number - 1]
        return {"subject": subject, "version": number or len(texts), "id": self.ids[text], "schema": text}

    def _register(self, subject: str, text: str) -> int:
        before = self.subjects.get(subject, [])
        if before and text not in before:
            problems = incompatibilities(json.loads(text), json.loads(before[-1]))
            if problems:
                raise Refused(409, 409, f"Schema being registered is incompatible: {problems[0]}")
        return self.add(subject, text)


@contextmanager
def stand_in(login: str | None = None, tls: ssl.SSLContext | None = None) -> Iterator[StandIn]:
    """Serve a registry on a free port of loopback; with a ``login``, user and password with a colon, it admits nobody else."""
    held = StandIn(login)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(held))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    held.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.05), daemon=True)
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(held: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = (
            -1
        )  # header and body are one packet: otherwise the second one waits for the client's delayed acknowledgement

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            path = urlsplit(self.path).path
            held.accepted.add(self.headers.get("Accept-Encoding"))
            held.asked.append((self.command, unquote(path)))
            try:
                self._check()
                status, answer = 200, held.answer(self.command, [unquote(part) for part in path.split("/")[1:]], body)
            except Refused as refused:
                status, answer = refused.status, {"error_code": refused.code, "message": str(refused)}
            data = json.dumps(answer).encode()
            if held.raw is not None:
                status, data = held.broken or 200, held.raw
            if status != 200 and held.plain_text:
                data = b"<html>"
            connection = self.wfile
            self.wfile = BytesIO()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in held.headers.items():
                self.send_header(name, value)
            self.end_headers()
            header, self.wfile = self.wfile.getvalue(), connection
            if not held.drip:
                connection.write(header + data)
                return
            at_once = b"" if held.drip == "header" else header
            try:
                connection.write(at_once)
                for byte in (header + data)[len(at_once) :]:
                    connection.write(bytes([byte]))
                    connection.flush()
                    time.sleep(DRIP_S)
            except OSError:  # the client has had enough
                self.close_connection = True

        def _check(self) -> None:
            if held.broken is not None:
                raise Refused(held.broken, held.broken * 100 + 1, "Error in the backend data store")
            expected = held.login and "Basic " + b64encode(held.login.encode()).decode()
            if expected and self.headers.get("Authorization") != expected:
                raise Refused(401, 401, "HTTP 401 Unauthorized")

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None: ...

    return Handler
