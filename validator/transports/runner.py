# SPDX-License-Identifier: Apache-2.0
"""Runs a transport: finds and configures its plugin, and calls it with a context that reads and writes Kafka."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import KafkaException, TopicPartition

from validator.ask.dry_run_transport import dry_run_plugin
from validator.ask.standings import CheckpointStandings
from validator.config.explain import no_chain
from validator.errors import UserError
from validator.job.installed import configured_job, create_job_topics, every_chain, installed_jobs
from validator.kafka.reader import TopicReader
from validator.kafka.refusals import why
from validator.kafka.retry import user_error
from validator.kafka.sender import RecordSender
from validator.kafka.settings import OF_GROUP
from validator.kafka.topics import create_topics
from validator.lanes.configured import configured_codec, protocol_of
from validator.plugin.limits import CLOSE_S_MAX, COMMIT_S_MAX, READERS_MAX
from validator.plugin.lock import check_lock, check_versions, read_lock
from validator.plugin.pack import use_artefacts
from validator.plugin.registry import (
    PluginError,
    Problem,
    canonical,
    configure,
    discover,
    installed,
    load_all,
    transports_of,
)
from validator.plugin.submission import NO_CURSORS, RecordForms, check_commit, check_enqueued, job_topics
from validator.topics import CURSORS_TOPIC, INPUT_TOPICS
from validator.transports.lease import Lease
from validator.transports.output_reader import Cursors, KafkaOutputReader, next_record
from validator.transports.record_queue import RecordQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from confluent_kafka import KafkaError

    from validator.config import Config
    from validator.kafka.reader import TopicRecord
    from validator.kafka.settings import KafkaTable
    from validator.plugin.api import Measures, Record, Transport, TransportContext
    from validator.plugin.job_api import Job, OwnTopic, TopicForm
    from validator.plugin.registry import Plugin


GROUP: Final = "validator.transports"


class Chosen(NamedTuple):
    """A configured transport and its plugin."""

    name: str
    """The name in the command and the consumer group: the plugin's name, plus the transport's name if the two differ."""
    plugin: Plugin
    transport: Transport
    config: Any
    forms: RecordForms
    jobs: tuple[Job, ...] = ()


def choose_transport(config: Config, name: str) -> Chosen:
    """Return an installed plugin's transport, configured by ``[transports.<plugin>]``.

    ``name`` is ``plugin``, or ``plugin.transport`` if the plugin has several. Raises `UserError`, in this order: no such plugin, or several
    versions of it; the plugin or its configuration is invalid; no such transport, or several to choose from; a chain that is not
    configured; a job that is not installed or whose options are wrong; a topic that is not an output.
    """
    use_artefacts(config.plugins.artefacts)
    known = {found.name for found in discover(GROUP)}
    prefixes = [name[:at] for at, character in enumerate(name) if character == "."]
    plugin_name = next((each for each in (name, *reversed(prefixes)) if each in known), name)
    shipped = {each.manifest.name: each for each in shipped_transports(config)}
    plugin = shipped[plugin_name] if plugin_name in shipped else _only(plugin_name, config, shipped)
    values = canonical(config.transports.get(plugin_name, {}))
    transports = {
        each.name if each.name == plugin_name else f"{plugin_name}.{each.name}": each
        for each in transports_of(plugin, values)
    }
    wanted = name
    if name == plugin_name and name not in transports and len(transports) == 1:
        (wanted,) = transports
    if wanted not in transports:
        there = f"expected one of {', '.join(sorted(transports))}" if transports else "the table configures none"
        raise UserError(f"{plugin}: no transport {name!r} under [transports.{plugin_name}], {there}")
    transport = transports[wanted]
    for lane in transport.lanes:
        if config.chains and lane not in config.chains:
            raise UserError(f"{plugin}: transport {wanted}: {no_chain(lane, config.chains)}")
    jobs = tuple(configured_job(config, job) for job in transport.jobs)
    forms = record_forms(config, jobs, transport.own)
    for topic in transport.topics:
        if topic not in forms.outputs:
            raise UserError(
                f"{plugin}: transport {wanted}: {topic!r} is not one of the output topics {', '.join(forms.outputs)}"
            )
    return Chosen(wanted, plugin, transport, configure(plugin, values), forms, jobs)


def shipped_transports(config: Config) -> list[Plugin]:
    """Return the plugins of the transports that are part of the product: that of dry runs, which reads the job's checkpoint."""
    return [dry_run_plugin(lambda settings: CheckpointStandings(config, settings.refresh_seconds))]


def _only(name: str, config: Config, shipped: Iterable[str]) -> Plugin:
    lock = None if config.plugins.lock is None else read_lock(Path(config.plugins.lock))
    if lock is not None and (problems := check_lock(lock, [each for each in discover(GROUP) if each.name == name])):
        raise PluginError(problems)
    plugins = installed(GROUP, [name], shipped)
    if lock is not None and (problems := check_versions(lock, plugins.values())):
        raise PluginError(problems)
    if len(plugins) > 1:
        versions = ", ".join(version for _, version in plugins)
        raise PluginError([Problem(name, f"versions {versions} are installed", "leave one of them")])
    (plugin,) = plugins.values()
    return plugin


class TransportGroup(NamedTuple):
    """All processes of one transport: the cluster, the topics' prefix, and the transport's name."""

    kafka: KafkaTable
    prefix: str
    name: str

    @property
    def group_id(self) -> str:
        """The consumer group that has the acknowledged offsets, and whose only member is the active process."""
        return f"{self.prefix}transport.{self.name}"

    def lease(self, topics: tuple[str, ...]) -> Lease:
        """Return the lease of this transport, which is not acquired yet. Raises `UserError` if topics are missing or no broker answers."""
        subscribed = topics[0] if topics else next(iter(INPUT_TOPICS))
        sender = RecordSender(self.kafka, self.prefix)
        for topic in topics or (subscribed,):
            sender.check(topic)
        return Lease(self.kafka, self.group_id, self.name, self.prefix + subscribed)


class KafkaTransportContext:
    """A transport's context on Kafka (`validator.plugin.api.TransportContext`), of the process that has the lease.

    It reads all partitions, assigned by itself, and commits offsets through the lease's member of the group. As a context manager it closes
    its connections on exit; received records that were not acknowledged are delivered again. Raises `UserError` if topics are missing or no
    broker answers.
    """

    def __init__(
        self,
        group: TransportGroup,
        topics: tuple[str, ...],
        config: Any,
        stop: Event,
        forms: RecordForms,
        lease: Lease,
        *,
        cursors: bool = False,
    ) -> None:
        self.config = config
        self.encode, self.decode = forms.encode, forms.decode
        self._forms = forms
        self._kafka, self._prefix, self._name = group
        self._stop, self._lease = stop, lease
        self._sender = RecordSender(group.kafka, group.prefix)
        self._queue: RecordQueue | None = None
        self._readers: list[KafkaOutputReader] = []
        self._opening = Lock()
        self._cursors = Cursors(group.kafka, group.prefix, group.name, self._check) if cursors else None
        self._reader = TopicReader(
            group.kafka,
            group.prefix,
            topics,
            reading=OF_GROUP,
            group_id=group.group_id,
            patience_s=COMMIT_S_MAX,
            cannot=f"transport {group.name}: error from",
        )
        try:
            self._reader.start_at_committed()
            self._reader.begin()
        except BaseException:
            self._reader.close()
            raise
        self._acknowledged = self._reader.positions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for reader in self._readers:
            reader.close()
        self._reader.close()
        if self._queue is not None:
            failed = self._queue.has_failed
            self._queue.close(CLOSE_S_MAX if kind is None and not failed and not self._lease.lost.is_set() else 0.0)
            if kind is None:
                self._queue.check_done()

    @property
    def stopping(self) -> bool:
        """Whether the transport has to end: it was asked to, or has lost its lease, or cannot enqueue."""
        return self._stop.is_set() or self._lease.lost.is_set() or (self._queue is not None and self._queue.has_failed)

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Write a record to an input topic and return once all in-sync replicas have it. Raises ``ValueError``, `UserError`."""
        self._forms.check_submission(topic, key, value)
        self._check()
        self._sender.send(topic, key, value)
        self._sender.flush()

    def enqueue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        done: Callable[[str | None], None],
        headers: Mapping[str, bytes] = {},
    ) -> bool:
        """Write a record in the background, or return False if too many wait. Raises ``ValueError``, `UserError`."""
        self._forms.check_submission(topic, key, value)
        check_enqueued(key, done, headers)
        self._check()
        with self._opening:
            if self._queue is None:
                self._queue = RecordQueue(self._kafka, self._prefix)
        return self._queue.put(topic, key, value, done, headers)

    def reader(self, topics: Iterable[str]) -> KafkaOutputReader:
        names = self._forms.output_topics(topics)
        self._check()
        with self._opening:
            self._readers = [each for each in self._readers if not each.is_closed]
            if len(self._readers) >= READERS_MAX:
                raise ValueError(f"readers: expected at most {READERS_MAX} open ones, found one more")
            self._readers.append(
                KafkaOutputReader(self._kafka, self._prefix, names, self._check, lambda: self.stopping)
            )
            return self._readers[-1]

    def cursor(self, name: str) -> bytes | None:
        """Return a committed cursor, or None. Raises ``ValueError``."""
        if self._cursors is None:
            raise ValueError(NO_CURSORS)
        return self._cursors.get(name)

    def commit(self, records: Iterable[Record], cursors: Mapping[str, bytes]) -> None:
        """Write records and cursors, all or nothing. Raises ``ValueError``, `UserError`."""
        if self._cursors is None:
            raise ValueError(NO_CURSORS)
        given = list(records)
        check_commit(self._forms, given, cursors)
        self._cursors.commit(given, cursors)

    def measure(self, measures: Measures) -> None:
        """Measure nothing: `transports.meter.MeasuredContext` does."""

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next committed record, or None at the timeout or a request to stop. Raises as `submit` does."""

        def poll(seconds: float) -> list[TopicRecord]:
            records = self._reader.poll(seconds)
            self._check()  # this process may have been frozen up to here
            return records

        record = next_record(self._reader, poll, timeout_s, lambda: self.stopping)
        return None if record is None else (record.topic, record.key or b"", record.value)

    def acknowledge(self) -> None:
        """Commit the offsets of everything received so far, and return once Kafka has them. Raises `UserError`."""
        self._check()
        received = self._reader.positions()
        new = {place: offset for place, offset in sorted(received.items()) if self._acknowledged[place] != offset}
        if not new:
            return
        try:
            self._lease.commit(
                TopicPartition(self._prefix + topic, partition, offset) for (topic, partition), offset in new.items()
            )
        except KafkaException as error:
            raise self._error(error.args[0]) from error
        self._acknowledged = received

    def _check(self) -> None:
        self._lease.check()
        if self._queue is not None:
            self._queue.check()

    def _error(self, error: KafkaError) -> UserError:
        right, group = f"Read on topics {self._prefix}*", f"{self._prefix}transport.{self._name}"
        bootstrap, reason = self._reader.bootstrap, why(error, self._kafka, right, group=group)
        return user_error(error, f"transport {self._name}: error from {bootstrap}: {reason}")


def record_forms(config: Config, jobs: Iterable[Job] = (), own: Iterable[OwnTopic] = ()) -> RecordForms:
    """Return the forms of the records of all configured chains, of some jobs, and of a transport's own topics. Raises `UserError`."""
    return RecordForms(configured_codec(config), partial(protocol_of, config), job_topics(jobs, own))


def create_topics_of_jobs(config: Config, chosen: Chosen) -> dict[str, bool]:
    """Create the missing topics of a transport's jobs, which may never have run, its own, and that of its cursors.

    Returns for each full name whether it was created now. Raises `UserError`.
    """
    topics = config.topics
    made: dict[str, bool] = {}
    if chosen.transport.cursors:
        made |= create_topics(
            config.kafka, prefix=topics.prefix, replication_factor=topics.replication_factor, topics=[CURSORS_TOPIC]
        )
    if chosen.transport.own:
        made |= create_topics(
            config.kafka,
            prefix=topics.prefix,
            output_partitions=topics.output_partitions,
            replication_factor=topics.replication_factor,
            topics=[each.topic for each in chosen.transport.own],
        )
    for job in chosen.jobs:
        made |= create_job_topics(config, job)
    return made


def run_transport(
    chosen: Chosen,
    group: TransportGroup,
    stop: Event,
    on_standby: Callable[[str], None],
    on_active: Callable[[Lease], None],
    measuring: Callable[[TransportContext], AbstractContextManager[TransportContext]] = nullcontext,
) -> None:
    """Wait until this process is the active one of the transport's name, and run the transport until it ends, or after ``stop`` is set.

    ``on_standby`` is called with the name of the active process before waiting for it to go, ``on_active`` with the lease before the
    transport runs; ``measuring`` returns the context that the transport gets. Raises `LeaseLost` if the lease was lost, and `UserError` as
    the context does, and for any exception of the transport.
    """
    topics = chosen.transport.topics
    with group.lease(topics) as lease:
        if not lease.acquire(stop, on_standby):
            return
        on_active(lease)
        try:
            with (
                KafkaTransportContext(
                    group, topics, chosen.config, stop, chosen.forms, lease, cursors=chosen.transport.cursors
                ) as context,
                measuring(context) as given,
            ):
                chosen.transport.run(given)
            lease.check()
        except UserError:
            lease.check()
            raise
        except Exception as error:
            lease.check()
            lines = str(error).strip().splitlines()
            text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
            raise UserError(f"transport {chosen.name}: {chosen.plugin} raised {text}") from error


class PluginTopic(NamedTuple):
    """A topic that a plugin declares; ``owner`` is the transport or job that creates it at its first start."""

    name: str
    owner: str
    purpose: str
    form: TopicForm


def plugin_topics(config: Config) -> dict[str, PluginTopic]:
    """Return the topics of all plugins, installed and shipped, by name, sorted.

    A plugin that cannot be loaded, or that needs a table which the configuration lacks, is left out: `validator plugins list` says why.
    """
    found: dict[str, PluginTopic] = {}
    for each in (*_of_transports(config), *_of_jobs(config)):
        found.setdefault(each.name, each)
    return dict(sorted(found.items()))


def _of_transports(config: Config) -> Iterator[PluginTopic]:
    for plugin in (*load_all(discover(GROUP))[0], *shipped_transports(config)):
        name = plugin.manifest.name
        try:
            transports = transports_of(plugin, canonical(config.transports.get(name, {})))
        except UserError:
            continue
        for transport in transports:
            for own in transport.own:
                yield PluginTopic(own.topic.name, f"transport {name}", own.topic.purpose, own.form)


def _of_jobs(config: Config) -> Iterator[PluginTopic]:
    for job in installed_jobs(every_chain()):
        try:
            configured: Job = configured_job(config, job.name)
        except UserError:  # without a chain for it; the form of its records is the same
            configured = job
        purposes = {topic.name: topic.purpose for topic in configured.topics}
        for name, form in configured.forms.items():
            yield PluginTopic(name, f"job {job.name}", purposes.get(name, ""), form)
