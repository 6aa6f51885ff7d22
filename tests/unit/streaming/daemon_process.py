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
from typing import TextIO

from streaming.worker_daemon import OWN_WORDS, Manager

NUMBER_BYTES = 4

_opened: list[TextIO] = []
"""This worker's file for last words, which it opens once."""


def leave_words() -> None:
    if not _opened:
        _opened.append((Path(sys.argv[2]) / OWN_WORDS / str(os.getpid())).open("a"))
    (words,) = _opened
    words.truncate(0)
    words.write(f"words of {os.getpid()}")
    words.flush()


def serve(connection: socket.socket) -> int:
    connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    leave_words()
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
    (Path(sys.argv[2]) / OWN_WORDS).mkdir()
    print("listening", flush=True)
    Manager(listener, serve, Path(sys.argv[2])).run()
