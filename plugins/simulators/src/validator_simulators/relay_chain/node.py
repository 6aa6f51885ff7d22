# SPDX-License-Identifier: Apache-2.0
"""A mock node: serves a recording over a WebSocket, from a thread with its own event loop.

Its finalised head stays where it is until `MockNode.finalise` moves it, or moves at a pace. A subscriber is notified of the new head only:
like a real node it skips what was finalised with it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from validator_simulators.relay_chain.faults import ERRORS, NO_METHOD, Fault, FaultKind, FaultPlan, is_spared, spoiled
from validator_simulators.relay_chain.methods import SUBSCRIPTIONS, Methods, RpcError
from validator_simulators.relay_chain.modern import FOLLOW, Follow, Modern, Speech, question_of, speech_of
from validator_simulators.relay_chain.recording import Json, Recording

REQUEST_BYTES_MAX: Final = 15 * 1024 * 1024
"""Bytes of a request; a longer one closes the connection, as a node does."""
BATCH_REQUESTS_MAX: Final = 100
"""Requests of one batch."""
HELD_S_MAX: Final = 0.2
"""Seconds that a reordered answer is held for an answer that overtakes it."""
CLOSE_S_MAX: Final = 5.0
"""Seconds that connections have to close when the node stops."""

SPEAKS: Final = (Speech.OLD,)
"""What a node speaks unless something else is wanted."""

START_S_MAX: Final = 60.0
"""Seconds that the node may take to listen."""

NO_REQUEST: Final = (-32_600, "Invalid request")
NO_JSON: Final = (-32_700, "Parse error")
UNSUBSCRIBE: Final = {end: begin for begin, (_, end) in SUBSCRIPTIONS.items()}


@dataclass(eq=False)
class _Client:
    """A connection with its subscriptions, and an answer that the next one overtakes."""

    connection: ServerConnection
    subscriptions: dict[str, str] = field(default_factory=dict)
    """By id, the method that made it."""
    held: asyncio.Event | None = None
    follow: Follow | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class MockNode:
    """A node at ``url``, while the ``with`` block lasts.

    ``head`` is the number of the finalised block to begin with, by default the last one; with ``pace_s`` the head moves by ``step`` blocks
    each time, until the last one. ``batches`` says whether the node takes several requests in one text, ``speaks`` which groups of methods
    it has: the older ones unless something else is wanted.
    """

    def __init__(
        self,
        recording: Recording,
        faults: Iterable[Fault] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        head: int | None = None,
        pace_s: float | None = None,
        step: int = 1,
        batches: bool = True,
        speaks: Iterable[Speech] | None = None,
    ) -> None:
        self.recording = recording
        self.faults = FaultPlan(list(faults))
        self.requests: Counter[str] = Counter()
        """How often each method was called."""
        self._host, self._port = host, port
        self._head = recording.canonical[recording.last if head is None else head]
        self._pace_s, self._step, self._batches = pace_s, step, batches
        self._speaks = frozenset(SPEAKS if speaks is None else speaks)
        self._methods = Methods(recording, self._reported_head)
        self._modern = Modern(recording, self._methods, self._reported_head)
        self._clients: set[_Client] = set()
        self._ids = count(1)
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="mock-node", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(START_S_MAX)
        if self._failure is not None or self._loop is None:
            raise OSError(f"the mock node does not listen: {self._failure}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    @property
    def url(self) -> str:
        """The address, such as ``ws://127.0.0.1:9944``."""
        return f"ws://{self._host}:{self._port}"

    @property
    def head(self) -> int:
        """The number of the finalised block."""
        return self.recording.blocks[self._head].number

    def finalise(self, block: int | str) -> None:
        """Move the finalised head to a block, by number or, for a fork, by hash; notify subscribers. Raises ``KeyError``: no such block."""
        hash_ = self.recording.canonical[block] if isinstance(block, int) else self.recording.blocks[block].hash
        self._in_loop(lambda: self._move(hash_))

    def order(self, fault: Fault) -> None:
        """Order a fault; it counts requests from now on."""
        self.faults.order(fault)

    def cut(self) -> None:
        """Break every connection."""
        self._in_loop(self._abort)

    def wait_for(self, done: Callable[[Counter[str]], bool], timeout_s: float = 60.0) -> bool:
        """Wait until the counts of requests are as expected; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: done(self.requests), timeout_s)

    # --- the thread ---

    def _in_loop(self, do: Callable[[], object]) -> None:
        if self._loop is None:
            raise RuntimeError("the node does not run")
        self._loop.call_soon_threadsafe(do)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        async with serve(
            self._attend, self._host, self._port, compression=None, max_size=REQUEST_BYTES_MAX,
            ping_interval=None, close_timeout=CLOSE_S_MAX,
        ) as server:  # fmt: skip
            self._port = _port(server)
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            pacing = asyncio.create_task(self._keep_pace()) if self._pace_s else None
            await self._ended.wait()
            if pacing is not None:
                pacing.cancel()
            self._abort()

    def _abort(self) -> None:
        for client in self._clients:
            client.connection.transport.abort()

    async def _keep_pace(self) -> None:
        while self.head < self.recording.last:
            await asyncio.sleep(self._pace_s or 0)
            self._move(self.recording.canonical[min(self.head + self._step, self.recording.last)])

    def _move(self, hash_: str) -> None:
        self._head = hash_
        for client in self._clients:
            for id_ in client.subscriptions:
                self._spawn(client, self._notify(client, id_))
            if client.follow is not None:
                self._spawn(client, self._send_all(client, self._modern.move(client.follow)))

    def _reported_head(self) -> str:
        """Return the head as the node reports it: a stale node reports an earlier one."""
        lag = self.faults.staleness()
        if not lag:
            return self._head
        return self.recording.canonical[max(self.recording.first, self.recording.blocks[self._head].number - lag)]

    # --- a connection ---

    async def _attend(self, connection: ServerConnection) -> None:
        client = _Client(connection)
        self._clients.add(client)
        try:
            async for text in connection:
                self._spawn(client, self._take(client, text))
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
            for task in client.tasks:
                task.cancel()

    def _spawn(self, client: _Client, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        client.tasks.add(task)
        task.add_done_callback(client.tasks.discard)

    async def _take(self, client: _Client, text: str | bytes) -> None:
        try:
            asked = json.loads(text)
        except ValueError:
            await self._send(client, _error(None, *NO_JSON))
            return
        if not isinstance(asked, list):
            await self._one(client, asked)
        elif not self._batches or not 1 <= len(asked) <= BATCH_REQUESTS_MAX:
            await self._send(client, _error(None, *NO_REQUEST))
        else:
            answers = [self._answer(each)[0] for each in asked]
            await self._send(client, answers)

    async def _one(self, client: _Client, asked: Any) -> None:
        method = asked.get("method") if isinstance(asked, dict) else None
        if isinstance(method, str) and not self._has(method):
            self._count(method)
            await self._send(client, _error(asked.get("id"), *NO_METHOD))
            return
        if isinstance(method, str) and speech_of(method) is not Speech.OLD:
            await self._newer(client, asked, asked.get("params") or [])
            return
        if method in SUBSCRIPTIONS:
            await self._subscribe(client, asked)
            return
        if method in UNSUBSCRIBE:
            self._count(method)
            gone = client.subscriptions.pop(str(next(iter(asked.get("params", [])), "")), None)
            await self._send(client, {"jsonrpc": "2.0", "result": gone is not None, "id": asked.get("id")})
            return
        answer, fault = self._answer(asked)
        await self._deliver(client, answer, fault)

    def _has(self, method: str) -> bool:
        return method == "rpc_methods" or speech_of(method) in self._speaks

    async def _newer(self, client: _Client, asked: Json, params: list[Any]) -> None:
        """Answer a request of the newer methods, and send the events that follow."""
        method, question = asked["method"], question_of(asked["method"], params)
        self._count(method, question)
        begun = None
        try:
            if method == FOLLOW:
                follow, begun = self._modern.begin()
                payload: Any = follow.id
            else:
                payload = self._modern.payload(client.follow, method, params)
        except RpcError as error:
            await self._deliver(
                client, _error(asked.get("id"), error.code, error.message), self.faults.strike(question)
            )
            return
        answer = {"jsonrpc": "2.0", "result": payload, "id": asked.get("id")}
        answer, fault = _outcome(answer, self.faults, {"method": question, "params": params}, method)
        events: list[Json] = []
        if "error" not in answer and begun is not None:
            client.follow, events = follow, [begun]
        elif "error" not in answer:
            answer["result"], events = self._modern.reply(client.follow, method, answer["result"])
        await self._deliver(client, answer, fault)
        if fault is None or fault.kind not in (FaultKind.CUT, FaultKind.SILENT):
            await self._send_all(client, events)

    async def _send_all(self, client: _Client, notes: Iterable[Json]) -> None:
        for note in notes:
            await self._send(client, note)

    async def _subscribe(self, client: _Client, asked: Json) -> None:
        self._count(asked["method"])
        id_ = f"mock{next(self._ids)}"
        client.subscriptions[id_] = asked["method"]
        answer, fault = _outcome({"jsonrpc": "2.0", "result": id_, "id": asked.get("id")}, self.faults, asked)
        await self._deliver(client, answer, fault)
        await self._notify(client, id_)

    async def _notify(self, client: _Client, id_: str) -> None:
        if id_ not in client.subscriptions:
            return
        method, _ = SUBSCRIPTIONS[client.subscriptions[id_]]
        header = self.recording.blocks[self._reported_head()].header
        fault = self.faults.strike(method)
        if fault is not None and fault.kind in {FaultKind.WRONG_HEADER, FaultKind.WRONG_ANSWER, FaultKind.NULL}:
            header = spoiled(fault.kind, header)
        note = {"jsonrpc": "2.0", "method": method, "params": {"subscription": id_, "result": header}}
        await self._deliver(client, note, fault)

    def _answer(self, asked: Any) -> tuple[Json, Fault | None]:
        """Return the answer to a request, and the fault that decides how it is delivered."""
        if not isinstance(asked, dict) or not isinstance(asked.get("method"), str):
            return _error(None, *NO_REQUEST), None
        method, id_ = asked["method"], asked.get("id")
        self._count(method)
        try:
            result = self._methods.answer(method, asked.get("params") or [])
        except RpcError as error:
            return _error(id_, error.code, error.message), self.faults.strike(method)
        return _outcome({"jsonrpc": "2.0", "result": result, "id": id_}, self.faults, asked)

    def _count(self, *names: str) -> None:
        with self._changed:
            self.requests.update(set(names))
            self._changed.notify_all()

    # --- delivery ---

    async def _deliver(self, client: _Client, answer: Any, fault: Fault | None) -> None:
        overtaken, client.held = client.held, None
        match fault and fault.kind:
            case FaultKind.CUT:
                client.connection.transport.abort()
                return
            case FaultKind.SILENT:
                return
            case FaultKind.DELAY:
                await asyncio.sleep(fault.amount if fault else 0)
            case FaultKind.REORDER:
                held = client.held = asyncio.Event()
                with suppress(TimeoutError):
                    await asyncio.wait_for(held.wait(), HELD_S_MAX)
        cut_off = fault is not None and fault.kind is FaultKind.TRUNCATED
        await self._send(client, answer, cut_off=cut_off)
        if overtaken is not None:
            overtaken.set()

    async def _send(self, client: _Client, answer: Any, *, cut_off: bool = False) -> None:
        text = json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
        with suppress(ConnectionClosed):
            await client.connection.send(text[: len(text) // 2] if cut_off else text)


def _outcome(answer: Json, faults: FaultPlan, asked: Json, *names: str) -> tuple[Json, Fault | None]:
    """Return the answer to a request, which may have other names, as the fault that strikes it leaves it, and that fault."""
    fault = faults.strike(asked["method"], *names)
    if fault is None or is_spared(fault, asked.get("params") or (), answer["result"]):
        return answer, None
    if fault.kind in ERRORS:
        return _error(answer["id"], *ERRORS[fault.kind]), fault
    if fault.kind in {FaultKind.NULL, FaultKind.WRONG_HEADER, FaultKind.WRONG_ANSWER}:
        return {**answer, "result": spoiled(fault.kind, answer["result"])}, fault
    if fault.kind is FaultKind.OVERSIZED:
        return {**answer, "result": f"0x{'00' * (int(fault.amount) // 2)}"}, fault
    return answer, fault


def _error(id_: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "error": {"code": code, "message": message}, "id": id_}


def _port(server: Server) -> int:
    port: int = next(iter(server.sockets)).getsockname()[1]
    return port
