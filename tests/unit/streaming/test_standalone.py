# SPDX-License-Identifier: Apache-2.0
"""What is said of a standalone master that does not answer, or does not accept the job's secret."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from streaming.cluster import PORT, addresses, log_after, refusal, unreachable
from validator.errors import UserError

STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
CLOSED = "\tat org.apache.spark.network.crypto.AuthClientBootstrap.doSaslAuth(AuthClientBootstrap.java:122)\n"
MASTER = "spark://there:7077"


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        (MASTER, [("there", 7077)]),
        ("spark://a:1,b:2", [("a", 1), ("b", 2)]),
        ("spark://a", [("a", PORT)]),
        ("spark://[::1]:9", [("::1", 9)]),
    ],
)
def test_address_names_every_master(master: str, expected: list[tuple[str, int]]) -> None:
    assert addresses(master) == expected


def test_master_that_cannot_be_reached_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert unreachable(f"spark://{address}") is None
        assert unreachable(f"spark://127.0.0.1:1,{address}") is None
    assert unreachable(f"spark://{address}") == (
        f"Spark's master at spark://{address} cannot be reached: Connection refused: check [job] master, and that the master runs"
    )
    assert unreachable("spark://127.0.0.1:99999999") is not None
    assert unreachable("local[2]") is None


def test_wrong_secret_is_the_users_to_correct() -> None:
    with pytest.raises(
        UserError, match=rf"^\[job\] master {MASTER}: expected a master with the spark.authenticate.secret of"
    ):
        refusal(MASTER, STOPPED, 3 * CLOSED)


def test_master_that_ends_while_the_secret_is_proved_is_waited_for() -> None:
    said = refusal(MASTER, STOPPED, CLOSED)
    assert said is not None
    assert said.startswith(f"Spark's master at {MASTER} does not answer the job")


@pytest.mark.parametrize(("master", "error"), [(MASTER, "something else"), ("local[2]", STOPPED)])
def test_other_failures_of_a_start_are_left(master: str, error: str) -> None:
    assert refusal(master, error, 3 * CLOSED) is None


def test_only_the_log_of_this_start_counts(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert log_after(log, 0) == ""
    log.write_text("before|after")
    assert log_after(log, len("before|")) == "after"
    log.write_text("rotated")
    assert log_after(log, 1000) == "rotated"
