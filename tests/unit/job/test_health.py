# SPDX-License-Identifier: Apache-2.0
"""What `validator health` says of jobs in every state, and of what is no job."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from streaming.metered import JobFigures
from tests.cli.follower import invoke
from validator.job.health import HEALTH, ask, judge
from validator.metrics.endpoint import endpoint
from validator.metrics.limits import HEALTH_S_MAX
from validator.metrics.report import LANE, Report
from validator.metrics.store import MetricStore

LANES = ("kusama", "polkadot")


@pytest.fixture
def served() -> Iterator[tuple[JobFigures, MetricStore, str]]:
    """Serve the figures of a job, and yield them with the endpoint's address."""
    store = MetricStore(LANES)
    figures = JobFigures(store, LANES)
    with endpoint("127.0.0.1:0", "[metrics] listen", store, HEALTH) as page:
        yield figures, store, page.removeprefix("http://").removesuffix("/metrics")


def asked(address: str, folder: Path) -> tuple[int, str]:
    """Run the command, and return its exit code and its line."""
    (folder / "validator.toml").write_text(f'[metrics]\nlisten = "{address}"\n', encoding="utf-8")
    answered = invoke("health", "--config", str(folder / "validator.toml"))
    return answered.exit_code, answered.output


def test_job_is_healthy_while_its_query_runs(served: tuple[JobFigures, MetricStore, str], tmp_path: Path) -> None:
    figures, store, address = served
    assert asked(address, tmp_path) == (1, "the job starts, or restarts\n")
    figures.note({"event": "ready"})
    store.set("validator_lane_blocks_behind", 7, "kusama")
    store.set("validator_lane_blocks_behind", 3, "polkadot")
    assert asked(address, tmp_path) == (0, "the job runs: 2 lanes, 0 parked, 7 blocks behind\n")
    figures.note({"event": "parked", "lane": "kusama", "fault": "handler"})
    assert asked(address, tmp_path) == (0, "the job runs: 2 lanes, 1 parked, 7 blocks behind\n")
    figures.note({"event": "waiting", "reason": "Kafka does not answer"})
    assert asked(address, tmp_path) == (
        1,
        "the job waits for something outside, such as Kafka or space on a disk\n",
    )
    figures.note({"event": "ready"})
    assert asked(address.replace("127.0.0.1", "0.0.0.0"), tmp_path)[0] == 0


def test_dead_letters_are_mentioned_and_are_no_reason_to_restart(
    served: tuple[JobFigures, MetricStore, str], tmp_path: Path
) -> None:
    figures, store, address = served
    figures.note({"event": "ready"})
    store.set("validator_lane_blocks_behind", 0, "kusama")
    store.set("validator_lane_blocks_behind", 0, "polkadot")
    for reason, count in (("UNKNOWN_LANE", 2), ("LATE", 1), ("FORK", 0)):
        store.add("validator_job_dead_letters_total", count, reason)
    assert asked(address, tmp_path) == (
        0,
        "the job runs: 2 lanes, 0 parked, 0 blocks behind; dead letters since the job started: 3 (`validator dead-letters list`)\n",
    )


def test_what_is_not_known_is_not_printed_as_0(served: tuple[JobFigures, MetricStore, str], tmp_path: Path) -> None:
    figures, store, address = served
    figures.note({"event": "ready"})
    expected = "the job runs: 2 lanes, 0 parked, not known yet how many blocks behind\n"
    assert asked(address, tmp_path) == (0, expected)
    store.set("validator_lane_blocks_behind", 0, "kusama")
    expected = "the job runs: 2 lanes, 0 parked, 0 blocks behind (not known yet of 1 lane)\n"
    assert asked(address, tmp_path) == (0, expected)
    store.set("validator_lane_blocks_behind", 0, "polkadot")
    store.set("validator_metrics_kafka_up", 0)
    expected = "the job runs: 2 lanes, 0 parked, 0 blocks behind; the endpoint cannot read Kafka, so this may be old\n"
    assert asked(address, tmp_path) == (0, expected)


def test_fault_of_an_audit_is_said_and_the_job_is_healthy(
    served: tuple[JobFigures, MetricStore, str], tmp_path: Path
) -> None:
    figures, store, address = served
    figures.note({"event": "ready"})
    for lane in LANES:
        store.set("validator_lane_blocks_behind", 0, lane)
    begin = "the job runs: 2 lanes, 0 parked, 0 blocks behind"
    figures.note({"event": "audit fault", "lane": "polkadot", "block": 12, "check": "pages", "detail": "another page"})
    assert asked(address, tmp_path) == (0, f"{begin}; the audit has found a fault: polkadot in block 12\n")
    figures.note({"event": "audit fault", "lane": "kusama", "block": 7, "check": "pages", "detail": "another page"})
    expected = f"{begin}; the audit has found a fault: kusama in block 7, polkadot in block 12\n"
    assert asked(address, tmp_path) == (0, expected)
    for at in range(5):
        store.set("validator_lane_audit_fault_block", 1, f"a{at}")
    assert asked(address, tmp_path)[1].endswith("a0 in block 1, a1 in block 1, a2 in block 1 and 4 lanes more\n")


def test_no_answer_and_another_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
    assert asked(f"127.0.0.1:{port}", tmp_path) == (1, f"no job answers at 127.0.0.1:{port}: Connection refused\n")
    with endpoint("127.0.0.1:0", "x", MetricStore()) as page:
        address = page.removeprefix("http://").removesuffix("/metrics")
        assert asked(address, tmp_path) == (1, "the endpoint is not that of a job\n")


def test_health_does_not_wait_for_a_page_of_everything() -> None:
    """It asks for its own values alone, and has as much time as a large page takes a busy machine."""
    store = MetricStore(LANES)
    figures = JobFigures(store, LANES)
    figures.note({"event": "ready"})
    made = Report(LANE, "kusama")
    made.put("validator_para_upward_messages", 3, 2000)
    store.take(made)
    with endpoint("127.0.0.1:0", "x", store, HEALTH) as page:
        with urlopen(f"{page}/brief") as answer:
            brief = answer.read().decode()
        with urlopen(page) as answer:
            whole = answer.read().decode()
    assert "validator_para_upward_messages" not in brief
    assert "validator_para_upward_messages" in whole
    assert judge(brief) == judge(whole), "a job of an earlier version answers with its whole page"
    assert HEALTH_S_MAX >= 10


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n"])
def test_what_is_no_endpoint_is_one_line(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        found = ask(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert not found.healthy
    assert "\n" not in found.line


@pytest.mark.parametrize("table", ["", '[metrics]\nlisten = "127.0.0.1:0"\n'])
def test_job_without_a_known_address_is_judged_by_its_process(table: str, tmp_path: Path) -> None:
    (tmp_path / "validator.toml").write_text(f'{table}[job]\ndirectory = "{tmp_path}"\n', encoding="utf-8")
    answered = invoke("health", "--config", str(tmp_path / "validator.toml"))
    assert answered.exit_code == 1
    assert answered.stdout == f"no job runs here, in {tmp_path}: `validator up` or `validator run` starts one\n"


def test_lane_that_no_new_block_reaches_is_unhealthy(
    served: tuple[JobFigures, MetricStore, str], tmp_path: Path
) -> None:
    figures, store, address = served
    figures.note({"event": "ready"})
    store.set("validator_lane_silent", 0, "kusama")
    store.set("validator_lane_silent", 1, "polkadot")
    code, line = asked(address, tmp_path)
    assert code == 1
    said = "no new block reaches polkadot: the transport that sends them waits, has ended, or was never started\n"
    assert line.endswith(f"; {said}")
    store.set("validator_lane_silent", 0, "polkadot")
    assert asked(address, tmp_path)[0] == 0


def test_job_without_executors_is_unhealthy_and_says_since_when(
    served: tuple[JobFigures, MetricStore, str], tmp_path: Path
) -> None:
    figures, store, address = served
    figures.note({"event": "executor added", "host": "a", "executors": 1})
    figures.note({"event": "ready"})
    assert asked(address, tmp_path)[0] == 0
    figures.note({"event": "executor lost", "host": "a", "executors": 0})
    reason = "Spark's master at spark://there:7077 gives the job no executor since 2026-11-27 15:00:00 UTC"
    lacking = {"event": "waiting", "reason": reason, "master": "spark://there:7077", "since": 1795791600.0}
    figures.note(lacking)
    figures.kafka_answers()  # which ends no outage of Spark's master
    assert asked(address, tmp_path) == (1, f"the job waits: {reason}\n")
    assert [
        each.samples[0].value for each in store.only(["validator_job_outage", "validator_job_executors"]).collect()
    ] == [1, 0]
    figures.note({"event": "executor added", "host": "b", "executors": 1})
    assert asked(address, tmp_path)[0] == 0
