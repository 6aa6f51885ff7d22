# SPDX-License-Identifier: Apache-2.0
"""What the embedded broker guarantees in addition to Kafka: process ownership, listening address, error messages."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from validator.errors import UserError
from validator.kafka import broker as broker_module
from validator.kafka.broker import HOST, EmbeddedBroker
from validator.kafka.process import start_time
from validator.kafka.settings import COMMITS, admin_config, consumer_config, producer_config

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.broker


def topics(broker: EmbeddedBroker) -> set[str]:
    return set(AdminClient(admin_config(broker.kafka)).list_topics(timeout=30).topics)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A new broker, not yet started; it is stopped in any case."""
    broker = EmbeddedBroker(tmp_path)
    yield broker
    broker.stop()


def create_topic(broker: EmbeddedBroker, name: str) -> None:
    admin = AdminClient(admin_config(broker.kafka))  # kept referenced: otherwise the answer does not arrive
    admin.create_topics([NewTopic(name, 1)])[name].result()


def test_second_start_leaves_running_broker_alone(broker: EmbeddedBroker) -> None:
    with EmbeddedBroker(broker.directory) as second:
        assert second.status() == broker.status()
        assert not second.started_here
    assert broker.status().running


def test_broker_that_somebody_else_started_after_a_kill_is_not_its_own(fresh: EmbeddedBroker) -> None:
    with fresh:
        pid = fresh.status().pid
        assert fresh.started_here
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while fresh.status().running:
            time.sleep(0.01)
        other = EmbeddedBroker(fresh.directory)
        other.start()
        assert (fresh.started_here, other.started_here) == (False, True)
    assert other.status().running


def test_concurrent_starts_start_one_process(fresh: EmbeddedBroker) -> None:
    brokers = [fresh, EmbeddedBroker(fresh.directory)]
    with ThreadPoolExecutor(2) as pool:
        bootstraps = list(pool.map(EmbeddedBroker.start, brokers))
    assert bootstraps[0] == bootstraps[1]
    assert sorted(broker.started_here for broker in brokers) == [False, True]
    assert [broker.stop() for broker in brokers] == [True, False]


def test_broker_listens_on_loopback_only(broker: EmbeddedBroker) -> None:
    record = json.loads((broker.directory / "broker.json").read_text())
    found = {
        each.laddr for each in psutil.Process(record["pid"]).net_connections() if each.status == psutil.CONN_LISTEN
    }
    assert {each.port for each in found} == {record["port"], record["controller_port"]}
    assert {each.ip for each in found} <= {"127.0.0.1", "::ffff:127.0.0.1"}


def clients(table: dict[str, object], patience_s: float) -> list[Callable[[], object]]:
    """Return what reads and what writes with a table, each within some seconds."""
    reader = Consumer(consumer_config(table, COMMITS, group_id="stranger") | {"log_level": 0})
    producer = Producer(producer_config(table) | {"log_level": 0})

    def write() -> None:
        producer.produce("open", b"x")
        assert producer.flush(patience_s) == 0

    return [lambda: reader.list_topics(timeout=patience_s), write]


@pytest.mark.parametrize("writes", [False, True])
def test_archive_of_classes_is_used_by_both_programs_and_written_by_the_broker(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, *, writes: bool
) -> None:
    formats: list[list[str]] = []
    starts: list[list[str]] = []

    def start(command: list[str], **_: object) -> None:
        starts.append(command)
        raise UserError("seen enough")

    monkeypatch.setattr(broker_module, "is_writing", lambda _: writes)
    monkeypatch.setattr(broker_module, "java_options", lambda program, _jars: (f"-Darchive={program}",))
    monkeypatch.setattr(EmbeddedBroker, "_format", lambda _self, command, *_: formats.append(command))
    monkeypatch.setattr(broker_module.subprocess, "Popen", start)
    with pytest.raises(UserError, match="seen enough"):
        fresh.start()
    assert "-Darchive=broker" in starts[0]
    assert ("-Darchive=broker" in formats[0]) is not writes


def test_other_users_of_the_machine_neither_read_nor_write(broker: EmbeddedBroker) -> None:
    login = broker.kafka
    create_topic(broker, "open")
    for ask in clients(login, 60.0):
        ask()
    plain: dict[str, object] = {"bootstrap.servers": login["bootstrap.servers"]}
    for stranger in (
        plain,
        login | {"sasl.password": "guessed"},
        login | {"sasl.username": "broker"},
        login | {"sasl.mechanism": "PLAIN"},
        plain
        | {
            "bootstrap.servers": f"{HOST}:{json.loads((broker.directory / 'broker.json').read_text())['controller_port']}"
        },
    ):
        for ask in clients(stranger, 1.0):
            with pytest.raises((KafkaException, AssertionError)):
                ask()


def test_address_is_known_only_when_the_secret_can_be_read(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`validator up` configures the job as soon as it sees the address."""

    def fails(_: Path) -> str:
        raise UserError("no secret yet")

    monkeypatch.setattr(broker_module, "kept_secret", fails)
    with pytest.raises(UserError, match="no secret yet"):
        fresh.start()
    assert fresh.address is None


def test_files_of_the_broker_are_its_owners_alone(broker: EmbeddedBroker) -> None:
    create_topic(broker, "private")
    found = [broker.directory, *broker.directory.rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in found if path.exists()} == {0}
    assert len(found) > 10


def test_process_that_takes_the_port_learns_no_secret_and_is_not_believed(fresh: EmbeddedBroker) -> None:
    """SCRAM proves both sides: what listens there gets neither the password nor what could be replayed, and cannot answer."""
    address, secret = fresh.start(), fresh.kafka["sasl.password"]
    table = fresh.kafka
    fresh.stop()
    heard: list[bytes] = []
    with socket.create_server((HOST, int(address.rpartition(":")[2]))) as stranger:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = stranger.accept()
                    heard.append(connection.recv(4096))
                    connection.close()

        listening = Thread(target=listen, daemon=True)
        listening.start()
        with pytest.raises(KafkaException):
            AdminClient(admin_config(table) | {"log_level": 0}).list_topics(timeout=3.0)
        stranger.shutdown(socket.SHUT_RDWR)
    assert heard
    assert not any(str(secret).encode() in each for each in heard)


def test_lost_secret_is_replaced_at_the_next_start(fresh: EmbeddedBroker) -> None:
    fresh.start()
    create_topic(fresh, "kept")
    before = fresh.kafka["sasl.password"]
    fresh.stop()
    (fresh.directory / "secret").unlink()
    fresh.start()
    assert fresh.kafka["sasl.password"] != before
    assert "kept" in topics(fresh)


def test_broker_whose_starter_was_killed_admits_clients_at_the_next_start(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("validator.kafka.broker.admit_clients", die)
    with pytest.raises(Killed):
        fresh.start()
    monkeypatch.undo()
    other = EmbeddedBroker(fresh.directory)
    other.start()
    assert not other.started_here
    topics(other)


def test_broker_outlives_its_starter(fresh: EmbeddedBroker) -> None:
    program = (
        "import sys, pathlib, validator.kafka.broker as b; print(b.EmbeddedBroker(pathlib.Path(sys.argv[1])).start())"
    )
    starter = [sys.executable, "-c", program, str(fresh.directory)]
    bootstrap = subprocess.run(starter, capture_output=True, text=True, check=True).stdout.strip()
    assert fresh.bootstrap_servers == bootstrap
    topics(fresh)
    assert fresh.stop()


def test_killed_broker_restarts_with_its_data(fresh: EmbeddedBroker) -> None:
    fresh.start()
    create_topic(fresh, "kept")
    pid = fresh.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while fresh.status().running:
        time.sleep(0.01)
    fresh.start()
    assert "kept" in topics(fresh)
    assert fresh.status().pid != pid


def test_broker_moves_if_its_port_was_taken(fresh: EmbeddedBroker) -> None:
    first = fresh.start()
    create_topic(fresh, "kept")
    fresh.stop()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind((HOST, int(first.rpartition(":")[2])))
        stranger.listen()
        second = fresh.start()
        assert second != first
        assert "kept" in topics(fresh)


@pytest.mark.parametrize("when", ["now", "at an earlier start"])
def test_chosen_port_that_is_taken_is_an_error(when: str, tmp_path: Path) -> None:
    """Clients expect the broker there: another port would be no help."""
    with socket.socket() as stranger:
        stranger.bind((HOST, 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        if when != "now":
            earlier = {"version": 1, "pid": os.getpid(), "started": "earlier", "port": port, "controller_port": 20_001}
            (tmp_path / "broker.json").write_text(
                json.dumps({**earlier, "directory": str(tmp_path), "configured": True})
            )
        broker = EmbeddedBroker(tmp_path, port if when == "now" else None)
        with pytest.raises(
            UserError, match=rf"^--port: {HOST}:{port} cannot be used by the broker \(Address already"
        ) as error:
            broker.start()
    assert "\n" not in str(error.value)
    assert not broker.status().running
    assert not (tmp_path / "data").exists()


def test_broker_that_runs_elsewhere_than_chosen_is_an_error(fresh: EmbeddedBroker) -> None:
    port = int(fresh.start().rpartition(":")[2])
    other = EmbeddedBroker(fresh.directory, 20_000 if port != 20_000 else 20_001)
    with pytest.raises(UserError, match=f"runs on port {port}, expected 2000[01]: stop it"):
        other.start()
    assert EmbeddedBroker(fresh.directory, port).start().endswith(f":{port}")


def test_unrelated_process_with_same_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        try:
            record = {"pid": stranger.pid, "started": "earlier", "port": 20_000, "controller_port": 20_001}
            record |= {"version": 1, "directory": str(tmp_path)}
            (tmp_path / "broker.json").write_text(json.dumps(record))
            broker = EmbeddedBroker(tmp_path)
            assert not broker.status().running
            assert not broker.stop()
            assert start_time(stranger.pid) is not None
        finally:
            stranger.kill()


def test_failed_start_quotes_and_names_its_log(fresh: EmbeddedBroker) -> None:
    data = fresh.directory / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\ncluster.id=damaged\nnode.id=7\n")
    with pytest.raises(UserError) as caught:
        fresh.start()
    message = str(caught.value)
    assert message.startswith("the broker ended with code 1: ")
    assert "node" in message
    assert message.endswith(f"its log is {fresh.log}")
    assert "\n" not in message
    assert not fresh.status().running


def test_data_of_newer_kafka_is_not_reported_as_damage(fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fresh.directory / "java"
    java.write_text("#!/bin/sh\necho 'Caused by: a.b.UnsupportedVersionException: version 4 of Broker'\nexit 1\n")
    java.chmod(0o755)
    (fresh.directory / "data").mkdir()
    (fresh.directory / "data" / "meta.properties").touch()
    monkeypatch.setattr("validator.kafka.broker.find_java", lambda: java)
    with pytest.raises(
        UserError,
        match=r"a newer Kafka has written .*data: continue with the version of validator that did, or .*; its log is ",
    ):
        fresh.start()


def test_long_log_is_kept_once_and_an_error_is_found_in_the_end_of_a_log(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    java, kept = fresh.directory / "java", fresh.log.with_name("broker.log.1")
    java.write_text(
        "#!/bin/sh\necho 'ERROR in the beginning'\nhead -c 3000 /dev/zero | tr '\\0' '.'\necho\necho 'ERROR in the end'\nexit 1\n"
    )
    java.chmod(0o755)
    (fresh.directory / "data").mkdir()
    (fresh.directory / "data" / "meta.properties").touch()
    monkeypatch.setattr(broker_module, "find_java", lambda: java)
    monkeypatch.setattr(broker_module, "LOG_BYTES_MAX", 5_000)
    monkeypatch.setattr(broker_module, "LOG_END_BYTES", 1_000)
    sizes = []
    for _ in range(5):
        with pytest.raises(UserError, match="the broker ended with code 1: ERROR in the end; its log is "):
            fresh.start()
        sizes.append((fresh.log.stat().st_size, kept.stat().st_size if kept.exists() else 0))
    one = sizes[0][0]
    assert sizes == [(one, 0), (2 * one, 0), (one, 2 * one), (2 * one, 2 * one), (one, 2 * one)]
    assert len(list(fresh.directory.glob("broker.log*"))) == 2
    monkeypatch.setattr(broker_module, "LOG_END_BYTES", 10)
    with pytest.raises(UserError, match="the broker ended with code 1: it logged nothing; its log is "):
        fresh.start()


def test_full_disk_is_named_by_a_start_and_of_a_broker_that_it_ended(
    fresh: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.start()
    assert not fresh.has_full_disk()
    with monkeypatch.context() as patched:
        patched.setattr(broker_module, "has_room", lambda _: False)
        assert fresh.has_full_disk()
    with fresh.log.open("a") as log:
        log.write("java.io.IOException: No space left on device\n")
    assert fresh.has_full_disk(), "some space may be left, but too little for what Kafka had to write"
    assert not EmbeddedBroker(fresh.directory).has_full_disk(), (
        "whoever has not started it does not know when that line was written"
    )
    fresh.stop()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(broker_module, "write_private", refuse)
    with pytest.raises(
        UserError, match=f"the broker's folder {fresh.directory}: No space left on device: free space on its disk"
    ):
        fresh.start()


def test_broker_of_a_moved_folder_is_stopped_and_starts_where_the_folder_is(tmp_path: Path) -> None:
    """The running one knows its data by the earlier path, and would end at the first file that it opens."""
    here, there, last = (tmp_path / name for name in ("here", "there", "last"))
    earlier, moved, again = EmbeddedBroker(here), EmbeddedBroker(there), EmbeddedBroker(last)
    earlier.start()
    try:
        create_topic(earlier, "kept")
        pid = earlier.status().pid
        here.rename(there)
        assert not moved.status().running
        moved.start()
        assert moved.started_here
        assert moved.stopped_in == str(here)
        assert pid is not None
        assert start_time(pid) is None
        assert "kept" in topics(moved)
        there.rename(last)  # not back: a broker may still create files by its earlier path
        assert not again.status().running
        assert again.stop(), "a broker whose folder was moved can be stopped from its new place"
    finally:
        earlier.stop()
        moved.stop()
        again.stop()


def test_copy_of_a_folder_leaves_the_broker_of_the_original_alone(fresh: EmbeddedBroker, tmp_path: Path) -> None:
    fresh.start()
    copy = EmbeddedBroker(tmp_path / "copy")
    copy.directory.mkdir()
    record = fresh.directory / "broker.json"
    (copy.directory / "broker.json").write_text(record.read_text())
    linked = tmp_path / "linked"
    linked.symlink_to(fresh.directory)
    assert not copy.status().running
    assert not copy.stop()
    assert fresh.status().running
    assert EmbeddedBroker(linked).status().pid == fresh.status().pid


def test_missing_broker_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no broker runs in .*: start broker and job with `validator up`, or the broker alone with "
    ):
        _ = EmbeddedBroker(tmp_path).bootstrap_servers
