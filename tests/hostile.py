# SPDX-License-Identifier: Apache-2.0
"""Handlers that no signal interrupts, or that leave something behind, and the blocks that bring them their messages."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.lanes.chains import Record, record

HOSTILE = """
import ctypes, os, signal, socket, threading, time

def counts(context, payload):
    seen = int.from_bytes(context.read(b"seen") or b"", "little") + 1
    context.write(b"seen", seen.to_bytes(4, "little"))
    context.emit("seen", seen.to_bytes(4, "little"))

def deadlocks(context, payload):
    libc = ctypes.PyDLL(None)  # it keeps the interpreter's lock
    lock = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)

def blocks_signals(context, payload):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        pass

def forks(context, payload):
    ctypes.PyDLL(None).fork()  # without Python's knowledge; the child returns, too

def leaves_a_thread(context, payload):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()

def crashes(context, payload):
    ctypes.string_at(0)

"""


def block_records(lane: str, block: int, payloads: Sequence[bytes]) -> list[Record]:
    """Return a block of one candidate with upward messages."""
    candidate = {"lane": lane, "block": block, "index": 0, "para_id": 2000, "relay_parent_number": block - 1}
    candidate |= {"hrmp_watermark": block - 1, "upward_messages": [each.hex() for each in payloads]}
    candidate |= {"processed_downward_messages": 0, "horizontal_messages": [], "candidate_hash": None}
    body = {"lane": lane, "block": block, "parent_number": None, "block_hash": None, "candidates": 1, "requests": 0}
    body |= {"downward": 0, "included": [], "timed_out": [], "session_change": None}
    return [record("candidates", candidate), record("blocks", body)]
