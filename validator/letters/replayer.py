# SPDX-License-Identifier: Apache-2.0
"""Puts the records of dead letters back on the topics that they came from.

A record and its ledger entry are one transaction (`validator.kafka.transaction`), so that attempts are counted whatever fails. All replays
share one transactional.id: a new replay fences off the previous one and only then reads the ledger, so no two replays count the same
attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException

from validator.core.inputs import Source
from validator.errors import UserError
from validator.kafka.refusals import why
from validator.kafka.retry import missing_topics, user_error
from validator.kafka.settings import OF_REPLAYS, producer_config
from validator.kafka.topics import hidden_topics
from validator.kafka.transaction import Fenced, FencedWriter, WriteFailed
from validator.letters.dead_letters import LEDGER, DeadLetterOffset, Ledger, Replay, StoredLetter, completed, decoded
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from validator.config import Config
    from validator.kafka.settings import KafkaTable
    from validator.kafka.transaction import Sent

CALL_S_MAX: Final = 30.0
"""Seconds in which Kafka must have taken a transaction's records, and in which it must commit."""
SLICE_S: Final = 0.2
"""Seconds of one call to librdkafka: Ctrl-C has no effect before it returns."""
ABORT_S_MAX: Final = 5.0
"""Seconds to abort a transaction; one that is left open the next replay ends, or the broker after a minute."""

TRANSACTION_RECORDS_MAX: Final = 500
TRANSACTION_BYTES_MAX: Final = 16 << 20
"""Records, and their bytes, in one transaction."""


class Task(NamedTuple):
    """A record to put back; ``topic`` is the full name."""

    letter: DeadLetterOffset
    topic: str
    key: bytes | None
    raw: bytes
    attempt: int
    repaired: bool


class Declined(NamedTuple):
    """A dead letter that is not put back, with the reason in words: skipped if it need not be, refused if it must not be."""

    letter: DeadLetterOffset
    outcome: Literal["skipped", "refused"]
    why: str


def judge(
    letter: StoredLetter, ledger: Ledger, config: Config, *, repaired: bytes | None, again: bool, force: bool
) -> Task | Declined:
    """Decide whether a dead letter's record is put back, with the bytes of ``repaired`` if given.

    If the letter has only the ends of its record, the record is fetched first, unless other bytes are sent. Checks, in order: it was not
    put back before (unless ``again``); attempts are left; it came from an input topic; the record by itself would not be dead on arrival
    (unless ``force``).
    """
    if repaired is None:
        try:
            letter = completed(letter, config.kafka)
        except UserError as error:
            return Declined(letter.place, "refused", str(error))
    replays, attempt = ledger.replays_of(letter.place), ledger.next_attempt(letter)
    raw = letter.raw if repaired is None else repaired
    limit = config.dead_letters.attempts_max
    if replays and not again:
        last = replays[-1]
        where = f"{last.record.topic}[{last.record.partition}]@{last.record.offset}"
        why = f"already put back as {where} (attempt {last.attempt}); --again puts it back once more"
        return Declined(letter.place, "skipped", why)
    if attempt > limit:
        why = f"already put back {attempt - 1} times, and [dead_letters] attempts_max is {limit}"
        return Declined(letter.place, "refused", why)
    if letter.source.topic.removeprefix(config.topics.prefix) not in INPUT_TOPICS:
        known = ", ".join(config.topics.prefix + name for name in INPUT_TOPICS)
        return Declined(letter.place, "refused", f"it came from {letter.source.topic}, expected one of {known}")
    record, problem = decoded(letter, raw, config)
    if problem is not None and not force:
        return Declined(letter.place, "refused", f"it would be dead on arrival: {problem}")
    lane = letter.lane if record is None else record["lane"]
    return Task(letter.place, letter.source.topic, lane.encode() or None, raw, attempt, raw != letter.raw)


def pointless(
    letter: StoredLetter, raw: bytes, config: Config, executed_blocks: Mapping[str, int | None]
) -> str | None:
    """Say why no block will take ``raw`` even if it is put back: its lane has executed the block. None if a block may take it.

    ``executed_blocks`` is by lane, None if the lane has executed nothing. A record of an executed block becomes a duplicate, or a dead
    letter again.
    """
    record, problem = decoded(letter, raw, config)
    executed = None if record is None or problem is not None else executed_blocks.get(record["lane"])
    if record is None or executed is None or record["block"] > executed:
        return None
    return f"it belongs to block {record['block']}, and lane {record['lane']} has already executed block {executed}"


class Replayer:
    """Puts records back. Creating a replayer ends any other replay with the same prefix; on exit it aborts an open transaction.

    Every method raises `UserError` if Kafka does not answer or refuses, or if another replay has started meanwhile.
    """

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        config = producer_config(kafka, OF_REPLAYS, transactional_id=f"{prefix}dead-letter-replay")
        self._kafka, self._transactional_id = kafka, config["transactional.id"]
        self._bootstrap, self._prefix = config["bootstrap.servers"], prefix
        try:
            self._writer = FencedWriter(config, bound_s=CALL_S_MAX, slice_s=SLICE_S)
            missing = missing_topics(self._writer.producer, [prefix + name for name in (*INPUT_TOPICS, LEDGER)])
            for name, error in hidden_topics(kafka, missing).items():
                raise self._user_error(error, topic=name)
            if missing:
                raise UserError(
                    f"topics are missing at {self._bootstrap} ({', '.join(missing)}): check [topics] prefix, or create them with "
                    "`validator topics create`"
                )
            self._writer.open()
        except KafkaException as exception:
            raise self._user_error(exception.args[0]) from exception
        except WriteFailed as failed:
            raise self._failed(failed) from failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._writer.abort(ABORT_S_MAX)

    def send(self, tasks: Sequence[Task]) -> list[Replay]:
        """Put records back and count the attempts, all or none; return the ledger entries."""
        placed: dict[int, tuple[int, int]] = {}
        try:
            self._writer.send(map(_record, tasks), placed)
            left = self._writer.flush()
            replays = [
                Replay(task.letter, task.attempt, Source(task.topic, *placed[at]), task.repaired)
                for at, task in enumerate(tasks)
                if placed.get(at, (0, -1))[1] >= 0
            ]
            if left or len(replays) < len(tasks):
                raise UserError(
                    f"nothing was put back: {self._bootstrap} did not acknowledge the records within {CALL_S_MAX:.0f} s"
                )
            entries = [replay.encode() for replay in replays]
            self._writer.commit((self._prefix + LEDGER, key, value, []) for _, key, value, _ in entries)
        except WriteFailed as failed:
            raise self._failed(failed, tasks) from failed
        return replays

    def _failed(self, failed: WriteFailed, tasks: Sequence[Task] = ()) -> UserError:
        if isinstance(failed, Fenced):
            return UserError("another `validator dead-letters replay` was started and has ended this one")
        if failed.at is not None:
            topic = tasks[failed.at].topic
            reason = why(failed.error, self._kafka, f"Write on topic {topic}")
            return UserError(f"nothing was put back: dead letter {tasks[failed.at].letter}: {topic}: {reason}")
        if failed.is_uncertain:
            return UserError(
                f"{self._bootstrap} did not confirm the last records ({failed.error.str()}): check with `validator dead-letters list`"
            )
        return self._user_error(failed.error)

    def _user_error(self, error: KafkaError, *, topic: str | None = None) -> UserError:
        right = f"Write on topic {topic or self._prefix + LEDGER}"
        text = why(error, self._kafka, right, transactional_id=self._transactional_id)
        return user_error(error, f"nothing was put back: {self._bootstrap}: {text}")


def _record(task: Task) -> Sent:
    headers = [("dead-letter", str(task.letter).encode()), ("attempt", str(task.attempt).encode())]
    return task.topic, task.key, task.raw, headers
