# SPDX-License-Identifier: Apache-2.0
"""The list of dead letters, and the page of one with the form that puts it back."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from validator.console.context import ConsoleContext, Missing, Page, Query
from validator.console.letters import Answer, Form
from validator.console.limits import LIST_MAX, RAW_SHOWN_MAX
from validator.console.shown import hex_dump
from validator.errors import UserError
from validator.letters.dead_letters import Place

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
            **console.common("letters"),
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
    if console.letters is None:
        raise Missing("There is no Kafka to read dead letters from.")
    place = Place(int(path["partition"]), int(path["offset"]))
    try:
        shown = console.letters.show(place)
    except UserError as error:
        raise Missing(str(error)) from error
    return Page(
        "letter.html",
        {
            **console.common("letters"),
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
