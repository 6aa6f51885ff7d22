# SPDX-License-Identifier: Apache-2.0
"""A standby says when it takes over; whether the active process still exists is known of this machine only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from validator.transports.lease import Lease, _has_ended


def name_of(pid: int, host: str = "") -> str:
    return f"validator@{host or socket.gethostname()}:{pid} (127.0.0.1)"


def killed() -> int:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process.kill()
    process.communicate()
    return process.pid


def test_only_a_process_of_this_machine_is_known_to_have_ended() -> None:
    gone = killed()
    assert _has_ended(name_of(gone))
    assert not _has_ended(name_of(os.getpid()))
    assert not _has_ended(name_of(gone, "elsewhere"))
    assert not _has_ended("rdkafka (127.0.0.1)")


def test_standby_says_when_it_takes_over() -> None:
    lease = Lease({"bootstrap.servers": "127.0.0.1:1", "session.timeout.ms": 9_000}, "group", "mail", "blocks")
    try:
        dead = lease._when([name_of(killed())])
        assert dead == "it was killed: this one takes over once Kafka has forgotten it, in at most 9 s"
        assert lease._when([name_of(os.getpid())]) == "this one takes over when it ends, or 9 s after it is killed"
    finally:
        lease.close()
