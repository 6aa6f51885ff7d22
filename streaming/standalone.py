# SPDX-License-Identifier: Apache-2.0
"""What a standalone cluster of Spark needs before the job can start there. Spark itself asks for a minute, and does not name the reason."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from streaming.spark_internals import PROVES_SECRET, STOPPED_START
from validator.errors import UserError
from validator.job.spark_master import SCHEME, is_standalone

PORT: Final = 7077
"""The port of a master whose address has none."""

CONNECT_S_MAX: Final = 5.0
"""Seconds in which a master has to accept a connection."""

_ATTEMPTS: Final = 2
"""Attempts to prove the secret that a master has to refuse: it may end in the middle of one."""


def addresses(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of an address, which may name several masters."""
    found = []
    for each in master.removeprefix(SCHEME).split(","):
        host, colon, port = each.rpartition(":")
        if not colon or not port.isdigit():
            host, port = each, str(PORT)
        found.append((host.strip("[]"), int(port)))
    return found


def unreachable(master: str) -> str | None:
    """Return in one line why no master of an address accepts a connection, None if one does or if it is no standalone cluster."""
    if not is_standalone(master):
        return None
    why = ""
    for address in addresses(master):
        try:
            socket.create_connection(address, CONNECT_S_MAX).close()
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
        else:
            return None
    return f"Spark's master at {master} cannot be reached: {why}: check [job] master, and that the master runs"


def refusal(master: str, error: str, log: str) -> str | None:
    """Return in one line why no master has accepted the job, by what Spark has raised; ``log`` is its log of this start.

    Returns None if the start failed for another reason. Raises `UserError` if the secret is wrong, or the port belongs to something else.
    """
    if not is_standalone(master) or STOPPED_START not in error:
        return None
    if log.count(PROVES_SECRET) >= _ATTEMPTS:
        raise UserError(
            f"[job] master {master}: expected a master with the spark.authenticate.secret of the job's spark-defaults.conf, found one that "
            "refuses it: compare it with the master's --properties-file, and check that the port is the master's own, not its web page's"
        )
    return f"Spark's master at {master} does not answer the job: check that it runs, and is no standby of another one"


def log_after(log: Path, size: int) -> str:
    """Return what Spark's log has had added since it had a size."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(size if log.stat().st_size >= size else 0)
        return file.read().decode(errors="replace")
    return ""
