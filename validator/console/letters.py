# SPDX-License-Identifier: Apache-2.0
"""Dead letters: their pages, and the form that puts one back, repaired or unchanged, as `validator dead-letters` does.

This is the one part of the console that writes: a record and its count, as one transaction, on the topic that the record came from.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal

from validator.console.context import ConsoleContext, Missing, Page, Query
from validator.console.limits import LIST_MAX, RAW_SHOWN_MAX, RECORD_SHOWN_MAX
from validator.console.rendering import hex_dump
from validator.errors import UserError
from validator.hexadecimal import from_hex
from validator.letters.dead_letters import (
    DeadLetterOffset,
    LetterReader,
    completed,
    decoded,
    encode_repaired,
    read_ledger,
    replay_json,
    summary,
)
from validator.letters.replayer import Declined, Replayer, judge, pointless
from validator.strict_json import JsonRefused, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from validator.config import Config
    from validator.letters.dead_letters import Ledger, StoredLetter


Form = Literal["json", "hex"]


@dataclass(frozen=True, slots=True)
class ShownLetter:
    """A dead letter with its history. ``record`` is what its form begins with, in ``form``; None if it is too long for a page."""

    summary: dict[str, Any]
    raw: bytes
    is_whole: bool
    history: list[dict[str, Any]]
    problem: str | None
    form: Form
    record: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a form: ``ok`` if the record would be, or was, put back."""

    ok: bool
    words: str


class Letters:
    """Reads a dead letter when somebody asks for it, and puts one back at a time. Methods raise `UserError`, also if Kafka is away."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._lock = Lock()

    def show(self, place: DeadLetterOffset) -> ShownLetter:
        """Return a dead letter with its replays."""
        with self._reader() as reader:
            letter = reader.get(place)
            ledger = self._ledger()
            history = [replay_json(replay) for replay in reader.history(letter, ledger)]
        record, problem = decoded(letter, letter.raw, self._config) if letter.whole is None else (None, None)
        form: Form = "hex" if record is None else "json"
        text = letter.raw.hex() if record is None else json.dumps(record, indent=2)
        shown = text if letter.whole is None and len(text) <= RECORD_SHOWN_MAX else None
        return ShownLetter(summary(letter, ledger), letter.raw, letter.whole is None, history, problem, form, shown)

    def raw(self, place: DeadLetterOffset) -> bytes:
        """Return the record's complete value."""
        with self._reader() as reader:
            return completed(reader.get(place), self._config.kafka).raw

    def check(
        self, place: DeadLetterOffset, form: Form, text: str | None, executed: Mapping[str, int | None]
    ) -> Answer:
        """Say whether a record would be put back, and whether a block could take it. ``text`` None stands for the record as it is."""
        with self._reader() as reader:
            letter = reader.get(place)
        repaired = self._repaired(letter, form, text)
        judged = judge(letter, self._ledger(), self._config, repaired=repaired, again=True, force=False)
        if isinstance(judged, Declined):
            return Answer(ok=False, words=judged.why)
        useless = pointless(letter, judged.raw, self._config, executed)
        if useless is not None:
            return Answer(ok=False, words=f"It decodes, but no block will take it: {useless}.")
        return Answer(ok=True, words=f"It decodes, its lane is configured, and attempt {judged.attempt} is left.")

    def put_back(self, place: DeadLetterOffset, form: Form, text: str | None, attempt: int) -> Answer:
        """Put a record back, if this would be its replay number ``attempt``: somebody else may have put it back since it was shown."""
        with self._lock:
            with self._reader() as reader:
                letter = reader.get(place)
            repaired = self._repaired(letter, form, text)
            with Replayer(self._config.kafka, self._config.topics.prefix) as replayer:
                ledger = self._ledger()  # only now, since then no other replay adds to it
                if ledger.next_attempt(letter) != attempt:
                    return Answer(
                        ok=False, words="It was put back meanwhile. Load its page again to see the new attempt."
                    )
                judged = judge(letter, ledger, self._config, repaired=repaired, again=True, force=False)
                if isinstance(judged, Declined):
                    return Answer(ok=False, words=judged.why)
                (entry,) = replayer.send([judged])
        record = entry.record
        changed = "with other bytes" if entry.repaired else "unchanged"
        place_text = f"{record.topic}[{record.partition}]@{record.offset}"
        return Answer(ok=True, words=f"Put back {changed} as {place_text}, attempt {entry.attempt}.")

    def _repaired(self, letter: StoredLetter, form: Form, text: str | None) -> bytes | None:
        """Return the bytes of a form, None if it leaves the record as it is."""
        if text is None:
            return None
        if form == "hex":
            try:
                return from_hex("".join(text.split()).lower())
            except ValueError:
                raise UserError("bytes: expected pairs of hex digits") from None
        try:
            data = text.encode()
            record, _ = decoded(letter, letter.raw, self._config) if letter.whole is None else (None, None)
            if read_json(data) == record:
                return None
            return encode_repaired(data, letter, self._config)
        except JsonRefused as error:
            raise UserError(f"record{error.place}: {error}") from error
        except UnicodeEncodeError:
            raise UserError("record: expected Unicode text") from None

    def _reader(self) -> LetterReader:
        return LetterReader(self._config.kafka, self._config.topics.prefix, self._say)

    def _ledger(self) -> Ledger:
        return read_ledger(self._config.kafka, self._config.topics.prefix)


DONE: Final = ("any", "no", "yes")


def letters_page(console: ConsoleContext, _path: dict[str, str], query: Query) -> Page:
    """Dead letters, newest first."""
    model = console.model
    done = query.get("done") if query.get("done") in DONE else "any"
    lane, reason = query.get("lane") or None, query.get("reason") or None
    found = [
        letter
        for letter in reversed(model.letters)
        if lane in (None, letter.lane)
        and reason in (None, letter.reason)
        and done in ("any", "yes" if letter.place in model.replayed else "no")
    ]
    return Page(
        "letters.html",
        {
            **console.common("letters", model.lanes.get(lane or "")),
            "rows": [(letter, model.replayed.get(letter.place)) for letter in found[:LIST_MAX]],
            "found": len(found),
            "kept": len(model.letters),
            "reasons": Counter(letter.reason for letter in model.letters).most_common(),
            "letter_lanes": sorted({letter.lane for letter in model.letters if letter.lane}),
            "wanted": {"lane": lane, "reason": reason, "done": done},
        },
    )


def letter_page(
    console: ConsoleContext,
    path: dict[str, str],
    _query: Query,
    *,
    answer: Answer | None = None,
    text: str | None = None,
    form: Form | None = None,
) -> Page:
    """One dead letter. After a form was sent, ``answer`` says what became of it, and ``text`` is what was in it."""
    place = DeadLetterOffset(int(path["partition"]), int(path["offset"]))
    try:
        shown = console.letters.show(place)
    except UserError as error:
        raise Missing(str(error)) from error
    return Page(
        "letter.html",
        {
            **console.common("letters", console.model.lanes.get(shown.summary["lane"])),
            "place": str(place),
            "shown": shown,
            "dump": hex_dump(shown.raw, RAW_SHOWN_MAX),
            "dumped": min(RAW_SHOWN_MAX, len(shown.raw)),
            "attempts_max": console.config.dead_letters.attempts_max,
            "form": form or shown.form,
            "text": shown.record if text is None else text,
            "answer": answer,
        },
    )


def executed_blocks(console: ConsoleContext) -> dict[str, Any]:
    """Return each lane's last executed block."""
    with console.model.lock:
        return {name: lane.executed_block for name, lane in console.model.lanes.items()}
