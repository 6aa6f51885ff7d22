# SPDX-License-Identifier: Apache-2.0
"""Where the recorded answers of a node are, a plain client to ask a mock node with, and a node that answers as it likes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from validator_simulators.relay_chain import MockNode
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

RECORDED = Path(__file__).resolve().parents[4] / "shared" / "data" / "rpc" / "polkadot"
LONG_RUN = "17844552-17844571.jsonl.gz"

needs_recordings = pytest.mark.skipif(
    not RECORDED.exists(), reason="no recorded node: ../shared/data/rpc/polkadot is absent"
)

ANSWER_S_MAX = 60.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class Client:
    """Asks one request at a time over one connection."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._ids = count(1)

    def send(self, method: str, *params: Any) -> int:
        """Send a request and return its id."""
        id_ = next(self._ids)
        self.connection.send(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": list(params)}))
        return id_

    def receive(self) -> Any:
        """Return the next answer or notification."""
        return json.loads(self.text())

    def text(self) -> str | bytes:
        """Return the next answer as it came."""
        return self.connection.recv(ANSWER_S_MAX)

    def ask(self, method: str, *params: Any) -> Any:
        """Return the answer to a request, result or error."""
        id_ = self.send(method, *params)
        answer = self.receive()
        assert answer["id"] == id_
        return answer

    def call(self, method: str, *params: Any) -> Any:
        """Return the result of a request."""
        return self.ask(method, *params)["result"]


@contextmanager
def client_of(node: MockNode | str) -> Iterator[Client]:
    """Yield a client of a node, or of the one at an address."""
    url = node if isinstance(node, str) else node.url
    with connect(url, max_size=ANSWER_BYTES_MAX, compression=None, ping_interval=None) as connection:
        yield Client(connection)


Answer = Callable[[ServerConnection, dict[str, Any]], Any]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    """Serve a node that answers as it likes."""

    def attend(socket: ServerConnection) -> None:
        try:
            for text in socket:
                asked = json.loads(text)
                found = answer(socket, asked)
                if found is not None:
                    socket.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **found}))
        except ConnectionClosed:
            pass

    with serve(attend, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()
