# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for JSON records and outcomes of the core, over the full range of every field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from hypothesis import strategies as st

from validator.core import limits, state
from validator.core.counters import Counters
from validator.core.errors import Violation
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source, Whole
from validator.core.outcomes import (
    ChannelEvent,
    ChannelEventKind,
    ChannelHeadroom,
    Dispatch,
    DispatchOutcome,
    HandlerEvent,
    IngressEvent,
    IngressEventKind,
    InputKind,
    MessageRange,
    MessageRef,
    ParaHeadroom,
    Receipt,
    Signal,
    Verdict,
)
from validator.protocols.router import errors
from validator.protocols.router.configuration import MAXIMA, XCM_VERSION_MAX
from validator.protocols.router.features import errors as later_errors

U8 = st.integers(0, 255)
U32 = st.integers(0, limits.U32_MAX)
U63 = st.integers(0, 2**63 - 1)
U64 = st.integers(0, limits.U64_MAX)
U128 = st.integers(0, limits.U128_MAX)
INDEX = st.integers(0, limits.RECORDS_PER_BLOCK_MAX - 1)
COUNT = st.integers(0, limits.RECORDS_PER_BLOCK_MAX)
HASH = st.binary(min_size=32, max_size=32)
PAYLOAD = st.binary(max_size=40)
HEX = PAYLOAD.map(bytes.hex)
LANE = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=limits.LANE_NAME_LENGTH_MAX)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


PENDING = st.lists(st.fixed_dictionaries({"para_id": U32, "backed_at": optional(U32)}), max_size=3)


def _configuration_value(name: str) -> st.SearchStrategy[int]:
    if "deposit" in name:
        return U128
    if name == "hrmp_notification_xcm_version":
        return st.integers(0, XCM_VERSION_MAX)
    return U63 if name.endswith("weight") else U32


CONFIGURATION = st.fixed_dictionaries({}, optional={name: _configuration_value(name) for name in MAXIMA})
SESSION_CHANGE = st.fixed_dictionaries(
    {
        "outgoing": st.lists(U32, max_size=3),
        "onboarding": st.lists(
            st.fixed_dictionaries(
                {"para_id": U32, "kind": st.sampled_from(["parachain", "parathread"]), "balance": U128}
            ),
            max_size=3,
        ),
        "new_config": optional(CONFIGURATION),
        "limits": st.just({}),
    }
)
BLOCK = st.integers(1, limits.U32_MAX).flatmap(
    lambda block: st.fixed_dictionaries(
        {
            "lane": LANE,
            "block": st.just(block),
            "parent_number": optional(st.integers(0, block - 1)),
            "block_hash": optional(HASH.map(bytes.hex)),
            "candidates": COUNT,
            "requests": COUNT,
            "downward": COUNT,
            "included": PENDING,
            "timed_out": PENDING,
            "session_change": optional(SESSION_CHANGE),
        }
    )
)
_PLACE = {"lane": LANE, "block": st.integers(1, limits.U32_MAX), "index": INDEX}
CANDIDATE = st.fixed_dictionaries(
    {
        **_PLACE,
        "para_id": U32,
        "relay_parent_number": optional(U32),
        "hrmp_watermark": U32,
        "upward_messages": st.lists(HEX, max_size=3),
        "processed_downward_messages": U32,
        "horizontal_messages": st.lists(st.fixed_dictionaries({"recipient": U32, "data": HEX}), max_size=3),
        "candidate_hash": optional(HASH.map(bytes.hex)),
    }
)
DOWNWARD = st.fixed_dictionaries({**_PLACE, "para_id": U32, "msg": HEX})
_CHANNEL = st.lists(U32, min_size=2, max_size=2)
_ENDS = {"sender": U32, "recipient": U32}
_SIZES = {"max_places": U32, "max_message_size": U32}
REQUESTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "init_open_channel": {"origin": U32, "recipient": U32, **_SIZES},
    "accept_open_channel": {"origin": U32, "sender": U32},
    "close_channel": {"origin": U32, "channel": _CHANNEL},
    "schedule_para_cleanup": {"para_id": U32},
    "cancel_open_request": {"origin": U32, "channel": _CHANNEL},
    "force_open_channel": {**_ENDS, **_SIZES},
    "establish_system_channel": _ENDS,
    "establish_channel_with_system": {"origin": U32, "target": U32},
    "poke_channel_deposits": _ENDS,
    "service_overweight": {"para_id": U32, "page": U32, "message_index": U32, "weight_limit": U64},
    "force_process_open": {},
    "force_process_close": {},
    "force_clean": {"para_id": U32},
}
"""The arguments of requests in JSON, by kind."""
REQUEST = st.one_of(
    [st.fixed_dictionaries({**_PLACE, "kind": st.just(kind), **arguments}) for kind, arguments in REQUESTS.items()]
)
INPUTS: dict[RecordKind, st.SearchStrategy[dict[str, Any]]] = {
    RecordKind.BLOCK: BLOCK,
    RecordKind.REQUEST: REQUEST,
    RecordKind.DOWNWARD: DOWNWARD,
    RecordKind.CANDIDATE: CANDIDATE,
}


def _all_violations(base: type[Violation]) -> list[type[Violation]]:
    found = [] if not base.kind else [base]
    for below in base.__subclasses__():
        found += _all_violations(below)
    return found


VIOLATION_TYPES = [
    each
    for each in _all_violations(Violation)
    if each.__module__ in (errors.__name__, later_errors.__name__, state.__name__)
]


def _violation(kind: type[Violation]) -> st.SearchStrategy[Violation]:
    values = {int: U128, str: TEXT}
    hints = get_type_hints(kind)
    channel = st.fixed_dictionaries(_ENDS)
    return st.builds(kind, **{field.name: values.get(hints[field.name], channel) for field in fields(kind)})


VIOLATION = st.sampled_from(VIOLATION_TYPES).flatmap(_violation)
_OF_HINT: dict[Any, st.SearchStrategy[Any]] = {
    int: U32,
    int | None: optional(U32),
    bool: st.booleans(),
    bytes | None: optional(HASH),
}
_MESSAGES = st.lists(st.builds(MessageRef, U32, U63, HASH), max_size=3).map(tuple)
_LONG = st.integers(-(2**63), 2**63 - 1)
_RANGES = st.lists(st.builds(MessageRange, optional(U32), _LONG, _LONG, U63), max_size=3).map(tuple)
VERDICT = st.builds(
    Verdict,
    **{name: _OF_HINT[hint] for name, hint in get_type_hints(Verdict).items() if hint in _OF_HINT and name != "index"},
    kind=st.sampled_from(InputKind),
    index=INDEX,
    violation=optional(VIOLATION),
    messages=_MESSAGES,
    received=_RANGES,
    signals=st.lists(
        st.builds(Signal, TEXT, optional(U8), optional(U8), optional(st.binary(max_size=64))), max_size=2
    ).map(tuple),
)
DISPATCH = st.builds(
    Dispatch,
    U32,
    U32,
    U32,
    PAYLOAD,
    U63,
    st.sampled_from(DispatchOutcome),
    failure=optional(TEXT),
    handler=optional(TEXT),
    kind=optional(TEXT),
    events=st.lists(st.builds(HandlerEvent, TEXT, st.binary(max_size=9)), max_size=3).map(tuple),
    messages=_MESSAGES,
)
_DEPOSIT = st.integers(-limits.U128_MAX, limits.U128_MAX)
CHANNEL_EVENT = st.builds(
    ChannelEvent,
    U32,
    U32,
    st.sampled_from(ChannelEventKind),
    U32,
    U32,
    _DEPOSIT,
    _DEPOSIT,
    U32,
    reason=optional(TEXT),
    dropped=_RANGES,
)
INGRESS_EVENT = st.builds(IngressEvent, U32, U32, st.sampled_from(IngressEventKind), U32, U32, U32, HASH, U32)
PARA_HEADROOM = st.builds(
    ParaHeadroom, U32, st.booleans(), U32, U32, U32, optional(U32), st.lists(U32, max_size=5).map(tuple)
)
CHANNEL_HEADROOM = st.builds(ChannelHeadroom, U32, U32, st.booleans(), U32, U32, U32)
RECEIPT = st.builds(Receipt, U32, U32, U32, U32, U32, U32, U32, U63, state_root=optional(HASH))
SOURCE = st.builds(Source, TEXT, U32, U63)
DEAD_LETTER = st.builds(
    DeadLetter,
    TEXT,
    st.sampled_from(DeadReason),
    TEXT,
    SOURCE,
    PAYLOAD,
    optional(U32),
    optional(U32),
    optional(st.builds(Whole, U63, HASH)),
)
COUNTERS = st.builds(Counters, U63, U63, U63, U63, U63, U63)
