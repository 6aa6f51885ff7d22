# SPDX-License-Identifier: Apache-2.0
"""What people read has words for what is missing and for what has no limit, and a full channel is full."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tidy.tree import ROOT
from validator.ask.plain_view import _sections, _whole
from validator.cli.rows import ROWS, why
from validator.codec.json_form import without_never
from validator.core.limits import U32_MAX
from validator.protocols.router.configuration import PRESETS
from validator.protocols.router.state import HrmpChannel, RouterState
from validator.protocols.router.state_view import channel_sections, para_sections

SENTINELS = ("None", "null", str(U32_MAX), f"{U32_MAX:,}")


def least(kind: Any) -> Any:
    """Return the JSON value of a schema's type with nothing in it that may be left out."""
    if isinstance(kind, list):
        return None if "null" in kind else least(kind[0])
    if isinstance(kind, str):
        return {"string": "a", "boolean": True, "long": 7, "bytes": "00"}.get(kind, 7)
    match kind["type"]:
        case "record":
            return {field["name"]: least(field["type"]) for field in kind["fields"]}
        case "array":
            return []
        case "enum":
            return kind["symbols"][0]
        case "fixed":
            return "00" * kind["size"]
    return least(kind["type"])


def records() -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted((ROOT / "avro").glob("*.avsc")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        if schema.get("topic") in ROWS:
            found.append((schema["topic"], least(schema)))
    return found


def cells(topic: str, record: dict[str, Any]) -> str:
    return "  ".join(ROWS[topic](record))


def test_record_with_nothing_optional_has_no_sentinel_in_its_row() -> None:
    seen = set()
    for topic, record in records():
        if topic == "verdicts":
            record |= {"ok": True, "kind": "candidate"}
        text = cells(topic, record)
        assert not any(sentinel in text for sentinel in SENTINELS), (topic, text)
        seen.add(topic)
    assert seen == set(ROWS)


def test_headroom_without_a_limit_says_so() -> None:
    found = dict.fromkeys(
        ("upward_count_left", "upward_bytes_left", "places_left", "bytes_left", "message_size_max"), U32_MAX
    )
    texts = [cells(topic, record | {"valid": True, "open": True} | {k: v for k, v in found.items() if k in record})
             for topic, record in records() if topic == "headroom"]  # fmt: skip
    assert len(texts) == 2
    assert all("any number of bytes" in text for text in texts)
    assert not any(sentinel in text for text in texts for sentinel in SENTINELS)


def test_full_channel_is_full_in_its_headroom() -> None:
    (record,) = (record for topic, record in records() if "places_left" in record)
    assert "full: 0 places, 7 bytes" in cells("headroom", record | {"open": True, "places_left": 0})
    assert "full" not in cells("headroom", record | {"open": True})


def test_request_that_never_expires_names_no_session() -> None:
    (record,) = (record for topic, record in records() if topic == "verdicts")
    record |= {"ok": True, "kind": "request"}
    assert "expires at session 9" in cells("verdicts", record | {"expires_session": 9})
    assert "expires" not in cells("verdicts", without_never(record | {"expires_session": U32_MAX + 4}))
    assert "expires at" in cells("verdicts", without_never(record | {"expires_session": U32_MAX - 1}))


def test_error_has_words_for_its_values() -> None:
    error = {
        "kind": "A/B",
        "expected": None,
        "channel": {"sender": 1, "recipient": None},
        "at": [1, None],
        "paid": False,
    }
    assert why(error) == "A/B  expected none, channel 1→none, at [1, none], paid no"


def channel(used: int, places: int = 10, size: int = 10) -> HrmpChannel:
    return HrmpChannel(
        sender_deposit=0, recipient_deposit=0, limit_used_places=places, limit_used_bytes=size, limit_message_size=U32_MAX,
        used_places=used, used_bytes=used,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("used", "places", "size", "word"),
    [
        (0, 10, 10, ""),
        (7, 10, 10, ""),
        (8, 10, 10, "nearly full"),
        (10, 10, 20, "full"),
        (10, 20, 10, "full"),
        (9, U32_MAX, 10, "nearly full"),
    ],
)
def test_channel_is_full_when_nothing_fits(used: int, places: int, size: int, word: str) -> None:
    state = RouterState(PRESETS["minimal"])
    state.hrmp_channels[1, 2] = channel(used, places, size)
    state.hrmp_egress_channels_index[1] = [2]
    (shown,) = (each for each in para_sections(state, 1, None) if each.title.startswith("outbound"))
    assert shown.rows[0][-1] == word
    left = dict(channel_sections(state, (1, 2))[0].facts)["left"]
    assert left.split(", ")[2:] == ([word] if word else [])
    texts = [*shown.rows[0], *(value for each in channel_sections(state, (1, 2)) for _, value in each.facts)]
    assert not any(sentinel in text for text in texts for sentinel in SENTINELS)


def test_view_of_a_protocol_without_one_has_words() -> None:
    whole = _whole(3, {"next": None})
    assert ("next", "none") in whole[0].facts
    (section,) = _sections({"watermarks": {"1": None}}) or []
    assert list(section.rows) == [("1", "none")]
