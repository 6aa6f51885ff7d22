# SPDX-License-Identifier: Apache-2.0
"""Writes what lanes emit to Kafka, in the worker that executes them: each batch with its marker in one transaction.

The marker is a record on the compacted topic `markers`. Once it is committed, the lane's own consumer group gets it as offsets, at some
time or not at all (`validator.checkpoint.markers.GroupCommits`): on the input topics those that the lane has consumed, which any Kafka tool
shows as lag, on `markers` the number of the block after the last one emitted.

It is neither a Spark sink nor a stage of the plan: a Python data source's commit or a foreachBatch costs another process or job per batch,
and a stage costs another worker and copies of every output. The output guarantees also hold inside a task: each lane's records have one
order and are written before the batch counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from validator.checkpoint.markers import DOUBTFUL_HEADER, JOB_HEADER, WRITER_HEADER, LaneOnKafka, ReceiptsGone
from validator.codec.encode import BlockOutput
from validator.codec.schemas import HEADER_SIZE
from validator.errors import Unavailable, UserError
from validator.kafka.transaction import Fenced, KafkaGone, WriteFailed, WriterFenced
from validator.lanes.marker import Consumed, ForeignMarker, Marker, MarkerBehind
from validator.lanes.sink import Sink, in_runs
from validator.topics import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Container

    from validator.checkpoint.markers import Ends, Written
    from validator.codec.encode import OutputRecord
    from validator.core.types import BlockNumber
    from validator.kafka.transaction import Sent


NO_FRAMES: Final[Mapping[tuple[str, bytes], bytes]] = MappingProxyType({})
"""Every record is sent in its plain form."""


class TransactionalWriter:
    """Writes one lane's batches. After any exception it must be discarded."""

    def __init__(self, log: LaneOnKafka, job: str, frames: Mapping[tuple[str, bytes], bytes] = NO_FRAMES) -> None:
        """Take over the lane for a job and fence off its previous writer. Raises `WriteFailed`.

        ``frames`` has, by topic and header of a record, the header that it is sent with (`validator.job.schema_ids`).
        """
        self._log = log
        self._lane, self._prefix = log.lane, log.prefix
        self._job = job
        self._frames = frames
        self._topics: dict[str, str] = {}
        self._marker: Marker | None = None
        self._is_own = False
        """Whether it is known that the lane wrote the marker."""
        self._name = token_hex(8)
        """Differs between any two writers, those of one job too."""
        self._found: Written | None = None
        """What Kafka had of the lane when the marker was read."""
        self._dead_letters: set[bytes] | None = None
        self._noted: Ends | None = None
        """Where the committed dead letters end while the open transaction has others."""
        with self._told():
            self._writer = log.writer()

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker, with offset zero for those of ``places`` that it does not have. Raises `WriteFailed`."""
        if self._marker is None:
            self._marker = self._read_marker()
        return self._marker.after(None, dict.fromkeys(places, 0))

    def confirm(self, *, corrects: bool) -> None:
        """Compare the marker with the lane's receipts and the ends of its inputs, once. Raises `ForeignMarker`, `WriteFailed`.

        The batch must have written nothing yet. If the receipts are gone, the marker is believed.
        """
        marker = self.marker(())
        assert self._found is not None
        if self._is_own or self._found.is_reset:
            return
        with self._told():
            try:
                self._check_own(marker)
            except ForeignMarker:
                try:
                    self._check_own(marker)  # what leads to this is seen twice
                except ForeignMarker:
                    if not corrects:
                        raise
                    self._marker = Marker.corrected(self._last_receipt(marker))
        self._is_own = True

    def note_dead_letters(self) -> None:
        """Note where the committed dead letters end. Raises `WriteFailed`."""
        if self._dead_letters is None and self._noted is None:
            with self._told():
                self._noted = self._log.dead_letter_ends()

    def written_dead_letters(self) -> Container[bytes]:
        """Return the sources of the lane's committed dead letters. Reads their topic once. Raises `WriteFailed`.

        Other lanes' transactions that were open before are waited for: some of the lane's own letters may stand behind them. No two
        writers wait for each other. Whoever has dead letters in its open transaction reads up to the end that it noted before them, so it
        waits only for those who wrote earlier.
        """
        if self._dead_letters is None:
            with self._told():
                self._dead_letters = self._log.dead_letters(self._noted)
        return self._dead_letters

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Write records in the batch's transaction. Raises `WriteFailed`, `WriterFenced`."""
        with self._told():
            self._writer.send(self._sent(records))

    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither. Raises `WriteFailed`, `WriterFenced`."""
        headers = [(JOB_HEADER, self._job.encode()), (WRITER_HEADER, self._name.encode())]
        if marker.doubtful:
            headers.append((DOUBTFUL_HEADER, b""))
        with self._told():
            self._writer.commit(self._sent([marker.encode(self._lane)._replace(headers=tuple(headers))]))
        before, self._marker = self._marker, marker
        if self._noted is not None:  # what was read ends before the dead letters of this transaction
            self._noted = self._dead_letters = None
        # the group knows only blocks that were emitted, whatever the marker said before
        emitted = None if before is None or before.block == marker.block else marker.block
        self._log.hand_to_group(marker.consumed, emitted)

    def _read_marker(self) -> Marker:
        """Read the marker, a second time if the lane's group is ahead of it. Raises `WriteFailed`."""
        known = self._log.group_block()
        with self._told():
            found = self._log.written()
            if known is not None and not found.is_reset and not found.marker.has_written(known):
                found = self._log.written()
                found.marker.check_not_behind(known)
        self._found = found
        return found.marker

    def _check_own(self, marker: Marker) -> None:
        receipt = self._last_receipt(marker)
        marker.check_own(receipt, self._log.input_ends())

    def _last_receipt(self, marker: Marker) -> BlockNumber | None:
        try:
            return self._log.last_receipt()
        except ReceiptsGone:
            return marker.block

    def _sent(self, records: Iterable[OutputRecord]) -> Iterator[Sent]:
        """Yield records as they are sent, and know their dead letters from then on."""
        names, frames, letters = self._topics, self._frames, self._dead_letters
        for topic, key, value, headers in records:
            name = names.get(topic) or names.setdefault(topic, self._prefix + topic)
            frame = frames.get((topic, value[:HEADER_SIZE])) if frames else None
            sent = value if frame is None else frame + value[HEADER_SIZE:]
            yield name, key, sent, list(headers) if headers else None
            if topic == DEAD_LETTERS and letters is not None:
                letters.add(dict(headers)["source"])

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what fails into what the job can do about it: repeat the batch, wait for Kafka, or stop since another job has the lane."""
        try:
            yield
        except Fenced as fenced:
            with self._told():
                last = self._log.written(progress_s=None)
            raise self._taken_over(fenced, last) from fenced
        except MarkerBehind as behind:
            text = f"Kafka does not show the last marker of lane {self._lane}: it shows one {behind}"
            raise KafkaGone(text) from None
        except ForeignMarker:
            raise
        except UserError as error:
            raise (KafkaGone if isinstance(error, Unavailable) else WriteFailed)(str(error)) from error

    def _taken_over(self, fenced: Fenced, last: Written) -> WriteFailed | WriterFenced:
        """Return who has fenced this writer: a job that has written the lane since, or nobody knows who."""
        seen = (self._found is not None and last.place == self._found.place) or last.writer == self._name
        if seen or last.place is None or last.job == self._job:
            # another worker of this job, or another job that has emitted nothing yet: one of the two will find the other's marker
            text = fenced.error.str() or fenced.error.name()
            return WriteFailed(
                f"lane {self._lane} has been taken over by another writer, of this job or one that has written nothing: {text}"
            )
        return WriterFenced(f"another job has taken over lane {self._lane}: {last.job or 'one whose name is unknown'}")


RUN_BYTES: Final = 1024 * 1024
"""Bytes of record values that are handed to the producer at once."""


S_co = TypeVar("S_co", bound=Sink, covariant=True)


class Output(Protocol, Generic[S_co]):
    """Where the lanes' records go, in the form that is sent to the workers. Equal outputs share a worker's sink."""

    def open(self) -> S_co:
        """Open a sink in a worker."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class KafkaOutput(Generic[S_co]):
    """Kafka, with one transactional producer for each lane or key; ``sink`` is the class of a worker's sink."""

    sink: Callable[[Callable[[str], TransactionalWriter]], S_co]
    kafka: tuple[tuple[str, Any], ...]
    prefix: str
    job: str
    """Identifies the job among all jobs that ever write these lanes."""
    frames: tuple[tuple[tuple[str, bytes], bytes], ...] = ()
    """By topic and header of a record, the header that it is sent with."""

    @classmethod
    def of(
        cls,
        sink: Callable[[Callable[[str], TransactionalWriter]], S_co],
        kafka: Mapping[str, Any],
        prefix: str,
        job: str,
        frames: Mapping[tuple[str, bytes], bytes] = NO_FRAMES,
    ) -> Self:
        return cls(sink, tuple(sorted(kafka.items())), prefix, job, tuple(sorted(frames.items())))

    def open(self) -> S_co:
        """Open a sink, whose writers fence off earlier ones."""

        def writer(key: str) -> TransactionalWriter:
            return TransactionalWriter(LaneOnKafka(dict(self.kafka), self.prefix, key), self.job, dict(self.frames))

        return self.sink(writer)


_SINKS: dict[Any, Any] = {}
"""This worker's sinks by output, so that connections outlive a batch."""


@contextmanager
def opened(output: Output[S_co]) -> Iterator[S_co]:
    """Give this worker's sink of an output for a batch; if anything fails, it is not used again."""
    sink = _SINKS.pop(output, None) or output.open()
    yield sink
    _SINKS[output] = sink  # reached only if nothing failed


def write_batch(
    sink: Sink, lane: str, outputs: Iterable[BlockOutput], consumed: Callable[[], Consumed]
) -> dict[str, int]:
    """Write one lane's batch and commit it; ``consumed`` is called after the last output. Returns how many records went to each topic.

    Raises what the sink raises.
    """
    for run in in_runs(outputs, RUN_BYTES):
        sink.write(lane, run)
    return sink.commit(lane, consumed())
