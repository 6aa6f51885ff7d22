# SPDX-License-Identifier: Apache-2.0
"""Candidates of a simulated chain: good ones, and for each error some that break its rule, if the state allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from validator.simulate import Draws, Json, LeastMet
from validator_early_hrmp.simulation.model import NaiveEarlyHrmp
from validator_early_hrmp.simulation.requests import NOBODY_FIRST

Way: TypeAlias = Callable[[NaiveEarlyHrmp, Draws, Json], bool]
"""Changes a good candidate so that it provokes the error. Returns whether it succeeded."""

PAYLOAD_BYTES_MAX: Final = 150
LOOKBACK_BLOCKS: Final = 20


def _message(candidate: Json, recipient: int, payload: str = "") -> Json:
    return {"sender": candidate["para_id"], "recipient": recipient, "payload": payload}


def _add(candidate: Json, message: Json) -> None:
    """Insert a message in order. Replace an existing message to the same recipient."""
    others = [each for each in candidate["hrmp_messages"] if each["recipient"] != message["recipient"]]
    candidate["hrmp_messages"] = sorted([*others, message], key=lambda each: each["recipient"])


def _parent(model: NaiveEarlyHrmp, candidate: Json) -> int:
    parent = candidate["relay_parent_number"]
    return model.now - 1 if parent is None else int(parent)


# --- one way to break each rule ---


def _unknown_para(_model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    nobody = NOBODY_FIRST + draws.randrange(10)
    candidate["para_id"] = nobody
    candidate["hrmp_messages"] = [{**each, "sender": nobody} for each in candidate["hrmp_messages"]]
    return True


def _not_sorted(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    others = [para for para in sorted(model.paras) if para != candidate["para_id"]]
    first, second = sorted(draws.sample(others, 2))
    candidate["hrmp_messages"] = [_message(candidate, second), _message(candidate, first)]
    return True


def _duplicate_recipient(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    if not candidate["hrmp_messages"]:
        _add(candidate, _message(candidate, draws.choice(sorted(model.paras))))
    at = draws.randrange(len(candidate["hrmp_messages"]))
    candidate["hrmp_messages"].insert(at, dict(candidate["hrmp_messages"][at]))
    return True


def _sender_mismatch(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    para = candidate["para_id"]
    others = [each for each in [*sorted(model.paras), NOBODY_FIRST] if each != para]
    recipient = draws.choice(model.egress(para) or others)
    _add(candidate, {**_message(candidate, recipient), "sender": draws.choice(others)})
    return True


def _no_such_channel(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    there = model.egress(candidate["para_id"])
    others = [para for para in [*sorted(model.paras), NOBODY_FIRST] if para not in there]
    _add(candidate, _message(candidate, draws.choice(others)))
    return True


def _channel_sealed(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    channel = draws.one_of([each for each in _channels_of(model, candidate) if each["sealed"]])
    if channel is not None:
        _add(candidate, _message(candidate, channel["recipient"]))
    return channel is not None


def _capacity_exceeded(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    limit = model.config["hrmp_channel_max_places"]
    full = [each for each in _channels_of(model, candidate) if not each["sealed"] and len(each["messages"]) >= limit]
    channel = draws.one_of(full)
    if channel is not None:
        _add(candidate, _message(candidate, channel["recipient"], draws.hex(draws.randrange(4))))
    return channel is not None


def _total_size_exceeded(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    recipient = draws.one_of(_roomy(model, candidate["para_id"]))
    if recipient is not None:
        _, _, left = model.channel_headroom(candidate["para_id"], recipient)
        _add(candidate, _message(candidate, recipient, draws.hex(left + draws.choice((1, 1, 9)))))
    return recipient is not None


def _advancement_rule(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    last = model.watermarks.get(candidate["para_id"])
    if last is not None:
        candidate["dmq_watermark"] = draws.choice((last, max(0, last - draws.randrange(LOOKBACK_BLOCKS))))
    return last is not None


def _ahead_relay_parent(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    candidate["dmq_watermark"] = _parent(model, candidate) + draws.randint(1, 3)
    return True


def _lands_on_block_with_no_messages(model: NaiveEarlyHrmp, draws: Draws, candidate: Json) -> bool:
    para, parent = candidate["para_id"], _parent(model, candidate)
    lowest = max(model.watermarks.get(para, -1) + 1, parent - LOOKBACK_BLOCKS, 0)
    empty = [block for block in range(lowest, parent) if block not in model.landings(para)]
    watermark = draws.one_of(empty)
    if watermark is not None:
        candidate["dmq_watermark"] = watermark
    return watermark is not None


def _channels_of(model: NaiveEarlyHrmp, candidate: Json) -> list[Json]:
    return [each for each in model.channels if each["sender"] == candidate["para_id"]]


def _roomy(model: NaiveEarlyHrmp, para: int) -> list[int]:
    """Return the recipients to which a para may send one more message."""
    return [recipient for recipient in model.egress(para) if model.channel_headroom(para, recipient)[1]]


OUTBOUND_WAYS: Final[dict[str, Way]] = {
    "Candidate/UnknownPara": _unknown_para,
    "Outbound/NotSorted": _not_sorted,
    "Outbound/DuplicateRecipient": _duplicate_recipient,
    "Outbound/SenderMismatch": _sender_mismatch,
    "Outbound/NoSuchChannel": _no_such_channel,
    "Outbound/ChannelSealed": _channel_sealed,
    "Outbound/CapacityExceeded": _capacity_exceeded,
    "Outbound/TotalSizeExceeded": _total_size_exceeded,
}
WATERMARK_WAYS: Final[dict[str, Way]] = {
    "Watermark/AdvancementRule": _advancement_rule,
    "Watermark/AheadRelayParent": _ahead_relay_parent,
    "Watermark/LandsOnBlockWithNoMessages": _lands_on_block_with_no_messages,
}
WAYS: Final = {**OUTBOUND_WAYS, **WATERMARK_WAYS}
"""By the error that the candidate should provoke."""


class CandidateTraffic:
    """Makes candidates. Rule breaches start with the errors seen least."""

    def __init__(self, model: NaiveEarlyHrmp, draws: Draws, horizontal_per_100: int) -> None:
        self.model = model
        self.draws = draws
        self.horizontal_per_100 = horizontal_per_100
        self.errors = LeastMet(draws, WAYS)

    def good(self, para: int) -> Json | None:
        """Return a candidate that will be accepted, or None if no watermark is possible for the para."""
        model, draws = self.model, self.draws
        last = model.watermarks.get(para, -1)
        parent = model.now - 1
        if draws.percent(15) and parent - 1 > last:
            parent -= 1
        if parent <= last:
            return None
        landings = [block for block in model.landings(para) if last < block <= parent]
        candidate: Json = {
            "para_id": para,
            "relay_parent_number": None if parent == model.now - 1 and draws.percent(70) else parent,
            "dmq_watermark": draws.choice(landings) if landings and draws.percent(50) else parent,
            "hrmp_messages": [],
        }
        roomy = _roomy(model, para)
        for recipient in draws.sample(roomy, min(draws.count(self.horizontal_per_100), len(roomy))):
            _, _, left = model.channel_headroom(para, recipient)
            size = min(left, draws.randrange(PAYLOAD_BYTES_MAX + 1))
            _add(candidate, _message(candidate, recipient, draws.hex(size)))
        return candidate

    def broken(self, para: int) -> tuple[Json, tuple[str, ...]] | None:
        """Return a candidate that will be rejected, and the errors that it targets; one in four targets two."""
        candidate = self.good(para)
        if candidate is None:
            return None
        for kind in self.errors.order():
            if WAYS[kind](self.model, self.draws, candidate):
                kinds = [kind]
                other = self.draws.choice(list(WATERMARK_WAYS))
                if kind in OUTBOUND_WAYS and self.draws.percent(25):
                    kinds += [other] * WATERMARK_WAYS[other](self.model, self.draws, candidate)
                return candidate, tuple(kinds)
        return None

    def play(self, para: int, *, breaks: bool) -> tuple[Json, Json, tuple[str, ...]] | None:
        """Return a para's candidate, the model's verdict, and the errors that the candidate targets."""
        kinds: tuple[str, ...] = ()
        if breaks:
            candidate, kinds = self.broken(para) or (None, ())
        else:
            candidate = self.good(para)
        if candidate is None:
            return None
        result = self.model.candidate(candidate)
        self.errors.note(result)
        return candidate, result, kinds
