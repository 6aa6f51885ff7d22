# SPDX-License-Identifier: Apache-2.0
"""The web application: pages by address, their live updates as server-sent events, the search, and the form of dead letters."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Match, Route

from validator.console.channels import channel_page, channels_page
from validator.console.context import ConsoleContext, Missing, Page, Query
from validator.console.letters import Answer, Form, executed_blocks, letter_page, letters_page
from validator.console.limits import FRAME_S
from validator.console.messages import message_page, messages_page
from validator.console.model import KeptVerdict, LaneModel
from validator.console.overview import overview_page, runtime_page
from validator.console.paras import para_page, paras_page, stored_page
from validator.console.rendering import parts, render
from validator.console.verdicts import rule_page, verdict_page, verdicts_page
from validator.errors import UserError
from validator.hexadecimal import bare
from validator.letters.dead_letters import DeadLetterOffset
from validator.web.limits import FIELDS_MAX, HEARTBEAT_S, QUERY_MAX, STREAMS_MAX
from validator.web.security import Guard, Secrets, is_same
from validator.web.streams import CountedStream, Streams

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from validator.console.journeys import KeptMessage


PageOf = Callable[[ConsoleContext, dict[str, str], Query], Page]

PAGES: Final[tuple[tuple[str, PageOf], ...]] = (
    ("/", overview_page),
    ("/lanes/{lane}", overview_page),
    ("/lanes/{lane}/verdicts", verdicts_page),
    ("/lanes/{lane}/verdicts/{block:int}/{kind}/{index:int}", verdict_page),
    ("/lanes/{lane}/channels", channels_page),
    ("/lanes/{lane}/channels/{sender:int}/{recipient:int}", channel_page),
    ("/lanes/{lane}/paras", paras_page),
    ("/lanes/{lane}/paras/{para:int}", para_page),
    ("/lanes/{lane}/paras/{para:int}/state", stored_page),
    ("/lanes/{lane}/messages", messages_page),
    ("/lanes/{lane}/messages/{id}", message_page),
    ("/lanes/{lane}/runtime", runtime_page),
    ("/dead-letters", letters_page),
    ("/dead-letters/{partition:int}/{offset:int}", letter_page),
    ("/rules", rule_page),
)
"""Every page; each of them is live, except those of which a reader reads Kafka or the checkpoint."""

STILL: Final = frozenset({letter_page, stored_page, rule_page})
"""Pages without live updates."""

ASSETS: Final = {"console.css": "text/css", "console.js": "text/javascript"}
NO_STORE: Final = {"cache-control": "no-store"}
ATTEMPT_DIGITS_MAX: Final = 9


@dataclass(slots=True)
class WebConsole:
    """Answers requests about one console. ``say`` takes a line, or a traceback, for the log; ``stopping`` ends live updates."""

    console: ConsoleContext
    secrets: Secrets
    say: Callable[[str], None]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    streams: Streams = field(default_factory=Streams)
    pages: list[tuple[Route, PageOf]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pages = [(Route(path, partial(self.page, page)), page) for path, page in PAGES]

    def app(self, host: str, port: int) -> ASGIApp:
        """Return the application, guarded."""
        routes = [
            *(route for route, _ in self.pages),
            Route("/events", self.events),
            Route("/find", self.find),
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
            Route("/static/{name}", self.asset),
            Route("/dead-letters/{partition:int}/{offset:int}", self.put_back, methods=["POST"]),
            Route("/dead-letters/{partition:int}/{offset:int}/raw", self.raw),
        ]
        return Guard(
            Starlette(routes=routes, exception_handlers={404: self.missing, 500: self.failed}), self.secrets, host, port
        )

    # --- pages ---

    async def page(self, page: PageOf, request: Request) -> Response:
        """Answer with a page."""
        return await run_in_threadpool(self._page, page, _named(request.path_params), dict(request.query_params))

    def _page(self, page: PageOf, path: dict[str, str], query: dict[str, str]) -> Response:
        try:
            with self._unchanged(page):
                return self._html(page(self.console, path, query), live=page not in STILL)
        except Missing as error:
            return self._missing(str(error))

    def _unchanged(self, page: PageOf) -> AbstractContextManager[object]:
        """Let the model stand still while a page is made; not for pages that read Kafka or the checkpoint meanwhile."""
        return nullcontext() if page in STILL else self.console.model.lock

    def _html(self, page: Page, status: int = 200, *, live: bool = False) -> Response:
        with self.console.model.lock:
            return HTMLResponse(render(page, self._more(live=live)), status, headers=NO_STORE)

    def _more(self, *, live: bool = False) -> dict[str, Any]:
        return {"form_token": self.secrets.form, "live": live, "assets": _digests()}

    def _missing(self, words: str) -> Response:
        return self._html(Page("missing.html", {**self.console.common(""), "words": words}), 404)

    async def missing(self, _request: Request, _error: Exception) -> Response:
        """Answer to an address that no page has."""
        return await run_in_threadpool(self._missing, "There is no page at this address.")

    async def failed(self, _request: Request, error: Exception) -> Response:
        """Answer after a bug: the traceback is for the log."""
        identity = blake2b(repr(error).encode(), digest_size=4).hexdigest()
        self.say(f"console, error {identity}:\n" + "".join(traceback.format_exception(error)))
        return PlainTextResponse(f"The console has a bug: its log has the traceback under {identity}.\n", 500)

    async def find(self, request: Request) -> Response:
        """Lead to what a person looks for."""
        wanted = request.query_params.get("q", "").strip()[:QUERY_MAX]
        lane = request.query_params.get("lane", "")
        target = await run_in_threadpool(find, self.console, lane, wanted)
        if target is None:
            words = (
                f"Nothing here has the para, block, id or hash {wanted!r}."
                if wanted
                else "Type a para, a block, an id or a hash."
            )
            return await run_in_threadpool(self._missing, words)
        return RedirectResponse(target, 303)

    async def asset(self, request: Request) -> Response:
        """Answer with the style sheet or the script."""
        name = request.path_params["name"]
        if name not in ASSETS:
            return await run_in_threadpool(self._missing, "There is no page at this address.")
        data = files("validator.console").joinpath("static", name).read_bytes()
        return Response(data, media_type=ASSETS[name], headers={"cache-control": "max-age=3600"})

    # --- live updates ---

    async def events(self, request: Request) -> Response:
        """Stream the parts of a page that change, at most one frame a second."""
        try:
            target = urlsplit(request.query_params.get("page", "/"))
            query = {name: values[-1] for name, values in parse_qs(target.query, max_num_fields=FIELDS_MAX).items()}
        except ValueError:
            return PlainTextResponse("This is no address of a page.\n", 400)
        found = self.live_page(unquote(target.path))
        if found is None:
            return PlainTextResponse("There is no live page at this address.\n", 404)
        if self.streams.open >= STREAMS_MAX:
            return PlainTextResponse(f"{STREAMS_MAX} pages are live already: close one.\n", 503)
        return CountedStream(self.streams, self._frames(*found, query))

    def live_page(self, path: str) -> tuple[PageOf, dict[str, str]] | None:
        """Return the page at an address with the values in it, None if no page there is live."""
        for route, page in self.pages:
            match, found = route.matches({"type": "http", "method": "GET", "path": path})
            if match is Match.FULL and page not in STILL:
                return page, _named(found["path_params"])
        return None

    async def _frames(self, page: PageOf, path: dict[str, str], query: dict[str, str]) -> AsyncIterator[str]:
        sent: dict[str, bytes] = {}
        version: object = None
        silent_s = 0.0
        yield "retry: 2000\n\n"
        while not self.stopping.is_set():
            silent_s += FRAME_S
            if self.console.version != version or silent_s >= HEARTBEAT_S:
                version, silent_s = self.console.version, 0.0
                changed = await run_in_threadpool(self._changed, page, path, query, sent)
                yield f"event: parts\ndata: {json.dumps(changed)}\n\n" if changed else ": nothing new\n\n"
            try:
                await asyncio.wait_for(self.stopping.wait(), FRAME_S)
            except TimeoutError:
                continue

    def _changed(
        self, page: PageOf, path: dict[str, str], query: dict[str, str], sent: dict[str, bytes]
    ) -> dict[str, str]:
        """Return the parts of a page that differ from those that were sent, and remember them."""
        try:
            with self._unchanged(page):
                made = parts(page(self.console, path, query), self._more(live=True))
        except Missing:
            return {}
        digests = {name: blake2b(html.encode(), digest_size=16).digest() for name, html in made.items()}
        changed = {name: html for name, html in made.items() if sent.get(name) != digests[name]}
        sent.update(digests)
        return changed

    # --- dead letters ---

    async def raw(self, request: Request) -> Response:
        """Answer with a dead letter's bytes, to be saved."""
        place = _place(request)
        try:
            data = await run_in_threadpool(self.console.letters.raw, place)
        except UserError as error:
            return await run_in_threadpool(self._missing, str(error))
        name = f"dead-letter-{place.partition}-{place.offset}.bin"
        headers = {**NO_STORE, "content-disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type="application/octet-stream", headers=headers)

    async def put_back(self, request: Request) -> Response:
        """Check or put back a dead letter, as its form says, and show what became of it."""
        try:
            text = (await request.body()).decode("utf-8", "replace")
        except ClientDisconnect:  # it has gone, or was too slow: nobody reads the answer
            return PlainTextResponse("The form did not arrive.\n", 400)
        try:
            fields = parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            return PlainTextResponse(f"Expected a form of at most {FIELDS_MAX} fields.\n", 400)
        form = {name: values[-1] for name, values in fields.items()}
        if not is_same(form.get("form_token", ""), self.secrets.form):
            return PlainTextResponse("The form's token is not that of this console: load the page again.\n", 403)
        if self.console.read_only:
            return PlainTextResponse("This console is read-only.\n", 403)
        return await run_in_threadpool(self._put_back, _place(request), form)

    def _put_back(self, place: DeadLetterOffset, form: dict[str, str]) -> Response:
        letters = self.console.letters
        kind: Form = "hex" if form.get("form") == "hex" else "json"
        text = form.get("record")
        try:
            if form.get("action") == "replay":
                attempt = form.get("attempt", "")
                number = int(attempt) if attempt.isdecimal() and len(attempt) <= ATTEMPT_DIGITS_MAX else 0
                answer = letters.put_back(place, kind, text, number)
            else:
                answer = letters.check(place, kind, text, executed_blocks(self.console))
        except UserError as error:
            answer = Answer(ok=False, words=str(error))
        path = {"partition": str(place.partition), "offset": str(place.offset)}
        try:
            page = letter_page(self.console, path, {}, answer=answer, text=text, form=kind)
        except Missing as error:
            return self._missing(str(error))
        return self._html(page, 200 if answer.ok else 422)


def _named(values: dict[str, Any]) -> dict[str, str]:
    """Return the values of an address as texts."""
    return {name: str(value) for name, value in values.items()}


def _place(request: Request) -> DeadLetterOffset:
    return DeadLetterOffset(request.path_params["partition"], request.path_params["offset"])


def _digests() -> dict[str, str]:
    """Return the addresses of the assets, which change with their content."""
    return {name.partition(".")[2]: f"/static/{quote(name)}?{_digest(name)}" for name in ASSETS}


def _digest(name: str) -> str:
    data = files("validator.console").joinpath("static", name).read_bytes()
    return blake2b(data, digest_size=6).hexdigest()


_CHANNEL: Final = re.compile(r"(\d{1,10})\s*(?:→|->|,|>)\s*(\d{1,10})")
HASH_DIGITS_MIN: Final = 16


def find(console: ConsoleContext, lane_name: str, wanted: str) -> str | None:
    """Return the address of what is wanted, None if nothing here has it. The chosen lane is searched first."""
    model = console.model
    with model.lock:
        lanes = sorted(model.lanes.values(), key=lambda lane: lane.name != lane_name)
        number = wanted.replace(",", "").removeprefix("#")
        for lane in lanes:
            link = console.link(lane.name)
            if channel := _CHANNEL.fullmatch(wanted):
                return f"{link}/channels/{int(channel[1])}/{int(channel[2])}"
            if number.isascii() and number.isdecimal() and len(number) <= 10:
                if int(number) in lane.paras:
                    return f"{link}/paras/{int(number)}"
                if any(block.block == int(number) for block in lane.blocks):
                    return f"{link}/verdicts?block={int(number)}"
            if (verdict := _by_hash(lane, wanted)) is not None:
                return f"{link}/verdicts/{verdict.block}/{quote(verdict.kind, safe='')}/{verdict.index}"
            if (message := _message(lane, wanted)) is not None:
                return f"{link}/messages/{quote(message.id, safe='')}"
            if any(wanted in (error, error.rpartition("/")[2]) for error in lane.tally.error):
                error = next(error for error in lane.tally.error if wanted in (error, error.rpartition("/")[2]))
                return f"{link}/verdicts?rule={quote(error, safe='')}"
            if wanted and (para := link.called(wanted)) in lane.paras:
                return f"{link}/paras/{para}"
    return None


def _by_hash(lane: LaneModel, wanted: str) -> KeptVerdict | None:
    """Return the verdict whose record holds a hash or its beginning: an id, a candidate's hash, an MQC head."""
    needle = _needle(wanted)
    return None if needle is None else next((verdict for verdict in lane.newest() if needle in verdict.value), None)


def _message(lane: LaneModel, wanted: str) -> KeptMessage | None:
    """Return the message with an id, or whose record holds a hash or its beginning: of its payload, an XCM's topic."""
    needle = _needle(wanted)
    return lane.messages.get(wanted) or (None if needle is None else next(lane.messages.holding(needle), None))


def _needle(wanted: str) -> bytes | None:
    digits = bare(wanted).lower()
    if len(digits) < HASH_DIGITS_MIN or len(digits) % 2 or not re.fullmatch("[0-9a-f]+", digits):
        return None
    return bytes.fromhex(digits)
