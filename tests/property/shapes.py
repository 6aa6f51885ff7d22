# SPDX-License-Identifier: Apache-2.0
"""Converts the naive model's JSON into the core's records, and results back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validator_simulators import accepted

from validator.core.errors import Violation
from validator.core.types import DownwardMessage, Para, ParaKind, PendingRef, SessionChange
from validator.protocols.router.records import REQUESTS, Candidate, ChannelRequest, HorizontalMessage

Json = dict[str, Any]


def candidate_of(json: Json, now: int) -> Candidate:
    parent = json.get("relay_parent_number")
    return Candidate(
        json["para_id"],
        now - 1 if parent is None else parent,
        json["hrmp_watermark"],
        tuple(bytes.fromhex(payload) for payload in json["upward_messages"]),
        json["processed_downward_messages"],
        tuple(
            HorizontalMessage(message["recipient"], bytes.fromhex(message["data"]))
            for message in json["horizontal_messages"]
        ),
    )


def request_of(json: Json) -> ChannelRequest:
    made = REQUESTS[json["kind"]]
    return made(*(tuple(json[name]) if name == "channel" else json[name] for name in made._fields))


def downward_of(json: Json) -> DownwardMessage:
    return DownwardMessage(json["para_id"], bytes.fromhex(json["msg"]))


def para_of(json: Json) -> Para:
    return Para(json["para_id"], ParaKind(json["kind"]), json["balance"])


def session_change_of(json: Json) -> SessionChange:
    return SessionChange(
        tuple(json.get("outgoing") or ()),
        tuple(para_of(para) for para in json.get("onboarding") or ()),
        tuple((json.get("new_config") or {}).items()),
    )


def pending_of(json: Json) -> PendingRef:
    return PendingRef(json["para_id"], json["backed_at"])


def result_of(apply: Callable[[Any], Any], item: Any) -> Json:
    """Apply an input to the core and return its result in the naive model's form."""
    try:
        effects = apply(item)
    except Violation as violation:
        # the naive model has only the fields that the conformance format compares, plus those of the two kinds outside that format
        fields = violation.details() if violation.normative else {}
        return {"ok": False, "error": {"kind": violation.kind, **fields}}
    return accepted([each._asdict() for each in effects.received])
