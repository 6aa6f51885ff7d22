# SPDX-License-Identifier: Apache-2.0
"""The web application: a list and a stream for each topic that people read, a verdict by its hash, the description of all of them.

Whatever waits for Kafka does so in a thread, so the event loop continues. An error is an RFC 9457 problem.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from validator.client.streams import BEGINNING, NOW, PositionsExpired, PositionsForeign
from validator.client.topics import RuleNames
from validator.errors import Unavailable, UserError
from validator.kafka.reader import TopicMissing
from validator.record_filter import RecordFilter
from validator.serve.cursors import BadCursor, Cursor, cursor_of
from validator.serve.events import EventStream
from validator.serve.limits import (
    CURSOR_MAX,
    PAGE_DEFAULT,
    QUERY_MAX,
    READERS_AT_ONCE_MAX,
    RETRY_S,
    SEARCHED_BYTES_MAX,
    SEARCHED_MAX,
)
from validator.serve.openapi import document
from validator.serve.pages import Bounds, Wanted, page_from_newest, page_from_oldest
from validator.serve.parameters import PAGE, STREAM, Asked, filters_of, hash_of, read_query
from validator.serve.readers import Readers
from validator.web.limits import FIELDS_MAX, STREAMS_MAX
from validator.web.security import Guard
from validator.web.streams import NO_STORE, CountedStream, Streams

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from validator.client.backend import Backend, Reading
    from validator.client.topics import ReadableTopic
    from validator.serve.parameters import Parameter
    from validator.web.security import Secrets

    Endpoint = Callable[[Request], Awaitable[Response]]

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
OPEN_PATHS: Final = frozenset({"/healthz"})
EVENTS_HEADER: Final = "last-event-id"


class Refused(Exception):
    """A request that is answered by a problem."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def problem(status: int, detail: str) -> tuple[str, bytes]:
    """Return the type and the body of a problem."""
    fields = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return PROBLEM, json.dumps(fields).encode() + b"\n"


def status_of(error: UserError) -> int:
    """Return the status of an error of a cursor, of Kafka or of a query."""
    match error:
        case PositionsExpired():
            return HTTPStatus.GONE
        case Unavailable():
            return HTTPStatus.SERVICE_UNAVAILABLE
        case BadCursor() | PositionsForeign():
            return HTTPStatus.BAD_REQUEST
    return HTTPStatus.SERVICE_UNAVAILABLE


@dataclass(slots=True)
class WebLists:
    """Answers requests about the topics that a backend reads.

    ``lanes`` are those that a filter may name, none for any; ``protocols`` has the protocol of each. ``say`` takes a traceback for the log;
    ``stopping`` ends streams.
    """

    backend: Backend
    topics: Mapping[str, ReadableTopic]
    protocols: Mapping[str, str]
    secrets: Secrets
    say: Callable[[str], None]
    stopping: asyncio.Event
    streams: Streams = field(default_factory=Streams)
    pages: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(READERS_AT_ONCE_MAX))
    followers: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(STREAMS_MAX))
    readers: Readers = field(init=False)

    def __post_init__(self) -> None:
        self.readers = Readers(self.backend)

    @property
    def lanes(self) -> Sequence[str]:
        """The configured lanes."""
        return sorted(self.protocols)

    def app(self, host: str, port: int) -> ASGIApp:
        """Return the application, guarded."""
        routes = [
            Route("/", self.lists),
            Route("/v1", self.lists),
            Route("/openapi.json", self.described),
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
        ]
        for topic in self.topics.values():
            routes += [
                Route(f"/v1/{topic.name}", partial(self.page, topic)),
                Route(f"/v1/{topic.name}/events", partial(self.events, topic)),
            ]
        routes.append(Route("/v1/verdicts/{hash}", self.verdict))
        handlers: dict[Any, Any] = {404: self.missing, 500: self.failed, Refused: self.refused}
        return Guard(
            Starlette(routes=routes, exception_handlers=handlers),
            self.secrets,
            host,
            port,
            name="service",
            open_paths=OPEN_PATHS,
            query_max=QUERY_MAX,
            body_max=0,
            answer=problem,
        )

    # --- lists ---

    async def lists(self, _request: Request) -> Response:
        """Answer with the lists."""
        rows = [
            {"topic": each.name, "owner": each.owner, "purpose": each.purpose, "path": f"/v1/{each.name}"}
            for each in self.topics.values()
        ]
        return _json(json.dumps({"lists": rows}))

    async def described(self, _request: Request) -> Response:
        """Answer with the OpenAPI document."""
        return _json(json.dumps(document(self.topics.values(), self.lanes)))

    async def page(self, topic: ReadableTopic, request: Request) -> Response:
        """Answer with a page of a list."""
        asked = self._asked(request, (*filters_of(topic), *PAGE))
        cursor = self._cursor(asked, topic)
        order = asked.values.get("start", "oldest") if cursor is None else cursor.order
        read = page_from_oldest if order == "oldest" else page_from_newest
        bounds = Bounds(asked.values.get("limit", PAGE_DEFAULT))
        page = await self._read(topic, lambda: read(self.readers, self._wanted(topic, asked), cursor, bounds))
        return _json(page.json())

    async def verdict(self, request: Request) -> Response:
        """Answer with the newest verdict that holds a hash."""
        topic = self.topics["verdicts"]
        try:
            wanted = Wanted(topic.name, self._decoder(topic), RecordFilter(), hash_of(request.path_params["hash"]))
        except UserError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        self._asked(request, ())
        bounds = Bounds(1, SEARCHED_MAX, SEARCHED_BYTES_MAX)
        page = await self._read(topic, lambda: page_from_newest(self.readers, wanted, None, bounds))
        if not page.items:
            where = "all" if page.at_end else f"the newest {page.scanned:,}"
            raise Refused(HTTPStatus.NOT_FOUND, f"None of {where} verdicts holds this hash.")
        return _json(page.items[0])

    async def events(self, topic: ReadableTopic, request: Request) -> Response:
        """Stream a list as it grows."""
        last = request.headers.get(EVENTS_HEADER) or None
        if last is not None and len(last) > CURSOR_MAX:
            raise Refused(HTTPStatus.BAD_REQUEST, f"Last-Event-ID: expected at most {CURSOR_MAX:,} characters.")
        asked = self._asked(request, (*filters_of(topic), *STREAM), last)
        cursor = self._cursor(asked, topic)
        if cursor is not None and cursor.order != "oldest":
            raise Refused(
                HTTPStatus.BAD_REQUEST, "cursor: expected one that leads to newer records: `follow`, or an event's id."
            )
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=NO_STORE)
        if self.streams.open >= STREAMS_MAX:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{STREAMS_MAX} streams are open already.")
        start = NOW if asked.values.get("start", "newest") == "newest" else BEGINNING
        begin = start if cursor is None else cursor.begin
        self.streams.open += 1  # while the reader is opened
        try:
            reading: Reading = await self._read(topic, lambda: self.backend.read(topic.name, begin))
        finally:
            self.streams.open -= 1
        stream = EventStream(reading, self._wanted(topic, asked), self.followers, self.stopping)
        return CountedStream(self.streams, stream.events(), on_end=stream.close)

    def _asked(self, request: Request, known: Sequence[Parameter], cursor: str | None = None) -> Asked:
        pairs = request.query_params.multi_items()
        if len(pairs) > FIELDS_MAX:
            raise Refused(HTTPStatus.BAD_REQUEST, f"Expected at most {FIELDS_MAX} parameters.")
        try:
            return read_query(pairs, known, self.lanes, cursor)
        except UserError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None

    def _cursor(self, asked: Asked, topic: ReadableTopic) -> Cursor | None:
        text = asked.values.get("cursor")
        try:
            return None if text is None else cursor_of(text, topic.name)
        except UserError as error:
            raise Refused(status_of(error), str(error)) from None

    def _wanted(self, topic: ReadableTopic, asked: Asked) -> Wanted:
        return Wanted(topic.name, self._decoder(topic), asked.filter, asked.hash)

    def _decoder(self, topic: ReadableTopic) -> Callable[[bytes], dict[str, Any]]:
        if topic.name != "verdicts":
            return topic.decode
        rules = RuleNames(self.protocols)
        return lambda value: rules.add(topic.decode(value))

    async def _read(self, topic: ReadableTopic, read: Callable[[], Any]) -> Any:
        try:
            return await to_thread.run_sync(read, limiter=self.pages)
        except TopicMissing:
            raise Refused(
                HTTPStatus.NOT_FOUND, f"The topic {topic.name} does not exist yet: {topic.missing}."
            ) from None
        except UserError as error:
            raise Refused(status_of(error), str(error)) from None

    # --- problems ---

    async def refused(self, _request: Request, error: Refused) -> Response:
        """Answer with a problem."""
        return _problem(error.status, error.detail)

    async def missing(self, _request: Request, _error: Exception) -> Response:
        """Answer to an address that no list has."""
        return _problem(HTTPStatus.NOT_FOUND, "There is no list at this address: /v1 has all of them.")

    async def failed(self, _request: Request, error: Exception) -> Response:
        """Answer after a bug: the traceback is for the log."""
        identity = blake2b(repr(error).encode(), digest_size=4).hexdigest()
        self.say(f"serve, error {identity}:\n" + "".join(traceback.format_exception(error)))
        return _problem(
            HTTPStatus.INTERNAL_SERVER_ERROR, f"A bug: the server's log has the traceback under {identity}."
        )


def _json(text: str) -> Response:
    return Response(f"{text}\n", media_type=JSON, headers=NO_STORE)


def _problem(status: int, detail: str) -> Response:
    kind, body = problem(status, detail)
    retry = {"retry-after": str(RETRY_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(body, status, media_type=kind, headers={**NO_STORE, **retry})
