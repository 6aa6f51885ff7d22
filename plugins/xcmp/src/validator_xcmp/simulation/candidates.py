# SPDX-License-Identifier: Apache-2.0
"""Candidates of a simulated chain: good ones, and for each error some that break its rule, if the state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from validator.simulate import Draws, Json, LeastMet, is_sleepy
from validator_xcmp.simulation.model import NaiveXcmp
from validator_xcmp.simulation.requests import NOBODY_FIRST

EVERYBODY: Final = 2**32 - 1
"""As a watermark's para: it covers everything sent in the block."""
ROOT_BYTES: Final = 32
_WATERMARK_KINDS: Final = ("Watermark/AheadRelayParent", "Watermark/Regressed")


class CandidateTraffic:
    """Makes candidates. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveXcmp, draws: Draws, horizontal_per_100: int) -> None:
        self.model = model
        self.draws = draws
        self.horizontal_per_100 = horizontal_per_100
        self.ways: dict[str, Callable[[Json], bool]] = {
            "Candidate/UnknownPara": self._unknown_para,
            "Bitfield/TooLong": self._too_long,
            "Bitfield/ChannelCondemned": self._channel_condemned,
            "Bitfield/MissingMessageRoot": self._missing_message_root,
            "Watermark/AheadRelayParent": self._ahead_relay_parent,
            "Watermark/Regressed": self._regressed,
            "Watermark/NotAdvanced": self._not_advanced,
        }
        """By error: changes a good candidate so that it provokes the error. Returns whether it succeeded."""
        self.errors = LeastMet(draws, self.ways)

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate record, the model's verdict, and the errors that it targets, or None if the para has no candidate."""
        candidate = self.good(para)
        kinds: tuple[str, ...] = ()
        if candidate is not None and breaks:
            kinds = self._break(candidate)
        if candidate is None:
            return None
        result = self.model.candidate(candidate)
        self.errors.note(result)
        return self._record(candidate), result, kinds

    def good(self, para: int) -> Json | None:
        """Return a candidate that will be accepted, or None if the para has no block left to build on."""
        draws = self.draws
        last = self.model.watermarks.get(para)
        parent = self.model.now - 1
        if draws.percent(15) and parent > (last or [0])[0]:
            parent -= 1
        if last is not None and last[0] > parent:
            return None
        bits = self._bits(para)
        return {
            "para_id": para,
            "relay_parent_number": parent,
            "watermark": self._watermark(para, parent),
            "bitfield": bits,
            "message_root": draws.hex(ROOT_BYTES) if "1" in bits or draws.percent(5) else None,
        }

    def _record(self, candidate: Json) -> Json:
        block, sender = candidate["watermark"]
        parent = candidate["relay_parent_number"]
        stated = None if parent == self.model.now - 1 and self.draws.percent(70) else parent
        return {**candidate, "relay_parent_number": stated, "watermark": {"block": block, "para": sender}}

    # --- queries on the model ---

    def _bits(self, para: int) -> str:
        """Return a bitfield that sends over some channels, none of them condemned. Trailing zeros may be left out."""
        row = self.model.row(para)
        open_columns = [index for index, channel in enumerate(row) if not self._is_condemned(channel)]
        count = min(self.draws.count(self.horizontal_per_100), len(open_columns))
        chosen = self.draws.sample(open_columns, count)
        bits = "".join("1" if index in chosen else "0" for index in range(len(row)))
        return bits.rstrip("0") if self.draws.percent(50) else bits

    def _is_condemned(self, channel: Json) -> bool:
        return self.model.is_condemned(channel["sender"], channel["recipient"])

    def _unread(self, para: int, parent: int) -> list[list[int]]:
        return [place for place in self.model.unread(para) if place[0] <= parent]

    def _watermark(self, para: int, parent: int) -> list[int]:
        """Return a valid next watermark. It stays only if nothing is unread."""
        draws, last, unread = self.draws, self.model.watermarks.get(para), self._unread(para, parent)
        if unread and (draws.percent(60) or is_sleepy(para)):
            return list(unread[0] if is_sleepy(para) else draws.choice(unread))
        if last is not None and not unread and draws.percent(30):
            return list(last)
        return [parent, EVERYBODY]

    # --- one way to break each rule ---

    def _break(self, candidate: Json) -> tuple[str, ...]:
        """Change a candidate so that it will be rejected. Return the errors that it targets; one in four targets two."""
        for kind in self.errors.order():
            if self.ways[kind](candidate):
                other = self.draws.choice(_WATERMARK_KINDS)
                twice = not kind.startswith("Watermark/") and self.draws.percent(25) and self.ways[other](candidate)
                return (kind, other) if twice else (kind,)
        return ()

    def _unknown_para(self, candidate: Json) -> bool:
        candidate["para_id"] = NOBODY_FIRST + self.draws.randrange(10)
        return True

    def _too_long(self, candidate: Json) -> bool:
        bits = candidate["bitfield"].ljust(len(self.model.row(candidate["para_id"])), "0")
        candidate["bitfield"] = bits + self.draws.choice(("0", "0", "1", "01"))
        return True

    def _channel_condemned(self, candidate: Json) -> bool:
        row = self.model.row(candidate["para_id"])
        column = self.draws.one_of([index for index, channel in enumerate(row) if self._is_condemned(channel)])
        if column is not None:
            bits = candidate["bitfield"].ljust(len(row), "0")
            candidate["bitfield"] = f"{bits[:column]}1{bits[column + 1 :]}"
            candidate["message_root"] = self.draws.choice((candidate["message_root"], self.draws.hex(ROOT_BYTES)))
        return column is not None

    def _missing_message_root(self, candidate: Json) -> bool:
        row = self.model.row(candidate["para_id"])
        column = self.draws.one_of([index for index, channel in enumerate(row) if not self._is_condemned(channel)])
        if column is not None:
            candidate["bitfield"] = f"{'0' * column}1"
            candidate["message_root"] = None
        return column is not None

    def _ahead_relay_parent(self, candidate: Json) -> bool:
        ahead = candidate["relay_parent_number"] + self.draws.randint(1, 3)
        candidate["watermark"] = [ahead, self.draws.choice((0, 2000, EVERYBODY))]
        return True

    def _regressed(self, candidate: Json) -> bool:
        last = self.model.watermarks.get(candidate["para_id"])
        if last is None or last == [0, 0]:
            return False
        earlier = [[last[0], last[1] - 1]] if last[1] else []
        earlier += [[last[0] - 1, EVERYBODY]] if last[0] else []
        candidate["watermark"] = self.draws.choice(earlier)
        return True

    def _not_advanced(self, candidate: Json) -> bool:
        para = candidate["para_id"]
        last = self.model.watermarks.get(para)
        if last is None or not self._unread(para, candidate["relay_parent_number"]):
            return False
        candidate["watermark"] = list(last)
        return True
