# SPDX-License-Identifier: Apache-2.0
"""The store behind an endpoint, what fills it, and the endpoint itself."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPException
from threading import Event, Semaphore
from threading import enumerate as enumerate_threads
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from validator_simulators import SimulationSettings

from streaming.metered import JobFigures
from tests.clock import Clock
from tests.unit.lanes.chains import chain, definition_of, inputs_of
from validator.core.inputs import Input, RecordKind
from validator.errors import UserError
from validator.job.metric_feed import Feed, LaneArrivals
from validator.kafka.reader import TopicRecord
from validator.metrics import endpoint as metric_endpoint
from validator.metrics.address import parse_address
from validator.metrics.definitions import BY_NAME
from validator.metrics.endpoint import endpoint
from validator.metrics.limits import ARRIVALS_MAX, CONNECTIONS_MAX, REPORT_AGE_S_MAX, REPORTERS_MAX
from validator.metrics.report import LANE, TRANSPORT, Report
from validator.metrics.store import MetricStore

LANE_NAME = "polkadot"


def values(store: MetricStore) -> dict[tuple[str, ...], float]:
    """Return every sample by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in store.collect()
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket"))
    }


def report(**values_by_name: float) -> Report:
    made = Report(LANE, LANE_NAME)
    for name, value in values_by_name.items():
        made.put(f"validator_lane_{name}", value)
    return made


def test_values_of_a_report_replace_earlier_ones_and_increments_add_up() -> None:
    store = MetricStore([LANE_NAME])
    first = report(executed_block=5)
    first.put("validator_channel_used_messages", 3, 2000, 2004)
    first.add["validator_lane_rejections_total"] = {("A",): 2}
    store.take(first)
    second = report(executed_block=6)
    second.add["validator_lane_rejections_total"] = {("A",): 1, ("B",): 1}
    store.take(second)
    store.take(second, is_new=False)
    found = values(store)
    assert found["validator_lane_executed_block", LANE_NAME] == 6
    assert found["validator_lane_rejections_total", LANE_NAME, "A"] == 3
    assert found["validator_lane_rejections_total", LANE_NAME, "B"] == 1
    assert not any(name == "validator_channel_used_messages" for name, *_ in found)


def test_report_of_a_lane_that_is_not_configured_does_not_count() -> None:
    store = MetricStore(["kusama"])
    store.take(report(executed_block=5))
    assert not any(name.startswith("validator_lane") for name, *_ in values(store))


def test_transport_disappears_when_it_reports_no_more() -> None:
    clock = Clock()
    store = MetricStore([LANE_NAME], clock)
    made = Report(TRANSPORT, "mail")
    made.put("validator_transport_active", 1)
    store.take(made)
    store.take(report(executed_block=5))
    clock.now_s = REPORT_AGE_S_MAX
    assert values(store)["validator_transport_active", "mail"] == 1
    clock.now_s += 1
    assert "validator_lane_executed_block" in {name for name, *_ in values(store)}
    assert "validator_transport_active" not in {name for name, *_ in values(store)}


def test_reporters_are_bounded() -> None:
    store = MetricStore()
    for number in range(REPORTERS_MAX + 5):
        made = Report(TRANSPORT, f"mail-{number}")
        made.put("validator_transport_active", 1)
        store.take(made)
    assert sum(name == "validator_transport_active" for name, *_ in values(store)) == REPORTERS_MAX


def test_events_of_the_log_are_counted() -> None:
    store = MetricStore([LANE_NAME])
    figures = JobFigures(store, [LANE_NAME], Clock(1000.0))
    figures.note({"event": "ready"})
    figures.note({
        "event": "batch", "batch": 0, "records": 7, "unread": 9, "milliseconds": {"triggerExecution": 1500, "walCommit": 20},
    })  # fmt: skip
    found = values(store)
    assert found["validator_job_ready",] == 1
    assert found["validator_job_records_total",] == 7
    assert found["validator_job_unread_records",] == 9
    assert found["validator_job_batch_duration_seconds_sum",] == 1.5
    assert found["validator_job_batch_part_seconds_total", "walCommit"] == 0.02
    assert found["validator_job_last_batch_timestamp_seconds",] == 1000
    figures.note({"event": "restarting", "reason": "Kafka did not accept the batch of lane polkadot: timed out"})
    figures.note(
        {"event": "waiting", "reason": "Kafka refused a record of verdicts with 9 bytes, of lane polkadot: full"}
    )
    figures.note({"event": "waiting", "reason": "no Kafka answers, and no lane kusama either"})
    found = values(store)
    assert (found["validator_job_ready",], found["validator_job_outage",]) == (0, 1)
    assert found["validator_job_restarts_total",] == 1
    assert found["validator_lane_transaction_aborts_total", LANE_NAME] == 2
    figures.kafka_answers()
    assert values(store)["validator_job_outage",] == 1  # it still waits to start its query
    figures.note({"event": "ready"})
    assert values(store)["validator_job_outage",] == 0
    figures.note({"event": "failed", "reason": "it cannot continue"})
    found = values(store)
    assert (found["validator_job_ready",], found["validator_job_restarts_total",]) == (0, 1)


def test_a_lane_has_one_state_and_a_parked_one_its_fault() -> None:
    store = MetricStore([LANE_NAME])
    figures = JobFigures(store, [LANE_NAME])

    def states() -> set[tuple[str, ...]]:
        return {key for key in values(store) if key[0] in ("validator_lane_state", "validator_lane_parked")}

    assert states() == {("validator_lane_state", LANE_NAME, "running")}
    figures.note({"event": "parked", "lane": LANE_NAME, "fault": "handler"})
    parked = {("validator_lane_state", LANE_NAME, "parked"), ("validator_lane_parked", LANE_NAME, "handler")}
    assert states() == parked
    figures.note({"event": "resuming", "lane": LANE_NAME})
    assert states() == {("validator_lane_state", LANE_NAME, "resuming")}
    figures.note({"event": "resumed", "lane": LANE_NAME})
    assert states() == {("validator_lane_state", LANE_NAME, "running")}


def kafka_record(topic: str, offset: int, value: bytes, at_s: float = 0.0) -> TopicRecord:
    return TopicRecord(topic, 0, offset, LANE_NAME.encode(), value, int(at_s * 1000))


def test_feed_counts_reports_from_where_it_began_and_only_once() -> None:
    of = chain(SimulationSettings(seed=1, blocks=2, lane=LANE_NAME))
    store = MetricStore([LANE_NAME])
    feed = Feed(store, [LANE_NAME], definition_of(of).codec)
    made = report(executed_block=5)
    made.add["validator_lane_rejections_total"] = {("A",): 1}
    feed.begin({0: 2})
    for offset in (0, 1, 2, 3):
        feed.take(kafka_record("metrics", offset, made.encode(), 100.0))
    feed.begin({0: 9})  # the thread has connected again, and reads everything again
    for offset in (0, 1, 2, 3, 4):
        feed.take(kafka_record("metrics", offset, made.encode(), 100.0))
    feed.take(kafka_record("metrics", 5, b"no report"))
    found = values(store)
    assert found["validator_lane_rejections_total", LANE_NAME, "A"] == 3
    assert found["validator_lane_status_timestamp_seconds", LANE_NAME] == 100
    assert found["validator_metrics_reports_refused_total",] == 1


def test_lag_is_what_has_arrived_and_is_not_executed() -> None:
    of = chain(SimulationSettings(seed=1, blocks=6, lane=LANE_NAME))
    clock, store = Clock(1000.0), MetricStore([LANE_NAME])
    feed = Feed(store, [LANE_NAME], definition_of(of).codec, clock)
    blocks = [item for item in inputs_of(of.records) if isinstance(item, Input) and item.kind is RecordKind.BLOCK]
    for offset, item in enumerate(blocks):
        feed.take(kafka_record("blocks", offset, item.raw, 900.0 + item.block))
    feed.take(kafka_record("blocks", 99, b"an order, or no record at all"))
    newest = max(item.block for item in blocks)
    assert values(store)["validator_lane_newest_block", LANE_NAME] == newest
    feed.has_read()
    assert ("validator_lane_blocks_behind", LANE_NAME) not in values(store)  # nothing is known of the lane yet
    feed.take(kafka_record("metrics", 0, report(executed_block=newest - 2).encode()))
    found = values(store)
    assert found["validator_lane_blocks_behind", LANE_NAME] == 2
    assert found["validator_lane_seconds_behind", LANE_NAME] == 1000 - (900 + newest - 1)
    feed.take(kafka_record("metrics", 1, report(executed_block=newest).encode()))
    found = values(store)
    assert (found["validator_lane_blocks_behind", LANE_NAME], found["validator_lane_seconds_behind", LANE_NAME]) == (
        0,
        0,
    )


def test_lag_of_a_lane_without_a_batch_counts_from_its_first_block() -> None:
    of = chain(SimulationSettings(seed=1, blocks=6, lane=LANE_NAME))
    store = MetricStore([LANE_NAME, "kusama"])
    feed = Feed(store, [LANE_NAME, "kusama"], definition_of(of).codec, Clock(1000.0))
    blocks = [item for item in inputs_of(of.records) if isinstance(item, Input) and item.kind is RecordKind.BLOCK]
    first = min(item.block for item in blocks) + 2
    feed.starts({LANE_NAME: first, "kusama": 7})
    for item in blocks:
        feed.take(kafka_record("blocks", item.block, item.raw, 900.0 + item.block))
    assert ("validator_lane_blocks_behind", "kusama") not in values(store)  # more of its blocks may be unread
    feed.has_read()
    found = values(store)
    assert found["validator_lane_blocks_behind", LANE_NAME] == len(blocks) - 2
    assert found["validator_lane_seconds_behind", LANE_NAME] == 100 - first
    assert found["validator_lane_blocks_behind", "kusama"] == 0
    assert ("validator_lane_executed_block", LANE_NAME) not in found
    feed.take(kafka_record("metrics", 0, report(executed_block=first).encode()))
    feed.starts({LANE_NAME: first})  # the query began again before its first checkpoint
    assert values(store)["validator_lane_blocks_behind", LANE_NAME] == len(blocks) - 3


def test_arrivals_are_bounded_and_keep_the_oldest() -> None:
    arrivals = LaneArrivals()
    for block in range(3 * ARRIVALS_MAX):
        arrivals.arrived(block, float(block))
        assert len(arrivals._waiting) <= ARRIVALS_MAX
    assert arrivals.oldest_s() == 0.0
    arrivals.execute(3 * ARRIVALS_MAX)
    assert arrivals.oldest_s() is None


def test_page_is_what_prometheus_reads() -> None:
    store = MetricStore([LANE_NAME])
    store.take(report(executed_block=5))
    with endpoint("127.0.0.1:0", "[metrics] listen", store) as address, urlopen(address) as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ours = {name for family in families.values() for name in [family.name] if name.startswith("validator_")}
    assert {name if name in BY_NAME else f"{name}_total" for name in ours} <= BY_NAME.keys()
    assert families["validator_lane_executed_block"].samples[0].value == 5
    assert families["process_resident_memory_bytes"].samples[0].value > 0


def connected(address: str, sent: bytes) -> socket.socket:
    """Return a connection to an endpoint on which something was sent."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=60)
    try:
        connection.sendall(sent)
    except OSError:
        connection.close()
        raise
    return connection


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_clients_that_ask_for_nothing_take_no_place_and_few_threads() -> None:
    def handlers() -> int:
        return sum("process_request_thread" in thread.name for thread in enumerate_threads())

    with endpoint("127.0.0.1:0", "x", MetricStore()) as address, ExitStack() as clients:
        began = handlers()
        for _ in range(5 * CONNECTIONS_MAX):
            with suppress(OSError):  # on a busy machine, new clients are refused until those before them are closed
                clients.enter_context(connected(address, b"GET /metrics HTTP/1.1\r\n"))
            until(lambda: handlers() - began <= 2 * CONNECTIONS_MAX)

        def answered() -> bool:
            try:
                with urlopen(address) as answer:
                    return "validator_build_info" in answer.read().decode()
            except (OSError, HTTPException):
                return False

        until(answered)


def test_clients_that_take_no_answer_are_bounded() -> None:
    """Those beyond the bound are closed at once: nobody else can be asked to go."""
    store = MetricStore()
    go_on, asked = Event(), Semaphore(0)

    def wait() -> None:
        asked.release()
        go_on.wait()

    store.before_scrape.append(wait)
    with endpoint("127.0.0.1:0", "x", store) as address, ExitStack() as clients:
        try:
            for _ in range(CONNECTIONS_MAX):
                clients.enter_context(connected(address, b"GET /metrics HTTP/1.0\r\n\r\n"))
                assert asked.acquire(timeout=60)
            with connected(address, b"") as refused:
                assert refused.recv(1) == b""
        finally:
            go_on.set()


def test_request_that_comes_in_small_pieces_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_endpoint, "REQUEST_S_MAX", 0.0)
    with (
        endpoint("127.0.0.1:0", "x", MetricStore()) as address,
        connected(address, b"GET /metrics HTTP/1.1\r\n") as slow,
    ):
        ended = False
        while not ended:  # each piece resets the time that a socket waits for the next one
            try:
                slow.sendall(b"A: b\r\n")
                slow.settimeout(0.1)
                ended = not slow.recv(1)
            except TimeoutError:
                continue
            except OSError:
                ended = True


def test_brief_page_has_what_it_names_alone() -> None:
    store = MetricStore([LANE_NAME])
    made = report(executed_block=5)
    made.put("validator_channel_used_messages", 3, 2000, 2004)
    store.take(made)
    with endpoint("127.0.0.1:0", "x", store, ["validator_lane_executed_block"]) as address:
        with urlopen(f"{address}/brief") as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        with urlopen(address) as answer:
            assert "validator_channel_used_messages" in answer.read().decode()
    assert lines == ['validator_lane_executed_block{lane="polkadot"} 5.0']


def test_busy_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        expected = rf"^\[metrics\] listen {listen}: metrics cannot be served there: Address already in use$"
        with pytest.raises(UserError, match=expected), endpoint(listen, "[metrics] listen", MetricStore()):
            pass


def test_foreign_address_is_one_clear_line() -> None:
    expected = "metrics cannot be served there: Cannot assign requested address"
    with pytest.raises(UserError, match=expected), endpoint("192.0.2.1:9464", "[metrics] listen", MetricStore()):
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0)), ("localhost:1", ("localhost", 1))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:9464", "a b:1", "127.0.0.1:x", "[::1]", "all:1"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        parse_address(text)


def test_configuration_names_the_key_of_a_bad_address(tmp_path: Any) -> None:
    from validator.config import load_config

    file = tmp_path / "validator.toml"
    file.write_text('[metrics]\nlisten = "9464"\n')
    with pytest.raises(UserError, match=r"metrics.listen: expected HOST:PORT such as 127.0.0.1:9464"):
        load_config(file)
