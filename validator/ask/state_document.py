# SPDX-License-Identifier: Apache-2.0
"""A stored lane as JSON: a header, and its state under the state keys of the conformance format.

If the protocol has state files, `validator lanes import` accepts the document of a complete lane (its ``first_block`` and ``state``).
Values for which a state file has no key are next to ``state``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from validator.ask.state import RestoredState, about_channel, about_para, entries_of_plugin, kept_by_plugins

if TYPE_CHECKING:
    from validator.core.types import ChannelId, ParaId


def plugin_document(lane: RestoredState, plugin: str, limit: int) -> dict[str, Any]:
    """Return a plugin's state, at most ``limit`` entries of it (0: all). Raises `UserError` if it keeps nothing."""
    entries = entries_of_plugin(lane, plugin)
    shown = entries[:limit] if limit else entries
    return {
        **header(lane),
        "plugin": plugin,
        "keys": len(entries),
        "bytes": sum(len(key) + len(value) for key, value in entries),
        "entries": [{"key": key.hex(), "value": value.hex()} for key, value in shown],
    }


def document(lane: RestoredState, para: ParaId | None = None, channel: ChannelId | None = None) -> dict[str, Any]:
    """Return a lane, or its part about a para or a channel. Raises `UserError` if that part does not exist."""
    rules, view, protocol = lane.rules, lane.view, lane.protocol
    if channel is not None:
        return {**header(lane), **about_channel(lane, channel, view.channel_document(rules, channel))}
    if para is not None:
        return {**header(lane), **about_para(lane, para, view.para_document(rules, para))}
    whole = {**header(lane), **view.whole_document(rules)}
    if protocol.handler_states is not None:
        whole["kept_by_plugins"] = [each._asdict() for each in kept_by_plugins(lane)]
    written = protocol.traces.view(rules) if protocol.state_file is None else protocol.state_file.write(rules)
    return {**whole, "state": written}


def header(lane: RestoredState) -> dict[str, Any]:
    """Return a lane's progress and the figures of its store; ``consumed`` is by topic and partition."""
    inner, head = lane.processor.lane, lane.head
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
        "summary": lane.processor.summary().hex(),
        "runtime_digest": None if lane.runtime_digest is None else lane.runtime_digest.hex(),
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
            "digest_of_all_epochs": head.runtime_digest.hex(),
        },
    }
