# SPDX-License-Identifier: Apache-2.0
"""Where a reader continues: the client's positions as one url-safe word.

A cursor is base64url, without padding, of the JSON array ``[version, topic, topic id, direction, offsets]``; ``offsets`` has one number for
each partition, null for a partition that was not there. Nobody but this module reads it, so the version may change.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Final, Literal, NamedTuple, TypeAlias

from validator.client.streams import Begin, PositionsForeign
from validator.errors import UserError
from validator.serve.limits import CURSOR_MAX
from validator.strict_json import JsonRefused, read_json

VERSION: Final = 1
OFFSET_MAX: Final = 2**63 - 1

Order: TypeAlias = Literal["oldest", "newest"]
"""Which records come first."""


class BadCursor(UserError):
    """A text is no cursor."""


class Cursor(NamedTuple):
    """A place in a topic. From the ``oldest`` on, offsets come next; from the ``newest`` on, those before them do."""

    topic: str
    topic_id: str | None
    order: Order
    offsets: dict[int, int]

    def __str__(self) -> str:
        offsets = [self.offsets.get(each) for each in range(max(self.offsets, default=-1) + 1)]
        fields = [VERSION, self.topic, self.topic_id, self.order[0], offsets]
        return urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).rstrip(b"=").decode()

    @property
    def begin(self) -> Begin:
        """Where the client's reader begins."""
        return Begin(self.offsets, self.topic_id)


def cursor_of(text: str, topic: str) -> Cursor:
    """Read a cursor. Raises `BadCursor`, and `PositionsForeign` if it belongs to another topic."""
    expected = "cursor: expected one of an earlier answer, unchanged"
    if len(text) > CURSOR_MAX:
        raise BadCursor(f"{expected}, found {len(text):,} characters: at most {CURSOR_MAX:,} are read")
    try:
        if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
            raise NotBase64
        version, of, topic_id, order, offsets = read_json(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        is_cursor = (
            version == VERSION
            and isinstance(of, str)
            and isinstance(topic_id, str | None)
            and order in ("o", "n")
            and len(offsets) > 0
            and all(each is None or (type(each) is int and 0 <= each <= OFFSET_MAX) for each in offsets)
            and any(each is not None for each in offsets)
        )
    except (NotBase64, JsonRefused, TypeError, ValueError):
        is_cursor = False
    if not is_cursor:
        raise BadCursor(f"{expected}, found something else")
    if of != topic:
        raise PositionsForeign(f"cursor: expected one of {topic}, found one of another list")
    known = {partition: offset for partition, offset in enumerate(offsets) if offset is not None}
    return Cursor(topic, topic_id, "oldest" if order == "o" else "newest", known)
