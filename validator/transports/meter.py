# SPDX-License-Identifier: Apache-2.0
"""Measures a transport: counts what passes its context, and reports it to Kafka from time to time.

A report holds all values since the process became active, so a lost one is made up by the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from validator.errors import UserError
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.metrics.endpoint import endpoint
from validator.metrics.limits import MEASURE_S_MAX, REPORT_INTERVAL_S
from validator.metrics.own import Measures, PluginMetric, Value, asked, exported
from validator.metrics.report import TRANSPORT, Report
from validator.metrics.store import MetricStore
from validator.topics import METRICS, METRICS_TOPIC

if TYPE_CHECKING:
    from validator.config import Config
    from validator.kafka.settings import KafkaTable
    from validator.plugin.api import OutputReader, Record, TransportContext

END_S_MAX = 2.0
"""Seconds that the end of the thread and its last report are waited for."""


class TransportMeter:
    """What one transport has done since its process became active; any thread may call its methods.

    ``own`` are the metrics that the transport declares; ``tell`` gets a line if their values cannot be used. The transport has
    ``patience_s`` seconds to return them.
    """

    def __init__(
        self,
        name: str,
        wall_clock: Callable[[], float] = time.time,
        own: Sequence[PluginMetric] = (),
        tell: Callable[[str], None] = lambda _: None,
        patience_s: float = MEASURE_S_MAX,
    ) -> None:
        self._name, self._tell, self._patience_s = name, tell, patience_s
        self._own = exported(name, TRANSPORT, own)
        self._measures: Measures | None = None
        self._asking = Lock()
        """Held while the transport is asked for its own values, for as long as it takes."""
        self._has_told = self._hangs = False
        self._lock = Lock()
        self._values: dict[tuple[str, ...], float] = {}
        self._started_s = wall_clock()
        for figure in ("refused_records_total", "unconfirmed_records", "unacknowledged_records"):
            self._values[f"validator_transport_{figure}",] = 0

    def wrote(self, topic: str, value_bytes: int) -> None:
        """Note a record that Kafka took."""
        with self._lock:
            self._add(1, "written_records_total", topic)
            self._add(value_bytes, "written_bytes_total", topic)

    def refused(self) -> None:
        """Note a record that could not be written."""
        with self._lock:
            self._add(1, "refused_records_total")

    def waits(self, change: int) -> None:
        """Note that a record waits for its confirmation, or does so no more."""
        with self._lock:
            self._add(change, "unconfirmed_records")

    def received(self, topic: str, *, to_acknowledge: bool) -> None:
        """Note a received record."""
        with self._lock:
            self._add(1, "received_records_total", topic)
            if to_acknowledge:
                self._add(1, "unacknowledged_records")

    def acknowledged(self) -> None:
        """Note that everything received is acknowledged."""
        with self._lock:
            self._values["validator_transport_unacknowledged_records",] = 0

    def measure(self, measures: Measures) -> None:
        """Ask this function for the transport's own values, from now on."""
        self._measures = measures

    def report(self) -> Report:
        report = Report(TRANSPORT, self._name)
        report.put("validator_transport_active", 1)
        report.put("validator_transport_start_timestamp_seconds", self._started_s)
        with self._lock:
            for (name, *labels), value in self._values.items():
                report.put(name, value, *labels)
        if self._measures is not None:
            self._report_own(report, self._measures)
        return report

    def _report_own(self, report: Report, measures: Measures) -> None:
        """Add the transport's own values. Its faults do no harm: they are said once, and a report goes without what cannot be used."""
        values, fault = self._ask(measures)
        if fault is None:
            fault = report.put_own(self._own.values(), values)
        if fault is not None and not self._has_told:
            self._has_told = True
            self._tell(f"transport {self._name}: its metrics are left out: {fault}")

    def _ask(self, measures: Measures) -> tuple[list[Value], str | None]:
        """Return `asked`, from a separate thread: one that hangs holds no other report or scrape, and no second one is asked."""
        late = f"no answer within {self._patience_s:g} s"
        if not self._asking.acquire(timeout=0 if self._hangs else self._patience_s):
            return [], late
        answers: list[tuple[list[Value], str | None]] = []
        done = Event()

        def ask() -> None:
            try:
                answers.append(asked(self._own, measures))
            finally:
                self._hangs = False
                self._asking.release()
                done.set()

        try:
            Thread(target=ask, name="measures", daemon=True).start()
        except RuntimeError as error:  # the process can have no more threads
            self._asking.release()
            return [], str(error)
        if done.wait(self._patience_s) and answers:
            return answers[0]
        self._hangs = not done.is_set()
        return [], late

    def _add(self, by: float, figure: str, *labels: str) -> None:
        key = (f"validator_transport_{figure}", *labels)
        self._values[key] = self._values.get(key, 0) + by


class MeasuredContext:
    """A transport's context (`validator.plugin.api.TransportContext`) that counts what passes it."""

    def __init__(self, context: TransportContext, meter: TransportMeter) -> None:
        self._context, self._meter = context, meter
        self.config = context.config
        self.encode, self.decode, self.cursor = context.encode, context.decode, context.cursor
        self.measure = meter.measure

    @property
    def stopping(self) -> bool:
        return self._context.stopping

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        with self._refusals():
            self._context.submit(topic, key, value)
        self._meter.wrote(topic, len(value))

    def enqueue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        done: Callable[[str | None], None],
        headers: Mapping[str, bytes] = {},
    ) -> bool:
        if not callable(done):  # the context says so
            return self._context.enqueue(topic, key, value, done, headers)
        self._meter.waits(1)
        taken = False
        try:
            with self._refusals():
                counted = partial(self._done, topic, len(value), done)
                taken = self._context.enqueue(topic, key, value, counted, headers)
        finally:
            if not taken:
                self._meter.waits(-1)
        return taken

    def commit(self, records: Iterable[Record], cursors: Mapping[str, bytes]) -> None:
        given = list(records)
        with self._refusals():
            self._context.commit(given, cursors)
        for topic, _, value in given:
            self._meter.wrote(topic, len(value))

    def receive(self, timeout_s: float) -> Record | None:
        record = self._context.receive(timeout_s)
        if record is not None:
            self._meter.received(record[0], to_acknowledge=True)
        return record

    def acknowledge(self) -> None:
        self._context.acknowledge()
        self._meter.acknowledged()

    def reader(self, topics: Iterable[str]) -> OutputReader:
        return _MeasuredReader(self._context.reader(topics), self._meter)

    def _done(self, topic: str, value_bytes: int, done: Callable[[str | None], None], reason: str | None) -> None:
        self._meter.waits(-1)
        if reason is None:
            self._meter.wrote(topic, value_bytes)
        else:
            self._meter.refused()
        done(reason)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, UserError):
            self._meter.refused()
            raise


class _MeasuredReader:
    def __init__(self, reader: OutputReader, meter: TransportMeter) -> None:
        self._reader, self._meter = reader, meter
        self.seek, self.positions, self.ends, self.close = reader.seek, reader.positions, reader.ends, reader.close

    def receive(self, timeout_s: float) -> Any:
        record = self._reader.receive(timeout_s)
        if record is not None:
            self._meter.received(record.topic, to_acknowledge=False)
        return record


class _Reporter(Thread):
    """Writes a transport's reports until its end. Nothing waits for it, and nothing fails with it: the next report has everything."""

    def __init__(self, kafka: KafkaTable, prefix: str, meter: TransportMeter, name: str) -> None:
        super().__init__(name="metrics", daemon=True)
        self._topic, self._key, self._meter = prefix + METRICS, f"transport/{name}".encode(), meter
        self._end = Event()
        self._producer = Producer(producer_config(kafka))

    def run(self) -> None:
        while True:
            ends = self._end.wait(REPORT_INTERVAL_S)
            with suppress(KafkaException, BufferError):
                self._producer.produce(self._topic, self._meter.report().encode(), self._key)
                self._producer.poll(0)
            if ends:
                with suppress(KafkaException):
                    self._producer.flush(END_S_MAX)
                return

    def end(self) -> None:
        self._end.set()
        self.join(2 * END_S_MAX)


@contextmanager
def measuring(
    config: Config,
    name: str,
    tell: Callable[[str], None],
    context: TransportContext,
    *,
    own: Sequence[PluginMetric] = (),
) -> Iterator[TransportContext]:
    """Yield the context that an active transport uses: one that counts, if the configuration has metrics; ``own`` are those it declares.

    Until the end it reports to Kafka, and serves the values at the transport's address if it has one, of which ``tell`` gets a line. That
    begins here, since a standby on the same machine has the same address. Raises `UserError` if the address cannot be used, or if the topic
    cannot be created.
    """
    metrics, topics = config.metrics, config.topics
    address = metrics.transports.get(name)
    if metrics.listen is None and address is None:
        yield context
        return
    meter = TransportMeter(name, own=own, tell=tell)
    with ExitStack() as stack:
        if address is not None:
            store = MetricStore()
            store.before_scrape.append(lambda: store.take(meter.report()))
            page = stack.enter_context(endpoint(address, f"[metrics.transports] {name}", store))
            tell(f"transport {name}: metrics at {page}")
        if metrics.listen is not None:
            create_topics(
                config.kafka, prefix=topics.prefix, replication_factor=topics.replication_factor, topics=[METRICS_TOPIC]
            )
            reporter = _Reporter(config.kafka, topics.prefix, meter, name)
            stack.callback(reporter.end)
            reporter.start()
        yield MeasuredContext(context, meter)
