# SPDX-License-Identifier: Apache-2.0
"""Answers requests for dry runs (`codec.dry_runs`): every request has an answer, which says why if the record was not judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from validator.ask.dry_run import KINDS, Standing, ask, records_of
from validator.codec.codec import RecordUnreadable
from validator.codec.dry_runs import DryRunAnswer, decode_request, encode_answer
from validator.core.limits import (
    DRY_RUN_ANSWER_BYTES_MAX,
    DRY_RUN_HEADROOM_MAX,
    DRY_RUN_REASON_CHARACTERS_MAX,
    DRY_RUN_VERDICTS_MAX,
)
from validator.errors import UserError
from validator.strict_json import JsonRefused, read_json

if TYPE_CHECKING:
    from validator.codec.dry_runs import DryRunRequest


class Asked(NamedTuple):
    """A lane's state that a request may change, and the batch of the job that has committed it, None outside of a job."""

    standing: Standing
    batch: int | None


class Standings(Protocol):
    """The last committed states of lanes."""

    def of(self, lane: str) -> Asked:
        """Return a lane's state as no request has changed it. Raises `UserError` if there is none."""

    def changed(self, lane: str) -> None:
        """Note that a request has changed the state that `of` returned last."""


class Answerer:
    """Answers requests one at a time. Whatever a request holds, it changes neither a later answer nor the job."""

    def __init__(self, standings: Standings) -> None:
        self._standings = standings

    def answer(self, value: bytes, partition: int, offset: int, *, waiting: int = 0, waiting_max: int = 0) -> bytes:
        """Return the answer to a request as a Kafka value.

        ``waiting`` requests stand behind it; with more than ``waiting_max`` it is refused unread, so that others are answered in time.
        """
        try:
            request = decode_request(value)
        except RecordUnreadable as error:
            return encode_answer(DryRunAnswer(b"", partition, offset, "", refused=_shortened(str(error))))
        refused = DryRunAnswer(request.correlation, partition, offset, request.lane)
        if waiting > waiting_max:
            reason = (
                f"too many requests: {waiting} wait behind this one, expected at most {waiting_max}; ask again later"
            )
            return encode_answer(refused._replace(refused=reason))
        try:
            encoded = encode_answer(self._judged(request, refused))
        except UserError as error:
            return encode_answer(refused._replace(refused=_shortened(str(error))))
        except Exception as error:  # noqa: BLE001 - a bug that a request meets must not keep others from being answered
            reason = f"a bug: {type(error).__name__}: {error}"
            return encode_answer(refused._replace(refused=_shortened(reason)))
        if len(encoded) > DRY_RUN_ANSWER_BYTES_MAX:
            reason = f"the answer has {len(encoded)} bytes, expected at most {DRY_RUN_ANSWER_BYTES_MAX}"
            return encode_answer(refused._replace(refused=reason))
        return encoded

    def _judged(self, request: DryRunRequest, empty: DryRunAnswer) -> DryRunAnswer:
        if request.kind not in KINDS:
            raise UserError(f"kind: expected {', '.join(KINDS)}, found {request.kind!r:.60}")
        try:
            document = read_json(request.record.encode())
        except JsonRefused as error:
            place = error.place.removeprefix(".")
            raise UserError(f"record{' at ' + place if place else ''}: {error}") from None
        asked = self._standings.of(request.lane)
        answer = None
        try:
            answer = ask(asked.standing, request.kind, document)
        finally:
            if answer is None or answer.changed:  # an exception may have come at any place
                self._standings.changed(request.lane)
        records = records_of(answer)
        verdicts = records.verdicts[:DRY_RUN_VERDICTS_MAX]
        return empty._replace(
            batch=asked.batch,
            executed_block=answer.executed_block,
            state_root=answer.state_root,
            verdicts=verdicts,
            complete=answer.complete and len(verdicts) == len(records.verdicts),
            headroom=records.headroom[:DRY_RUN_HEADROOM_MAX],
            headroom_after=records.headroom_after[:DRY_RUN_HEADROOM_MAX],
        )


def _shortened(reason: str) -> str:
    line = " ".join(reason.split()).encode("utf-8", "replace").decode()
    return line if len(line) <= DRY_RUN_REASON_CHARACTERS_MAX else f"{line[: DRY_RUN_REASON_CHARACTERS_MAX - 3]}..."
