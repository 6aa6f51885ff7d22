# SPDX-License-Identifier: Apache-2.0
"""The sentences of rejections: each belongs to an error of the Router, uses only its fields, and reads well."""

from __future__ import annotations

import re
from typing import Any

import pytest

from validator.console.verdicts import entries_of, rule_pages, sentences, why

FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    entry.name: {name: (kind,) for form in entry.fields for name, kind in form}
    for page in rule_pages()
    if page.protocol in ("router", "lane")
    for entry in page.entries
    if entry.sort == "error"
}


def sample(kind: str) -> dict[str, Any]:
    """Return an error with all its fields."""
    values = {
        name: {"sender": 2000, "recipient": 2004} if name == "channel_id" else 3
        for name in FIELDS[kind]
        if name != "kind"
    }
    return {"kind": kind, **values}


@pytest.mark.parametrize("kind", sorted(sentences()))
def test_sentence_fits_its_error(kind: str) -> None:
    assert kind in FIELDS, "neither the Router nor the lane has an error of this name"
    words = sentences()[kind]
    reason = why({"para_id": 2000, "error": sample(kind)})
    assert not reason.text.startswith("Rejected by the rule"), "a field is missing"
    assert "{" not in reason.text + reason.then
    assert reason.text.endswith(".")
    assert reason.then.endswith(".")
    assert set(words.numbers) <= {*FIELDS[kind]}
    assert not re.search(r"\b1 \w+ (messages|channels|requests)\b", reason.text)


def test_counts_agree_with_their_nouns() -> None:
    error = {"kind": "OutboundHrmp/MoreMessagesThanPermitted", "sent": 1, "permitted": 0}
    assert why({"para_id": 1, "error": error}).text.startswith("The candidate carries 1 horizontal message;")
    error = {"kind": "UpwardMessages/MessageSize", "idx": 0, "msg_size": 70_000, "max_size": 65_531}
    reason = why({"para_id": 1, "error": error})
    assert reason.text == "Upward message 0 of the candidate has 68.4 KiB; the limit is 64.0 KiB."
    assert (reason.observed, reason.limit, reason.numbers) == (70_000, 65_531, ("68.4 KiB", "64.0 KiB"))


@pytest.mark.parametrize(
    ("observed", "limit", "numbers"),
    [
        (102_401, 102_400, ("102,401 B", "102,400 B")),  # both would be 100.0 KiB
        (102_400, 102_400, ("100.0 KiB", "100.0 KiB")),
        (153_600, 102_400, ("150.0 KiB", "100.0 KiB")),
        (102_400, 1_024, ("102,400 B", "1,024 B")),  # one unit
        (12 << 20, 102_400, ("12,582,912 B", "102,400 B")),
        (1_025, 1_024, ("1,025 B", "1,024 B")),
        (102_400, 0, ("102,400 B", "0 B")),
    ],
)
def test_sizes_can_be_compared(observed: int, limit: int, numbers: tuple[str, str]) -> None:
    error = {"kind": "OpenHrmpChannelMessageSizeExceedsLimit", "max_message_size": observed, "limit": limit}
    reason = why({"para_id": 1, "error": error})
    expected = "The channel asked for would carry messages of {}; the relay chain allows {}.".format(*numbers)
    assert (reason.text, reason.numbers) == (expected, numbers)


def test_counts_have_separators() -> None:
    error = {"kind": "UpwardMessages/CapacityExceeded", "count": 1_201, "limit": 1_200}
    reason = why({"para_id": 1, "error": error})
    assert reason.text == "The upward queue of para 1 would hold 1,201 messages; it takes 1,200."
    assert reason.numbers == ("1,201", "1,200")


def test_unknown_errors_show_their_fields() -> None:
    reason = why(
        {"para_id": 1, "error": {"kind": "Mine/New", "at": [5, 6], "channel_id": {"sender": 1, "recipient": 2}}}
    )
    assert reason.text == "Rejected by the rule Mine/New: at 5, 6, channel_id 1 → 2."
    missing = why({"para_id": 1, "error": {"kind": "OutboundHrmp/CapacityExceeded"}})
    assert missing.text == "Rejected by the rule OutboundHrmp/CapacityExceeded."


def test_every_error_of_the_router_has_its_page() -> None:
    for kind in FIELDS:
        assert entries_of(kind, "router")[0].protocol in ("router", "lane")
