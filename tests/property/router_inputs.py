# SPDX-License-Identifier: Apache-2.0
"""What the Router's machine does: its inputs, the events that they must give, and the headroom that they leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from validator_simulators import size_of
from validator_simulators.router.later_rules import FEATURES, LASTING, PROFILES, REQUESTS, with_implied
from validator_simulators.router.model import Channel, NaiveRouter

from tests.property.shapes import Json
from validator.core.rules import RulesEpoch
from validator.document import Node
from validator.plugin.protocol_api import RuleProfiles
from validator.plugin.rule_choice import read_rules
from validator.plugin.runtime import installed_protocol

SYSTEM = (1, 2, 3)
PARAS = (*SYSTEM, 2000, 2070)
NOBODY = 2099
MESSAGE_BYTES_MAX = 4
HEIGHTS = 40
"""The rules change within this many blocks of the first one."""

LATER_LIMITS = {
    "hrmp_notification_xcm_version": st.integers(0, 5),
    "hrmp_system_channel_max_places": st.integers(0, 4),
    "hrmp_system_channel_max_message_size": st.integers(0, MESSAGE_BYTES_MAX + 1),
    # a page holds nothing, one message, a few, all
    "message_queue_heap_size": st.sampled_from((4, 7, 9, 14, 21, 65536)),
}
LIMITS = {
    "max_upward_message_num_per_candidate": st.integers(0, 3),
    "max_upward_message_size": st.integers(0, MESSAGE_BYTES_MAX),
    "max_upward_queue_count": st.integers(0, 5),
    "max_upward_queue_size": st.integers(0, 10),
    "preferred_dispatchable_upward_messages_step_weight": st.integers(0, 6),
    # with the last two, three messages and one wait at most under dmq_length_limit
    "max_downward_message_size": st.sampled_from((0, 3, 4, 12, 1 << 24, (1 << 25) + 1)),
    "hrmp_max_message_num_per_candidate": st.integers(0, 3),
    "hrmp_channel_max_places": st.integers(1, 3),
    "hrmp_channel_max_message_size": st.integers(1, MESSAGE_BYTES_MAX),
    # at least the size of a message: a candidate that waits while its channel is closed and reopened is enacted unchecked
    "hrmp_channel_max_size": st.integers(MESSAGE_BYTES_MAX, 9),
    "hrmp_max_parachain_outbound_channels": st.integers(1, 3),
    "hrmp_max_parathread_outbound_channels": st.integers(0, 2),
    "hrmp_max_parachain_inbound_channels": st.integers(1, 3),
    "hrmp_max_parathread_inbound_channels": st.integers(0, 2),
    "hrmp_sender_deposit": st.integers(0, 7),
    "hrmp_recipient_deposit": st.integers(0, 7),
    "hrmp_open_request_ttl": st.integers(0, 4),
    **LATER_LIMITS,
}
GENEROUS = {
    "max_upward_message_num_per_candidate": 3,
    "max_upward_message_size": 4,
    "max_upward_queue_count": 5,
    "max_upward_queue_size": 10,
    "preferred_dispatchable_upward_messages_step_weight": 4,
    "max_downward_message_size": 12,
    "hrmp_max_message_num_per_candidate": 3,
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_message_size": 4,
    "hrmp_channel_max_size": 5,
    "hrmp_max_parachain_outbound_channels": 3,
    "hrmp_max_parathread_outbound_channels": 2,
    "hrmp_max_parachain_inbound_channels": 3,
    "hrmp_max_parathread_inbound_channels": 2,
    "hrmp_sender_deposit": 5,
    "hrmp_recipient_deposit": 3,
    "hrmp_open_request_ttl": 2,
}
WEIGHTS = {"": 0, "aa": 2, "bb": 9}
FAILING = ("aa", "cc")
ENDS = (*["prune"] * 4, *["close"] * 2, "leave")
"""How a channel ends up that was written to for some blocks."""

paras = st.sampled_from((*PARAS, *PARAS, NOBODY))
kinds = st.sampled_from(("parachain", "parathread"))
payloads = st.sampled_from(("", "aa", "bb", "cc", "0102", "010203", "01020304")) | st.binary(
    max_size=MESSAGE_BYTES_MAX + 1
).map(bytes.hex)
upward = st.sampled_from(("bb", "bb", "aa")) | payloads
"""Upward messages; the first two are heavier than most rounds."""
onboardings = st.fixed_dictionaries({"para_id": paras, "kind": kinds, "balance": st.integers(0, 30)})
new_configs = st.none() | st.fixed_dictionaries({}, optional=LIMITS)
sizes = {
    "max_places": st.sampled_from((1, 1, 1, 2, 3, 4, 0)),
    "max_message_size": st.sampled_from((1, 1, 1, 3, 4, 5, 0)),
}


# --- rules by height ---

_chosen = (
    st.just({"features": list(FEATURES)})  # all together
    | st.sampled_from(FEATURES).map(lambda feature: {"features": [feature]})  # one alone
    | st.sets(st.sampled_from(FEATURES)).map(lambda features: {"features": sorted(features)})
    | st.sampled_from(sorted(PROFILES)).map(lambda profile: {"profile": profile})
)


def _ascending(chosen: list[tuple[int, Json]]) -> list[Json]:
    """Return one entry for each offset, ascending; a lasting feature stays from its first entry on."""
    entries: list[Json] = []
    lasts = False
    for offset, choice in sorted(dict(chosen).items()):
        features = PROFILES[choice["profile"]] if "profile" in choice else with_implied(choice["features"])
        missing = lasts and LASTING not in features
        entries.append({"from_block": offset, **({"features": [*sorted(features), LASTING]} if missing else choice)})
        lasts = lasts or LASTING in features
    return entries


changes_of_rules = st.lists(
    st.tuples(st.sampled_from((0, 0, 2, 3)) | st.integers(0, HEIGHTS), _chosen), min_size=1, max_size=4
).map(_ascending)
"""Lists of rules; blocks count from the first block."""


@cache
def _profiles() -> RuleProfiles:
    protocol = installed_protocol("router")
    assert protocol is not None
    assert protocol.rule_profiles is not None
    return protocol.rule_profiles


def epochs_of(rules: list[Json]) -> tuple[RulesEpoch, ...]:
    """Return a list of rules by height as the core takes it."""
    profiles = _profiles()
    return tuple(profiles.epoch(*use) for use in read_rules(profiles, Node(rules, "rules")))


# --- requests of later kinds, most of them in force and about what is there ---


def later_request_of(draw: Any, naive: NaiveRouter) -> Json:
    """Draw a request, nearly always of a kind in force if there is any."""
    in_force = [kind for kind, features in REQUESTS.items() if any(map(naive.has, features))]
    kind = draw(st.sampled_from(in_force if in_force and draw(st.integers(0, 9)) else list(REQUESTS)))
    if kind == "service_overweight":
        return service_of(draw, naive)
    if kind == "force_clean":
        return {"kind": kind, "para_id": draw(paras)}
    if kind in ("force_process_open", "force_process_close"):
        return {"kind": kind}
    if kind == "establish_channel_with_system":
        return {"kind": kind, "origin": draw(paras), "target": draw(_mostly_system)}
    if kind == "establish_system_channel":
        return {"kind": kind, "sender": draw(_mostly_system), "recipient": draw(_mostly_system)}
    there = sorted(naive.channels if kind == "poke_channel_deposits" else naive.requests)
    pair = draw(st.sampled_from(there)) if there and draw(st.integers(0, 3)) else (draw(paras), draw(paras))
    if kind == "cancel_open_request":
        return {"kind": kind, "origin": draw(st.sampled_from((*pair, *pair, NOBODY))), "channel": list(pair)}
    made = {"kind": kind, "sender": pair[0], "recipient": pair[1]}
    return {**made, **draw(_sizes_given)} if kind == "force_open_channel" else made


def service_of(draw: Any, naive: NaiveRouter) -> Json:
    """Draw a request to service an upward message: one that was set aside, one that was not, none at all."""
    found = [] if naive.queue is None else [(para, m) for para in PARAS for m in naive.queue.messages.get(para, [])]
    aside = [(para, message) for para, message in found if message["stage"] == "aside"]
    para, page, index = draw(paras), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    if found and draw(st.integers(0, 4), label="one that is there unless 0"):
        para, message = draw(st.sampled_from([*aside, *aside, *found]))
        page, index = message["page"], message["index"]
    weight_limit = draw(st.sampled_from((9, 9, 100, 2, 0)))
    return {"kind": "service_overweight", "para_id": para, "page": page, "index": index, "weight_limit": weight_limit}


_mostly_system = st.sampled_from((*SYSTEM, *SYSTEM, *SYSTEM, *PARAS))
_sizes_given = st.just({"max_places": 1, "max_message_size": 1}) | st.fixed_dictionaries(sizes)


def quiet_candidate(naive: NaiveRouter, para: int, watermark: int, horizontal: list[Json]) -> Json:
    """Return a candidate without upward messages that processes what it must."""
    return {
        "para_id": para,
        "hrmp_watermark": watermark,
        "upward_messages": [],
        "processed_downward_messages": min(1, len(naive.dmq.get(para, []))),
        "horizontal_messages": horizontal,
    }


AT_LEAST: Final = {
    "horizontal messages accepted": 150,
    "partial prunes": 15,
    "full prunes": 40,
    "channels removed with contents": 15,
    "messages refused by a full channel": 25,
}
"""How often all examples together must meet an event."""
FULL: Final = ("OutboundHrmp/CapacityExceeded", "OutboundHrmp/TotalSizeExceeded")


class Met(Counter[str]):
    """The number of events, by name."""

    def before(self, naive: NaiveRouter) -> Watch:
        """Return the watch over one change of the model."""
        return Watch(self, naive, _contents(naive))


class Watch(NamedTuple):
    """The model before a change."""

    met: Met
    naive: NaiveRouter
    contents: dict[Channel, list[Json]]

    def after(self, results: Sequence[Json], candidate: Json | None = None) -> None:
        """Count what the change has done. ``candidate`` is the one that it checked, if any."""
        now = _contents(self.naive)
        for channel, messages in self.contents.items():
            left = [message for message in messages if any(message is other for other in now.get(channel, ()))]
            if channel not in now:
                self.met["channels removed with contents"] += bool(messages)
            elif len(left) < len(messages):
                self.met["partial prunes" if left else "full prunes"] += 1
        for result in results:
            if candidate is not None and result["ok"]:
                self.met["horizontal messages accepted"] += len(candidate["horizontal_messages"])
            self.met["messages refused by a full channel"] += not result["ok"] and result["error"]["kind"] in FULL


def missed(met: Met) -> dict[str, int]:
    """Return the events that were met less often than they must be, with their numbers."""
    return {name: met[name] for name, least in AT_LEAST.items() if met[name] < least}


def _contents(naive: NaiveRouter) -> dict[Channel, list[Json]]:
    return {channel: list(fields["messages"]) for channel, fields in naive.channels.items()}


WATERMARKS_MAX = 64
"""Watermarks that the record of a para lists."""


def headroom_of(naive: NaiveRouter, emitted: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], Json]:
    """Return the headroom of all paras and channels, by id: those that exist, and those in ``emitted``, which may be gone."""
    ids = {(para,) for para in naive.kinds} | naive.channels.keys() | set(emitted)
    return {each: _of_channel(naive, each) if len(each) == 2 else _of_para(naive, each[0]) for each in ids}


def _of_para(naive: NaiveRouter, para: int) -> Json:
    gone = {
        "para_id": para,
        "valid": False,
        "upward_count_left": 0,
        "upward_bytes_left": 0,
        "downward_pending": 0,
        "watermark": None,
        "valid_watermarks": (),
    }
    if para not in naive.kinds:
        return gone
    waiting = naive.upward_waiting(para)
    return {
        **gone,
        "valid": True,
        "upward_count_left": max(0, naive.config["max_upward_queue_count"] - len(waiting)),
        "upward_bytes_left": max(0, naive.config["max_upward_queue_size"] - sum(map(size_of, waiting))),
        "downward_pending": len(naive.dmq.get(para, [])),
        "watermark": naive.watermarks.get(para),
        "valid_watermarks": tuple(_valid_watermarks(naive, para)[:WATERMARKS_MAX]),
    }


def _valid_watermarks(naive: NaiveRouter, para: int) -> list[int]:
    landings = sorted({block for block, _ in naive.digests.get(para, [])})
    last = naive.watermarks.get(para)
    if naive.has("relaxed_watermark") or naive.has("watermark_may_stay"):
        landings = [block for block in landings if last is None or block > last]
    return [last, *landings] if naive.has("watermark_may_stay") and last is not None else landings


def _of_channel(naive: NaiveRouter, channel: Channel) -> Json:
    sender, recipient = channel
    found = naive.channels.get(channel)
    limits = found or {"limit_used_places": 0, "limit_used_bytes": 0, "limit_message_size": 0}
    return {
        "sender": sender,
        "recipient": recipient,
        "open": found is not None,
        "places_left": limits["limit_used_places"] - (naive.used_places(channel) if found else 0),
        "bytes_left": limits["limit_used_bytes"] - (naive.used_bytes(channel) if found else 0),
        "message_size_max": limits["limit_message_size"],
    }
