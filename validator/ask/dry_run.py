# SPDX-License-Identifier: Apache-2.0
"""Asks a lane's state what it would say to a record now: every violation, and the headroom before and after.

The state is a copy in this process. The record is judged alone, at the beginning of the next block: other records of that block, its
dispatch round and a session change are not known yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from validator.ask.plain_view import view_of
from validator.codec.codec import RecordUnreadable
from validator.codec.decode import decode_record
from validator.codec.dry_runs import DryRunAnswer, decode_request, encode_answer
from validator.codec.encode import RUNTIME_DIGEST_BYTES, Encoder
from validator.codec.json_form import encode_input, shown_json
from validator.core.errors import Violation
from validator.core.inputs import DeadLetter, Input, Source
from validator.core.limits import (
    DRY_RUN_ANSWER_BYTES_MAX,
    DRY_RUN_HEADROOM_MAX,
    DRY_RUN_REASON_CHARACTERS_MAX,
    DRY_RUN_VERDICTS_MAX,
)
from validator.core.outcomes import InputKind, Verdict
from validator.core.rules import Effects, in_force
from validator.errors import UserError
from validator.hexadecimal import to_hex
from validator.strict_json import JsonRefused, read_json
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.codec.codec import Codec, RecordChecks
    from validator.codec.dry_runs import DryRunRequest
    from validator.core.outcomes import ChannelHeadroom, ParaHeadroom
    from validator.core.rules import LaneRules
    from validator.core.types import BlockNumber, DownwardMessage, Hash, ParaId
    from validator.plugin.protocol_api import ProtocolDefinition, StateView


KINDS: Final = {
    "candidates": InputKind.CANDIDATE,
    "channel-requests": InputKind.REQUEST,
    "downward-messages": InputKind.DOWNWARD,
}
"""The topics whose records can be judged alone."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A lane's state after ``executed_block``, to be changed by dry runs; ``codec`` and ``records`` read and check its records.

    ``state_root`` is the root before any dry run.
    """

    lane: str
    executed_block: BlockNumber
    rules: LaneRules[Any]
    protocol: ProtocolDefinition
    codec: Codec
    records: RecordChecks
    state_root: Hash

    def with_rules(self, rules: LaneRules[Any]) -> Standing:
        """Return the same with rules that hold the same state, unchanged."""
        return replace(self, rules=rules)

    @property
    def view(self) -> StateView:
        return view_of(self.protocol)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a lane would say to a record in ``block``.

    ``violations`` are in the order of the checks: the lane would reject the record for the first. ``complete`` says whether they are all.
    ``before`` and ``after`` are the headroom of the para and of the channels that it sends over. ``after`` is empty if there are
    violations. ``changed`` says whether the state that was asked is another one now.
    """

    lane: str
    kind: InputKind
    executed_block: BlockNumber
    state_root: Hash
    block: BlockNumber
    para_id: ParaId
    violations: tuple[Violation, ...]
    complete: bool
    effects: Effects | None
    before: tuple[ParaHeadroom | ChannelHeadroom, ...]
    after: tuple[ParaHeadroom | ChannelHeadroom, ...]
    changed: bool

    @property
    def ok(self) -> bool:
        """Whether the record would be accepted."""
        return not self.violations


def ask(standing: Standing, topic: str, document: Any) -> Answer:
    """Judge a record, given as `validator submit` takes it; ``lane``, ``block`` and ``index`` may be left out.

    Changes the state of ``standing``. ``topic`` is one of `KINDS`. Raises `UserError`: the document is no record of the topic, it belongs
    to another lane, one of its values is out of range, or its block is executed.
    """
    item = _decoded(standing, topic, document)
    rules, kind = standing.rules, KINDS[topic]
    rules.begin_block(item.block, standing.executed_block)
    record, para = _record(rules, kind, item)
    before = _headroom(standing, para)
    violations, complete, effects = _judge(rules, kind, record)
    return Answer(
        standing.lane,
        kind,
        standing.executed_block,
        standing.state_root,
        item.block,
        para,
        tuple(violations),
        complete,
        effects,
        before,
        () if violations else _headroom(standing, para),
        not violations or _rules_change(rules, standing.executed_block, item.block),
    )


class Records(NamedTuple):
    """An answer as records of output topics: values of `verdicts`, one for each violation or a single one, and of `headroom`."""

    verdicts: tuple[bytes, ...]
    headroom: tuple[bytes, ...]
    headroom_after: tuple[bytes, ...]


def records_of(answer: Answer) -> Records:
    """Return an answer as records. Their runtime digest is 0: no runtime has executed them."""
    encoder = Encoder(answer.lane, bytes(RUNTIME_DIGEST_BYTES))
    verdicts = [Verdict(answer.kind, answer.block, 0, answer.para_id, violation) for violation in answer.violations]
    if not verdicts:
        effects = answer.effects or Effects(enacted=False)
        verdicts = [Verdict(answer.kind, answer.block, 0, answer.para_id, None, *effects)]
    before, after = (
        tuple(encoder.headroom(answer.executed_block, each).value for each in headroom)
        for headroom in (answer.before, answer.after)
    )
    return Records(tuple(map(encoder.verdict, verdicts)), before, after)


def document_of(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON; errors, messages and headroom have the form of the output topics."""
    return shown_records(records_of(answer), answer.executed_block, answer.state_root, complete=answer.complete)


def shown_records(
    records: Records, executed_block: BlockNumber, state_root: bytes | None, *, complete: bool
) -> dict[str, Any]:
    shown = [shown_json("verdicts", value) for value in records.verdicts]
    first = shown[0]
    before, after = ([shown_json("headroom", value) for value in headroom] for headroom in records[1:])
    return {
        "lane": first["lane"],
        "executed_block": executed_block,
        "state_root": None if state_root is None else to_hex(state_root),
        "block": first["block"],
        "kind": first["kind"],
        "para_id": first["para_id"],
        "ok": first["ok"],
        "errors": [each["error"] for each in shown if not each["ok"]],
        "complete": complete,
        "messages": first["messages"],
        "effective_session": first["effective_session"],
        "headroom": before,
        "headroom_after": after if first["ok"] else None,
    }


def _decoded(standing: Standing, topic: str, document: Any) -> Input:
    if not isinstance(document, dict):
        raise UserError(f"record: expected an object, found {document!r:.60}")
    place = {"lane": standing.lane, "block": standing.executed_block + 1, "index": 0}
    whole = {**place, **document}
    kind = INPUT_TOPICS[topic]
    value = encode_input(standing.codec, kind, whole, standing.protocol.name)
    if whole["lane"] != standing.lane:
        raise UserError(f"lane: expected {standing.lane!r}, found {whole['lane']!r}")
    decoded = decode_record(standing.codec, kind, value, Source(topic, 0, 0), None, {standing.lane: standing.records})
    if isinstance(decoded, DeadLetter):
        raise UserError(decoded.detail)
    item = decoded[1]
    if item.block <= standing.executed_block:
        raise UserError(
            f"block: expected a block after {standing.executed_block}, which is executed, found {item.block}"
        )
    return item


def _record(rules: LaneRules[Any], kind: InputKind, item: Input) -> tuple[Any, ParaId]:
    if kind is InputKind.REQUEST:
        request = rules.rule_set.request(item.fields)
        return request, request[0]  # the first field of every request is the para that sends it
    record = (
        rules.rule_set.candidate(item.fields) if kind is InputKind.CANDIDATE else DownwardMessage._make(item.fields)
    )
    return record, record.para_id


def _rules_change(rules: LaneRules[Any], executed: BlockNumber, block: BlockNumber) -> bool:
    """Return whether a block has other rules than the executed one: then its beginning may change the state."""
    epochs = rules.settings.rules
    return in_force(epochs, executed) != in_force(epochs, block)


def _judge(rules: LaneRules[Any], kind: InputKind, record: Any) -> tuple[list[Violation], bool, Effects | None]:
    """Return the violations, whether they are all, and the effects if there are none."""
    if kind is InputKind.CANDIDATE:
        violations = rules.violations(record)
        if violations:
            return violations, True, None
        return [], True, rules.enact_candidate(record)
    listed = rules.request_violations(record) if kind is InputKind.REQUEST else None
    if listed:
        return listed, True, None
    try:
        apply = rules.apply_request if kind is InputKind.REQUEST else rules.apply_downward
        return [], True, apply(record)
    except Violation as violation:
        return [violation], False, None


def _headroom(standing: Standing, para: ParaId) -> tuple[ParaHeadroom | ChannelHeadroom, ...]:
    rules = standing.rules
    channels = [each for each in standing.view.channels(rules.state) if each[0] == para]
    found = [rules.para_headroom(para), *map(rules.channel_headroom, channels)]
    return tuple(each for each in found if each is not None)


# --- requests on a topic (`codec.dry_runs`): each has an answer, which says why if the record was not judged ---


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
