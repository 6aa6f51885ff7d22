# SPDX-License-Identifier: Apache-2.0
"""One connection to a node: JSON-RPC 2.0 over a WebSocket, several calls at once, and notifications of finalised heads.

The methods `chain_*` and `state_*` are the questions that this plugin asks; `modern` answers them for nodes that do not have them.

A thread reads what arrives. Any failure closes the connection: whoever uses it opens another.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as AnswerTimeout
from typing import Any, Protocol

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from validator_relay_chain.errors import BadAnswer, Garbled, NodeError, Unreachable, fault, lost, reason, turned_away
from validator_relay_chain.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_S_MAX,
    CONNECT_S_MAX,
    FRAMES_WAITING_MAX,
    HEAD_ASK_S,
    HEADS_WAITING_MAX,
    PING_S,
)


class Wire(Protocol):
    """A connection as `pool.NodePool` uses it. Every method raises `NodeError`."""

    def call(self, method: str, params: Sequence[Any], timeout_s: float) -> Any:
        """Return the result of a call."""

    def head(self, timeout_s: float) -> Any | None:
        """Return the next finalised head that the node has reported, in JSON, or None if none arrives in time."""

    def close(self) -> None:
        """Close the connection; calls that wait fail."""


class JsonRpc:
    """A WebSocket to one node: several requests at once, and notifications, which a subclass takes. Raises `NodeError`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._next_id = 0
        self._waiting: dict[int, Future[Any]] = {}
        self._news = threading.Condition()
        self._failure: NodeError | None = None
        try:
            self._opened = connect(
                url,
                open_timeout=CONNECT_S_MAX,
                close_timeout=1.0,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                max_size=ANSWER_BYTES_MAX,
                max_queue=FRAMES_WAITING_MAX,
            )
            self._socket: ClientConnection = self._opened.__enter__()
        except InvalidStatus as error:
            raise turned_away(url, error.response.status_code) from error
        except (OSError, WebSocketException, ValueError, EOFError) as error:
            raise Unreachable(f"{url}: no connection: {reason(error)}") from error
        self._thread = threading.Thread(target=self._read, name="node", daemon=True)
        self._thread.start()

    def request(self, method: str, params: Sequence[Any], timeout_s: float) -> Any:
        """Return the result of a request.

        Raises `Unreachable` if the connection breaks or no answer comes in time, and what the node's error means (`errors.fault`).
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._next_id += 1
            number = self._next_id
            self._waiting[number] = future
        try:
            self._socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)}))
            answer = future.result(timeout_s)
        except AnswerTimeout:
            raise Unreachable(f"{self.url}: {method}: no answer within {timeout_s:g} s") from None
        except (OSError, WebSocketException) as error:
            raise lost(self.url, error) from error
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if "error" in answer:
            raise fault(f"{self.url}: {method}", answer["error"])
        if "result" not in answer:
            raise BadAnswer(f"{self.url}: {method}: expected a result or an error, found neither")
        return answer["result"]

    def post(self, method: str, params: Sequence[Any]) -> None:
        """Send a request whose answer is not waited for."""
        with self._lock:
            self._next_id += 1
            number = self._next_id
        try:
            self._socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": list(params)}))
        except (OSError, WebSocketException) as error:
            raise lost(self.url, error) from error

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a notification, in the thread that reads, with ``self._news`` held. Raises `NodeError`, which closes the connection."""

    def close(self) -> None:
        """Close the connection."""
        self._fail(Unreachable(f"{self.url}: the connection is closed"))
        self._socket.close()

    def _read(self) -> None:
        try:
            for message in self._socket:
                self._take(message)
            failure: NodeError = Unreachable(f"{self.url}: the node has closed the connection")
        except NodeError as error:
            failure = error
        except (OSError, WebSocketException) as error:
            failure = lost(self.url, error)
        except Exception as error:  # noqa: BLE001 - whatever a node sends, the calls that wait must fail
            failure = Garbled(f"{self.url}: an answer cannot be read: {type(error).__name__}: {reason(error)}")
        self._fail(failure)
        self._socket.close()

    def _take(self, message: str | bytes) -> None:
        try:
            answer = json.loads(message)
        except (ValueError, RecursionError) as error:
            raise Garbled(f"{self.url}: expected JSON, found {reason(error)}") from error
        if not isinstance(answer, dict):
            raise Garbled(f"{self.url}: expected one JSON-RPC object, found {type(answer).__name__}")
        method = answer.get("method")
        if isinstance(method, str):
            params = answer.get("params")
            with self._news:
                self.notified(method, params if isinstance(params, dict) else {})
                self._news.notify_all()
            return
        number = answer.get("id")
        with self._lock:
            future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is not None:  # otherwise an answer that came too late
            future.set_result(answer)

    def _fail(self, failure: NodeError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = failure
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(self._failure)
        with self._news:
            self._news.notify_all()


class HeadPoll:
    """Finalised heads of a node that has no notifications of them: it is asked, `HEAD_ASK_S` apart."""

    def __init__(self, wire: Callable[..., Any]) -> None:
        self._call = wire
        self._next_s = 0.0
        self._last: Any = None

    def head(self, timeout_s: float) -> Any | None:
        """Return a head that is another than the last one, in JSON, or None."""
        wait_s = self._next_s - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, timeout_s))
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + HEAD_ASK_S
        found = self._call("chain_getFinalizedHead", (), ANSWER_S_MAX)
        if found == self._last:
            return None
        self._last = found
        return self._call("chain_getHeader", (found,), ANSWER_S_MAX)


class Connection(JsonRpc):
    """A WebSocket to a node that has the methods `chain_*` and `state_*`, by default subscribed to its finalised heads."""

    def __init__(self, url: str, *, is_subscribed: bool = True) -> None:
        self._heads: deque[Any] = deque(maxlen=HEADS_WAITING_MAX)
        self._poll = None if is_subscribed else HeadPoll(self.call)
        super().__init__(url)
        try:
            if is_subscribed:
                self.call("chain_subscribeFinalizedHeads", (), CONNECT_S_MAX)
            else:
                self.call("chain_getFinalizedHead", (), CONNECT_S_MAX)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, params: Sequence[Any], timeout_s: float) -> Any:
        """Return the result of a call. Raises as `request`."""
        return self.request(method, params, timeout_s)

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a finalised head."""
        if method == "chain_finalizedHead":
            self._heads.append(params.get("result"))

    def head(self, timeout_s: float) -> Any | None:
        """Return the next finalised head, in JSON, or None if none arrives in time. Raises `NodeError` once the connection is lost."""
        if self._poll is not None:
            return self._poll.head(timeout_s)
        with self._news:
            self._news.wait_for(lambda: self._heads or self._failure is not None, timeout_s)
            if self._heads:
                return self._heads.popleft()
            if self._failure is not None:
                raise self._failure
            return None


Open = Callable[[str], Wire]
"""Opens a connection to the node of an address."""
