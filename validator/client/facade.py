# SPDX-License-Identifier: Apache-2.0
"""The client: producers of lanes and streams of output topics, over Kafka or lanes in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from pydantic import ValidationError

from validator.ask.dry_run import KINDS
from validator.client.backend import KafkaBackend, MemoryBackend
from validator.client.producer import Producer, plain
from validator.client.records import (
    NOWHERE,
    ChannelEvent,
    ChannelHeadroom,
    Dispatch,
    Error,
    MessageRef,
    ParaHeadroom,
    Position,
    Receipt,
    Verdict,
)
from validator.client.streams import BEGINNING, POLL_S, PluginRecord, Start, Stream, Wanted, begin_of, read_record
from validator.codec.codec import RecordUnreadable
from validator.codec.dry_runs import DryRunRequest
from validator.codec.json_form import to_json
from validator.config import Config, load_config
from validator.config.explain import explain
from validator.config.load import names_at
from validator.errors import UserError
from validator.kafka.reader import Newest
from validator.lanes.configured import configured_codec, lane_definition, protocol_of
from validator.lanes.parked import parked_key, status_of
from validator.names import closest
from validator.plugin.pack import use_artefacts
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.resources import state_directory
from validator.topics import LANES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from validator.client.backend import Backend
    from validator.codec.dry_runs import DryRunAnswer

Configuration: TypeAlias = str | Path | Mapping[str, Any] | Config | None
"""A configuration file, its tables, or None for ``./validator.toml``."""

CORRELATION_BYTES: Final = 16
"""Bytes by which a client recognises an answer, chosen at random."""
ASK_S_DEFAULT: Final = 60.0
"""Seconds that a client waits for an answer."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a lane stands, as its job committed last; None where the job has not said anything yet.

    ``waiting_blocks`` have records, but are not executed yet; ``waiting_for`` says in words what the block after ``executed_block`` lacks.
    ``parked`` is why the lane takes no more records until an operator acts, None if it runs. ``unread`` counts the lane's records on Kafka
    that no job has read: ``waiting_for``, which was said without them, is None then. It is None if the client may not read what says so.
    """

    lane: str
    executed_block: int | None = None
    waiting_blocks: int = 0
    waiting_for: str | None = None
    parked: str | None = None
    unread: int | None = 0


def progress_of(
    lane: str, values: Mapping[bytes, bytes], unread: Callable[[Mapping[str, Any] | None], int | None]
) -> Progress:
    """Return a lane's progress by the last values of the topic `lanes`, by key. Raises `UserError` if one cannot be read.

    ``unread`` gets the `LaneParked` record of a lane that is parked.
    """
    status, parked = (
        to_json("lanes", values[key]) if key in values else None for key in (lane.encode(), parked_key(lane))
    )
    if parked is not None and parked["state"] == "running":
        parked = None
    reason = None if parked is None else parked["reason"]
    left = unread(parked)
    if status is None:
        return Progress(lane, parked=reason, unread=left)
    status = status_of(status, parked)
    waiting_for = None if left and parked is None else status["waiting_for"]
    return Progress(lane, status["executed_block"], status["waiting_blocks"], waiting_for, reason, left)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a lane would say to a record in ``block``, on its state after ``executed_block``.

    ``errors`` are in the order of the checks: the lane would name the first. ``complete`` says whether they are all. The verdict would have
    these ``messages`` and ``effective_session``. ``headroom`` has the para and the channels that it sends over; ``headroom_after`` is empty
    if the record would be rejected. ``batch`` is the job's batch that committed the state, None in memory; ``state_root`` is its root.
    """

    lane: str
    batch: int | None
    executed_block: int
    state_root: bytes
    block: int
    kind: str
    para_id: int
    errors: tuple[Error, ...]
    complete: bool
    messages: tuple[MessageRef, ...]
    effective_session: int | None
    headroom: tuple[ParaHeadroom | ChannelHeadroom, ...]
    headroom_after: tuple[ParaHeadroom | ChannelHeadroom, ...]

    @property
    def ok(self) -> bool:
        """Whether the record would be accepted."""
        return not self.errors


def dry_run_of(answer: DryRunAnswer) -> DryRun:
    """Return an answer that was not refused. Raises `UserError` if its records cannot be read."""
    verdicts: list[Verdict] = [read_record("verdicts", value, NOWHERE) for value in answer.verdicts]
    before, after = (
        tuple(read_record("headroom", value, NOWHERE) for value in values)
        for values in (answer.headroom, answer.headroom_after)
    )
    first = verdicts[0]
    assert answer.executed_block is not None
    assert answer.state_root is not None
    return DryRun(
        lane=answer.lane,
        batch=answer.batch,
        executed_block=answer.executed_block,
        state_root=answer.state_root,
        block=first.block,
        kind=first.kind,
        para_id=first.para_id,
        errors=tuple(each.error for each in verdicts if each.error is not None),
        complete=answer.complete,
        messages=first.messages,
        effective_session=first.effective_session,
        headroom=before,
        headroom_after=after,
    )


class Client:
    """What a program needs of a validator. Made by `connect` and `in_memory`; as a context manager it closes on exit.

    The streams share their arguments. ``lane``, ``para`` and ``rejected`` select records; a record of a channel is about both of its paras.
    ``start`` is ``"beginning"``, ``"now"``, a stream's `Stream.positions` kept before, or offsets by partition. With ``follow`` a stream
    waits at the topic's end. A stream connects at once. They raise `UserError` if chains are configured and the lane is none of them, if
    the topic does not exist or Kafka does not answer, and if the topic does not have what comes next at the start.
    """

    def __init__(self, backend: Backend, config: Config) -> None:
        self._backend, self._config = backend, config

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send what is still to be sent, and close the connections of producers."""
        self._backend.close()

    def producer(self, lane: str, *, after: int | None = None) -> Producer:
        """Return a producer of a lane's blocks, which refuses blocks up to ``after``, such as the last one that `progress` names.

        A block that Kafka does not take raises `UserError` at its end, once: send it again (`BlockOnItsWay.end`). Raises `UserError` if
        chains are configured and the lane is none of them.
        """
        self._check_lane(lane)
        protocol = protocol_of(self._config, lane)
        return Producer(self._backend, codec_of([RuntimePlan(protocol)]), protocol, lane, after)

    def progress(self, lane: str) -> Progress:
        """Return where a lane stands: its last executed block, and what it waits for.

        On Kafka the topic `lanes` says so, as the job committed last; records that it has not read are ``unread``. Raises `UserError`:
        the lane is not configured, the topic does not exist, Kafka does not answer.
        """
        self._check_lane(lane)
        values: dict[bytes, bytes] = {}
        newest = Newest()
        with closing(self._backend.read(LANES, BEGINNING)) as reading:
            while True:
                values.update((each.key or b"", each.value) for each in reading.poll(POLL_S) if newest.takes(each))
                if reading.at_end:
                    break
        return progress_of(lane, values, partial(self._backend.unread, lane))

    def verdicts(
        self,
        *,
        lane: str | None = None,
        para: int | None = None,
        rejected: bool = False,
        error: str | None = None,
        start: Start = "beginning",
        follow: bool = False,
    ) -> Stream[Verdict]:
        """Return verdicts; with ``rejected`` only those with an error, with ``error`` those of a kind or of all kinds below it."""
        return self._stream("verdicts", Wanted(lane, para, rejected, error), start, follow)

    def dispatches(
        self,
        *,
        lane: str | None = None,
        para: int | None = None,
        rejected: bool = False,
        start: Start = "beginning",
        follow: bool = False,
    ) -> Stream[Dispatch]:
        """Return upward messages that were processed; with ``rejected`` only those that were not handled."""
        return self._stream("dispatches", Wanted(lane, para, rejected), start, follow)

    def channel_events(
        self, *, lane: str | None = None, para: int | None = None, start: Start = "beginning", follow: bool = False
    ) -> Stream[ChannelEvent]:
        """Return changes in the lives of channels."""
        return self._stream("channel-events", Wanted(lane, para), start, follow)

    def headroom(
        self, *, lane: str | None = None, para: int | None = None, start: Start = "beginning", follow: bool = False
    ) -> Stream[ParaHeadroom | ChannelHeadroom]:
        """Return what paras and channels can still send after the ``block`` of each record; the topic keeps the last one of each.

        Records come at intervals (`[job] headroom_interval_blocks`), so later blocks may have used some of it.
        """
        return self._stream("headroom", Wanted(lane, para), start, follow)

    def receipts(self, *, lane: str | None = None, start: Start = "beginning", follow: bool = False) -> Stream[Receipt]:
        """Return the receipts of blocks."""
        return self._stream("receipts", Wanted(lane), start, follow)

    def plugin_records(
        self,
        topic: str,
        *,
        lane: str | None = None,
        para: int | None = None,
        start: Start = "beginning",
        follow: bool = False,
    ) -> Stream[PluginRecord]:
        """Return the records of a topic of an installed plugin, such as `journeys`. Raises `UserError` if no plugin has the topic."""
        from validator.transports.runner import plugin_topics  # imports every plugin

        there = plugin_topics(self._config)
        if topic not in there:
            raise UserError(f"topic: expected {', '.join(there) or 'none'}, found {topic!r}")
        form = there[topic].form.format

        def read(value: bytes, at: Position) -> PluginRecord:
            try:
                return PluginRecord(form.decode(value), at)
            except RecordUnreadable as error:
                raise UserError(f"{topic}: {error}") from None

        return self._stream(topic, Wanted(lane, para), start, follow, read)

    def dry_run(
        self, lane: str, record: Mapping[str, Any], kind: str = "candidates", *, timeout_s: float = ASK_S_DEFAULT
    ) -> DryRun:
        """Return what a lane would say to a record now; nothing is sent to the lane.

        ``kind`` is ``candidates``, ``channel-requests`` or ``downward-messages``. The record has the form of `validator submit`; bytes may
        be bytes. On Kafka the transport `dry-run` answers, from the state that the job committed last. Raises `UserError`: an unknown kind
        or lane, topics that do not exist, a request that was refused, such as a record that is none of its kind; ``TimeoutError`` if nobody
        answers in time.
        """
        if kind not in KINDS:
            raise UserError(f"kind: expected {', '.join(KINDS)}, found {kind!r}")
        self._check_lane(lane)
        text = json.dumps(plain(dict(record)))
        request = DryRunRequest(lane, token_bytes(CORRELATION_BYTES), kind, text)
        try:
            answer = self._backend.ask(request, timeout_s)
        except RecordUnreadable as error:
            raise UserError(str(error)) from None
        if answer.refused is not None:
            raise UserError(answer.refused)
        return dry_run_of(answer)

    def waits_for(self, lane: str) -> str:
        """Return in words what a lane in memory waits for. Raises `UserError` for a client of Kafka: see `validator lanes`."""
        if not isinstance(self._backend, MemoryBackend):
            raise UserError(
                "waits_for: expected a client in memory; for others, `validator lanes` says what a lane waits for"
            )
        return self._backend.waits_for(lane)

    def _check_lane(self, lane: str) -> None:
        chains = self._config.chains
        if chains and lane not in chains:
            close = closest(lane, chains)
            hint = f"; did you mean {close!r}?" if close else ""
            raise UserError(f"lane: expected {' or '.join(sorted(chains))}, found {lane!r}{hint}")

    def _stream(
        self,
        topic: str,
        wanted: Wanted,
        start: Start,
        follow: bool,
        read: Callable[[bytes, Position], PluginRecord] | None = None,
    ) -> Stream[Any]:
        if wanted.lane is not None:
            self._check_lane(wanted.lane)
        why = partial(self._backend.why, wanted.lane)
        return Stream(topic, self._backend.read(topic, begin_of(start)), wanted, follow=follow, why=why, read=read)


def connect(configuration: Configuration = None) -> Client:
    """Return a client of the configured Kafka, or of the embedded broker if none is configured; it must be running.

    Raises `UserError`: the configuration is wrong, no broker runs.
    """
    config = _config(configuration)
    kafka = config.kafka
    if not kafka.get("bootstrap.servers"):
        from validator.kafka.broker import (
            EmbeddedBroker,  # it can also start Java; here it reads the address and the login
        )

        kafka = {**kafka, **EmbeddedBroker(state_directory() / "broker").kafka}
    config = config.model_copy(update={"kafka": kafka})
    return Client(KafkaBackend(config), config)


def in_memory(configuration: Configuration = None) -> Client:
    """Return a client whose lanes run in this process, from their first blocks, with the rules that the job would apply.

    A block is executed when it ends, and its records are there at once; nothing is kept. Raises `UserError`: the configuration is wrong, or
    has no chain.
    """
    config = _config(configuration)
    if not config.chains:
        raise UserError("no chain is configured: expected a table [chains.<lane>]")
    definitions = {lane: lane_definition(config, lane) for lane in sorted(config.chains)}
    return Client(MemoryBackend(definitions, configured_codec(config)), config)


def _config(configuration: Configuration) -> Config:
    if isinstance(configuration, Config):
        config = configuration
    elif isinstance(configuration, Mapping):
        try:
            config = Config.model_validate(dict(configuration))
        except ValidationError as error:
            raise UserError(explain(error.errors(include_url=False)[0], names_at)) from None
    else:
        config = load_config(configuration)
    use_artefacts(config.plugins.artefacts)
    return config
