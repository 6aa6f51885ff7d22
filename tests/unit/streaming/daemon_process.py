# SPDX-License-Identifier: Apache-2.0
"""The daemon of a stage as a program, with tasks that do what the test says; arguments: a socket's path and a folder for last words.

A task is the number of its partition and then letters: ``.`` ends it, ``f`` fails it, ``k`` kills the worker. It answers each letter with
the worker's process id, and first of all says that it has begun in the same way.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from streaming.worker_daemon import Manager

NUMBER_BYTES = 4


def serve(connection: socket.socket) -> int:
    connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    (Path(sys.argv[2]) / str(os.getpid())).write_text(f"words of {os.getpid()}")
    while True:
        connection.send(os.getpid().to_bytes(NUMBER_BYTES))
        letter = connection.recv(1)
        if letter == b"k":
            os.kill(os.getpid(), signal.SIGKILL)
        if letter in {b".", b"f", b""}:
            connection.send(os.getpid().to_bytes(NUMBER_BYTES))
            return 0 if letter == b"." else 1


if __name__ == "__main__":
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(sys.argv[1])
    listener.listen()
    print("listening", flush=True)
    Manager(listener, serve, Path(sys.argv[2])).run()
