# SPDX-License-Identifier: Apache-2.0
"""A process of a worker that reads Kafka for it, so that nothing that a producer has compressed ends the worker.

librdkafka unpacks a producer's batch as a whole and has no bound for it: where memory does not suffice it ends its process. So a worker
does not read by itself. A fork of it reads and decodes, with the memory of a worker. If that ends, or says that a batch does not fit,
other forks read the rest of the task sparingly, one partition and one batch after the other. A batch at which a fork fails again and again
without having read a record is passed over: one dead letter names its offsets.

*A repeated batch is the same.* What a fork can read, a sparing one can, too. What it cannot is noted in the checkpoint before it is passed
over (`PassedOver`), and every later attempt follows the note.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NoReturn

from streaming.range_reader import RangeReader, TooLarge
from streaming.range_source import Decoding, OffsetRange, ReadFailed, SourceSettings, TaskRanges
from streaming.shared_folder import attempt_with
from streaming.workers import bound_worker, tune_garbage_collector, used_bytes
from validator.kafka.calls import ENDED, KAFKA_GONE
from validator.kafka.transaction import KafkaGone

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import pyarrow as pa


PROOFS: Final = 3
"""Processes that have to fail at a batch, each before it has read a record, before the batch is passed over."""

FAILURES_MAX: Final = 20
"""Processes in a row that may end without progress for another reason, such as the batch behind the one that they read."""

STEPS: Final = 16
"""Offsets behind a batch that is passed over that are tried one by one for the next one; from then on twice as many each time."""

_OF_MEMORY: Final = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL)
"""How a process ends without memory: by librdkafka, or by the system."""

_CHUNK, _HEARD, _ENDS, _DONE, _LARGE, _RAISED = range(6)
"""What a process says: a chunk and what is left behind it; that records have come; where a partition ends; that the task is done; why a
batch cannot be read; an exception."""


def read(settings: SourceSettings, task: TaskRanges) -> Iterator[pa.RecordBatch]:
    """Yield a task's inputs as packed runs; after them the process that reads begins to read ahead.

    Raises `AlreadyFailed`, `UserError` if the worker does not reach the job's folder or its plugins differ from the driver's,
    `InputsRemoved` if Kafka no longer has the ranges, `KafkaGone` if it does not answer, `ReadFailed` if a process that reads was killed.
    """
    with attempt_with(settings.shared):
        yield from _reader_of(settings).read(task)


def _reader_of(settings: SourceSettings) -> InputReader:
    """Return this worker's reader of a source, for a start of the query."""
    tune_garbage_collector()
    found = _readers.get(settings.name)
    if found is None or found.run != settings.run:
        if found is not None:
            found.close()
        found = _readers[settings.name] = InputReader(settings)
    return found


_readers: dict[str, InputReader] = {}
"""This worker's readers by source, which outlive a task."""


class InputReader:
    """Reads the tasks of one start of the query that come to this worker, by other processes."""

    def __init__(self, settings: SourceSettings) -> None:
        """Raises `UserError` as `Decoding.opened`."""
        self.run = settings.run
        self._settings = settings
        self._decoding: Decoding = pickle.loads(settings.decoding)  # noqa: S301 - the driver has sent it with the task
        self._opened = self._decoding.opened()
        self._passed_over = PassedOver(settings.passed_over)
        self._process: _Process | None = None

    def read(self, task: TaskRanges) -> Iterator[pa.RecordBatch]:
        """Yield a task's chunks. Raises as `read` does."""
        left = task.ranges
        if not self._passed_over.within(left):
            try:
                for chunk, rest in self._quickly(task):
                    yield chunk
                    left = rest
            except TooLarge:
                self.close()
            else:
                return
        for each in left:
            yield from self._sparingly(each)

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _quickly(self, task: TaskRanges) -> Iterator[tuple[pa.RecordBatch, tuple[OffsetRange, ...]]]:
        """Yield chunks, each with the ranges that are left behind it. Raises `TooLarge` and as `read` does."""
        if self._process is None or not self._process.is_alive:
            self.close()
            self._process = _Process(self._serve, sparing=False)
        try:
            for said, *parts in self._process.ask(task):
                if said == _CHUNK:
                    chunk, rest = parts
                    yield chunk, rest
        except BaseException:  # also if nobody wants the rest
            self.close()
            raise

    def _sparingly(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the chunks of a range, passing over what cannot be read. Raises as `read` does."""
        at, failures, proofs, end = wanted.first, 0, 0, 0
        while at < wanted.end:
            known = self._passed_over.within((wanted._replace(first=at),))
            if known and known[0].first <= at:
                reached = at
                for each in known:  # attempts at other ranges may have noted some that overlap
                    if each.first <= reached:
                        if each.first >= at:
                            yield self._letter(each)
                        reached = max(reached, each.end)
                at = reached
                continue
            before, heard = at, False
            until = known[0].first if known else wanted.end
            process = _Process(self._serve, sparing=True)
            try:
                for said, *parts in process.ask(TaskRanges((wanted._replace(first=at, end=until),))):
                    heard = heard or said in (_CHUNK, _HEARD)
                    if said == _ENDS:
                        (end,) = parts
                    elif said == _CHUNK:
                        chunk, rest = parts
                        yield chunk
                        at = rest[0].first if rest else until
                at = until
            except TooLarge as error:
                failures, proofs = (0, 0) if at > before else (failures + 1, proofs + (not heard))
                if proofs == PROOFS:
                    self._passed_over.note(
                        wanted._replace(first=at, end=self._end_of(wanted._replace(first=at, end=end)))
                    )
                    failures = proofs = 0
                elif failures == FAILURES_MAX:
                    raise ReadFailed(f"{wanted.topic}[{wanted.partition}] from offset {at}: {error}") from None
            finally:
                process.end()

    def _end_of(self, batch: OffsetRange) -> int:
        """Return the first offset behind a batch that cannot be read at which reading can continue; ``batch`` ends with its partition."""
        low, step = batch.first, 1
        while (high := min(low + step, batch.end)) < batch.end and not self._can_read(batch, high):
            low, step = high, step if high - batch.first < STEPS else 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._can_read(batch, middle) else (middle, high)
        return high

    def _can_read(self, batch: OffsetRange, offset: int) -> bool:
        task = TaskRanges((batch._replace(first=offset, end=offset + 1),))
        for _ in range(PROOFS):
            process = _Process(self._serve, sparing=True)
            try:
                for said, *_ in process.ask(task):
                    if said != _ENDS:
                        return True
                return True  # no record is there
            except TooLarge:
                continue
            finally:
                process.end()
        return False

    def _letter(self, span: OffsetRange) -> pa.RecordBatch:
        decoder = self._opened()
        decoder.pass_over(span)
        chunk = decoder.take()
        assert chunk is not None
        return chunk

    def _serve(self, connection: Connection, *, sparing: bool) -> None:
        """Read the tasks that come, in a separate process."""
        if self._decoding.worker_memory_bytes is not None:
            bound_worker(used_bytes() + self._decoding.worker_memory_bytes, lanes=1)

        def heard(end: int | None) -> None:
            connection.send((_HEARD,) if end is None else (_ENDS, end))

        reader = RangeReader(self._settings, self._opened, heard if sparing else None)
        while True:
            task = connection.recv()
            try:
                for chunk in reader.read(task):
                    connection.send((_CHUNK, chunk, reader.left))
            except (TooLarge, MemoryError) as error:
                connection.send((_LARGE, str(error) or "its memory does not suffice"))
            except Exception as error:  # noqa: BLE001 - the worker raises it
                connection.send((_RAISED, type(error), error.args, traceback.format_exc()))
            else:
                connection.send((_DONE,))


class _Process:
    """A fork of this worker that executes ``serve`` with one end of a connection."""

    def __init__(self, serve: Callable[..., None], *, sparing: bool) -> None:
        self._connection, theirs = Pipe()
        self._pid = os.fork()
        if not self._pid:
            _in_fork(serve, theirs, sparing=sparing)
        theirs.close()
        self._sparing = sparing
        self._status: int | None = None

    @property
    def is_alive(self) -> bool:
        return self._ended(os.WNOHANG) is None

    def ask(self, task: TaskRanges) -> Iterator[tuple[Any, ...]]:
        """Yield what the process says until it is done. Raises what it raises, `TooLarge`, `KafkaGone`, `ReadFailed`."""
        works = not self._sparing  # a sparing process has to reach Kafka before its end says anything of a batch
        try:
            self._connection.send(task)
            while (said := self._connection.recv())[0] in (_CHUNK, _HEARD, _ENDS):
                works = True
                yield said
        except (EOFError, OSError):
            self._raise_for_end(works=works)
        if said[0] == _LARGE:
            raise TooLarge(said[1])
        if said[0] == _RAISED:
            _, kind, arguments, trace = said
            error = kind.__new__(kind)
            error.args = arguments
            raise error from _InProcess(trace)

    def end(self) -> None:
        self._connection.close()
        if self._ended(os.WNOHANG) is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._ended(0)

    def _ended(self, options: int) -> int | None:
        """Return the process's exit code, negative for a signal, None if it has not ended."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, options)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def _raise_for_end(self, *, works: bool) -> NoReturn:
        code = self._ended(0)
        words = _last_words(self._pid)
        if code == ENDED:
            raise KafkaGone(words.removeprefix(KAFKA_GONE).strip()) from None
        if code in _OF_MEMORY and works:
            raise TooLarge(f"the process that reads ended with {code}") from None
        raise ReadFailed(f"the process that reads ended with {code}") from None


class _InProcess(Exception):
    """Where a process has raised, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _last_words(pid: int) -> str:
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    if folder is None:
        return ""
    try:
        with open(f"{folder}/{pid}", encoding="utf-8") as file:  # noqa: PTH123 - as it is written
            words = file.read()
        os.unlink(f"{folder}/{pid}")  # noqa: PTH108
    except OSError:
        return ""
    return words


def _in_fork(serve: Callable[..., None], connection: Connection, *, sparing: bool) -> NoReturn:
    """Execute ``serve`` until the other end is closed. The worker's files are not this process's: its end must be seen by Spark."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for name in os.listdir("/dev/fd"):  # noqa: PTH208
            if int(name) not in (1, 2, nothing, connection.fileno()):
                with suppress(OSError):
                    os.dup2(nothing, int(name))
        serve(connection, sparing=sparing)
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:  # noqa: BLE001 - Spark's log has it
        traceback.print_exc()
    finally:
        os._exit(1)


_FOLDER: Final = "passed-over"


def passed_over_folder(checkpoint: Path | str) -> str:
    """Return the folder of a checkpoint's notes: with the checkpoint, they are gone, too."""
    return str(Path(checkpoint).absolute() / _FOLDER)


class PassedOver:
    """The notes in a folder, which need not exist: a file's name has topic, partition and first offset, its content the offset behind."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def within(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return what is passed over of some ranges, by partition and offset."""
        noted = self._noted()
        return sorted(
            each
            for each in noted
            if any(each[:2] == of[:2] and each.first < of.end and each.end > of.first for of in ranges)
        )

    def note(self, span: OffsetRange) -> None:
        """Pass offsets over, unless another attempt has noted others from the same one on. Raises `OSError`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        first = f"{span.topic}@{span.partition}@{span.first}"
        made = self._folder / f".{token_hex(8)}"
        with made.open("w", encoding="ascii") as file:
            file.write(f"{span.end}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(made, self._folder / first)
        except FileExistsError:
            pass
        finally:
            made.unlink()

    def _noted(self) -> list[OffsetRange]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208 - one call
        except FileNotFoundError:
            return []
        return [self._of(name) for name in names if not name.startswith(".")]

    def _of(self, name: str) -> OffsetRange:
        topic, partition, first = name.rsplit("@", 2)
        end = int((self._folder / name).read_text(encoding="ascii"))
        return OffsetRange(topic, int(partition), int(first), end)
