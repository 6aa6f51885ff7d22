# SPDX-License-Identifier: Apache-2.0
"""The fold of committed records into what pages show. No I/O: records come in, in any order of topics, and pages ask.

A `Model` is shared by the thread that reads and those that answer; each holds ``lock`` while it uses the model.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import RLock
from typing import TYPE_CHECKING, Final

from validator.codec.json_form import shown_json
from validator.console.kept import Json, KeptLetter
from validator.console.lane import LaneModel
from validator.console.limits import LANES_MAX, LETTERS_MAX, REPLAYS_MAX, TEXT_MAX, VERDICTS_MAX
from validator.errors import UserError
from validator.kafka.newest import Newest
from validator.topics import DEAD_LETTER_REPLAYS, DEAD_LETTERS, LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from validator.codec.codec import Codec
    from validator.kafka.reader import TopicRecord

VERDICTS: Final = "verdicts"
TAILED: Final = ("receipts", "dispatches", "channel-events")
"""Topics of small records, of which the newest are read."""
LARGE: Final = ("blocks", DEAD_LETTERS)
"""Topics whose records may be large."""
COMPACTED: Final = ("headroom", LANES, DEAD_LETTER_REPLAYS)
"""Topics that keep the last record of each key, and are read from their beginning."""


class Model:
    """Everything that the pages show. ``version`` grows with every record that was taken."""

    def __init__(self, lanes: Iterable[str] = (), codec: Codec | None = None) -> None:
        self.lock = RLock()
        self.version = 0
        self.lanes: OrderedDict[str, LaneModel] = OrderedDict()
        self.letters: deque[KeptLetter] = deque(maxlen=LETTERS_MAX)
        self.replayed: OrderedDict[str, Json] = OrderedDict()
        """By the place of a dead letter, the last ledger entry."""
        self.strangers = 0
        """Records that are none of their topic, or belong to a lane beyond `LANES_MAX`."""
        self._codec = codec
        self._newest = Newest()
        self._takers: dict[str, Callable[[LaneModel, Json, TopicRecord], None]] = {
            VERDICTS: lambda lane, json, record: lane.take_verdict(json, record.value, record.timestamp_ms),
            "receipts": lambda lane, json, record: lane.take_receipt(json, record.timestamp_ms),
            "blocks": lambda lane, json, record: lane.take_block(json["block"], record.timestamp_ms),
            LANES: lambda lane, json, record: lane.take_status(json, record.timestamp_ms),
            "headroom": lambda lane, json, _: lane.take_headroom(json),
            "channel-events": lambda lane, json, _: lane.take_event(json),
            "dispatches": lambda lane, json, _: lane.take_dispatch(json),
        }
        for lane in sorted(lanes)[:LANES_MAX]:
            self.lanes[lane] = LaneModel(lane)

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Take records as they were read. One that cannot be decoded is counted; pages show the others."""
        decoded = [(record, self._decoded(record)) for record in records]
        with self.lock:
            for record, json in decoded:
                self._take(record, json)
                self.version += 1

    def not_put_back(self) -> list[KeptLetter]:
        """Return the dead letters that were not put back, newest first."""
        return [letter for letter in reversed(self.letters) if letter.place not in self.replayed]

    @property
    def verdicts(self) -> int:
        """How many verdicts are kept."""
        return sum(len(lane.verdicts) for lane in self.lanes.values())

    def _decoded(self, record: TopicRecord) -> Json | None:
        try:
            return shown_json(record.topic, record.value, self._codec)
        except UserError:
            return None

    def _take(self, record: TopicRecord, json: Json | None) -> None:
        if json is None:
            self.strangers += record.topic != "blocks"  # an order to a lane is no block
        elif record.topic == DEAD_LETTERS:
            self.letters.append(_letter(record, json))
        elif record.topic == DEAD_LETTER_REPLAYS:
            place = f"{json['letter_partition']}/{json['letter_offset']}"
            if json["attempt"] < self.replayed.get(place, json)["attempt"]:
                return  # each attempt has its own key, hence its own partition
            self.replayed[place] = {**json, "timestamp_ms": record.timestamp_ms}
            self.replayed.move_to_end(place)
            if len(self.replayed) > REPLAYS_MAX:
                self.replayed.popitem(last=False)
        elif (lane := self._lane(json["lane"], new=record.topic != "blocks")) is not None:
            if record.topic == LANES and not self._newest.takes(record):
                return
            self._takers[record.topic](lane, json, record)
            if record.topic == VERDICTS and self.verdicts > VERDICTS_MAX:
                max(self.lanes.values(), key=lambda each: len(each.verdicts)).forget_verdict()
        else:
            self.strangers += 1

    def _lane(self, name: str, *, new: bool) -> LaneModel | None:
        """Return a lane; ``new`` ones are made for what the job has written, not for inputs, whose lane anybody can choose."""
        found = self.lanes.get(name)
        if found is None and new and len(self.lanes) < LANES_MAX:
            found = self.lanes[name] = LaneModel(name)
        return found


def _letter(record: TopicRecord, json: Json) -> KeptLetter:
    size = (len(json["raw"]) - 2) // 2 if json["whole_bytes"] is None else json["whole_bytes"]
    return KeptLetter(
        record.partition,
        record.offset,
        record.timestamp_ms,
        json["lane"][:TEXT_MAX],
        json["reason"][:TEXT_MAX],
        json["detail"][:TEXT_MAX],
        json["topic"][:TEXT_MAX],
        json["block"],
        json["index"],
        size,
    )
