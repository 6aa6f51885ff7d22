# SPDX-License-Identifier: Apache-2.0
"""A stored lane as JSON: a header, and its state in the state keys of the conformance format.

Of a whole lane it is a document that `validator lanes import` takes: its ``first_block`` and ``state``. What the format has no key for
(pending candidates, how many messages were ever sent, the session's number, the configuration) is not in ``state``; the header tells it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from validator.core.hashing import blake2b_256
from validator.protocols.router.view import view
from validator.service.importing import state_keys
from validator.service.state import (
    RestoredLane,
    entries_of_plugin,
    kept_by_plugins,
    state_of_channel,
    state_of_para,
)

if TYPE_CHECKING:
    from validator.core.types import ChannelId, ParaId
    from validator.protocols.kit import PendingCandidate
    from validator.protocols.router.state import RouterState

_OF_A_CHANNEL: Final = ("channels", "contents", "open_requests", "close_request_set")


def plugin_document(lane: RestoredLane, plugin: str, limit: int) -> dict[str, Any]:
    """Return what a plugin keeps, at most so many entries of it (0: all). Raises `UserError` where that is nothing."""
    entries = entries_of_plugin(lane, plugin)
    shown = entries[:limit] if limit else entries
    return {
        **header(lane),
        "plugin": plugin,
        "keys": len(entries),
        "bytes": sum(len(key) + len(value) for key, value in entries),
        "entries": [{"key": key.hex(), "value": value.hex()} for key, value in shown],
    }


def document(lane: RestoredLane, para: ParaId | None = None, channel: ChannelId | None = None) -> dict[str, Any]:
    """Return a lane, or what of it is about a para or a channel. Raises `UserError` where that is not there."""
    router = lane.router
    if channel is not None:
        part = state_of_channel(lane, channel)
        opened = part.hrmp_channels.get(channel)
        keys = view(part)
        return {
            **header(lane),
            "channel": list(channel),
            "messages_sent": 0 if opened is None else opened.messages_sent,
            "state": {key: keys[key] for key in _OF_A_CHANNEL},
        }
    if para is not None:
        owned = state_of_para(lane, para)
        page = router.page(para)
        return {
            **header(lane),
            "para_id": para,
            "page_hash": None if page is None else blake2b_256(page).hex(),
            "pending_candidates": _pending(owned),
            "state": state_keys(owned),
        }
    state = router.state
    return {
        **header(lane),
        "host_configuration": asdict(state.host_configuration),
        "balances": state.balances_mode.value,
        "hrmp_notifications": state.hrmp_notifications,
        "pending_candidates": _pending(state),
        "kept_by_plugins": [each._asdict() for each in kept_by_plugins(lane)],
        "state": state_keys(state),
    }


def header(lane: RestoredLane) -> dict[str, Any]:
    """Return where a lane stands and what its store says of it; ``consumed`` is by topic and partition."""
    inner, head = lane.worker.lane, lane.head
    consumed: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(lane.consumed.items()):
        consumed.setdefault(topic, {})[str(partition)] = offset
    return {
        "lane": lane.name,
        "batch": lane.batch,
        "executed_block": inner.executed_block,
        "first_block": inner.executed_block + 1,
        "session": inner.rules.session,
        "state_root": inner.rules.state_root().hex(),
        "summary": lane.worker.summary().hex(),
        "runtime_digest": head.runtime_digest.hex(),
        "plugins": list(lane.plugins),
        "counters": asdict(inner.counters),
        "waiting_for": inner.waits_for(),
        "waiting_bytes": inner.waiting_bytes,
        "consumed": consumed,
        "store": {
            "slots": lane.slots,
            "slots_bytes": head.slots_bytes,
            "slots_hash": head.slots_hash.hex(),
            "journal_entries": head.journal_entries,
            "journal_bytes": head.journal_bytes,
        },
    }


def _pending(state: RouterState) -> dict[str, list[dict[str, Any]]]:
    return {str(para): [_candidate(each) for each in queue] for para, queue in sorted(state.pending_candidates.items())}


def _candidate(pending: PendingCandidate) -> dict[str, Any]:
    """Return a candidate in the names of its record."""
    candidate = pending.candidate
    return {
        "backed_at": pending.backed_at,
        "relay_parent_number": candidate.relay_parent_number,
        "hrmp_watermark": candidate.hrmp_watermark,
        "upward_messages": [payload.hex() for payload in candidate.upward_messages],
        "processed_downward_messages": candidate.processed_downward_messages,
        "horizontal_messages": [
            {"recipient": message.recipient, "data": message.data.hex()} for message in candidate.horizontal_messages
        ],
        "candidate_hash": None if candidate.candidate_hash is None else candidate.candidate_hash.hex(),
    }
