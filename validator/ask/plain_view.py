# SPDX-License-Identifier: Apache-2.0
"""The default state view, for protocols without their own: it shows the state keys of the conformance traces unchanged.

An entry is about a para or a channel if it has a name that the trace format gives to them: a para's id as key or item; ``para_id``,
``sender`` or ``recipient`` of an entry; ``"sender->recipient"`` as key or item. See `docs/trace-format.md`, "State keys".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from validator.plugin.protocol_api import StateSection, StateView, section_title

if TYPE_CHECKING:
    from validator.core.types import ChannelId, ParaId
    from validator.plugin.protocol_api import ProtocolDefinition

    Keys = dict[str, Any]
    Wanted = Callable[[Any], bool]

_PARAS = ("para_id", "sender", "recipient")


def view_of(protocol: ProtocolDefinition) -> StateView:
    """Return a protocol's state view, or one on top of its traces' ``view``."""
    if protocol.state_view is not None:
        return protocol.state_view
    traces = protocol.traces
    return StateView(
        paras=lambda state: sorted({para for place in _places(traces.view(state)) for para in place}),
        channels=lambda state: sorted({place for place in _places(traces.view(state)) if len(place) == 2}),
        whole_document=lambda state: {},  # noqa: ARG005 - everything is in ``state``
        para_document=lambda state, para: _document({"para_id": para}, _about(traces.view(state), _of_para(para))),
        channel_document=lambda state, channel: _document(
            {"channel": list(channel)}, _about(traces.view(state), _of_channel(channel))
        ),
        whole_sections=lambda state: _whole(state.session_index, traces.view(state)),
        para_sections=lambda state, para: _sections(_about(traces.view(state), _of_para(para))),
        channel_sections=lambda state, channel: _sections(_about(traces.view(state), _of_channel(channel))),
    )


def _place(item: Any) -> tuple[int, ...]:
    """Return the paras that a key or an item names: one, two for a channel, or none."""
    if isinstance(item, dict):
        return tuple(item[name] for name in _PARAS if type(item.get(name)) is int)
    parts = str(item).split("->")
    return tuple(map(int, parts)) if len(parts) <= 2 and all(part.isdecimal() for part in parts) else ()


def _places(keys: Keys) -> Iterator[tuple[int, ...]]:
    for value in keys.values():
        if isinstance(value, (dict, list)):
            yield from filter(None, map(_place, value))


def _of_para(para: ParaId) -> Wanted:
    return lambda item: para in _place(item)


def _of_channel(channel: ChannelId) -> Wanted:
    return lambda item: _place(item) == channel


def _about(keys: Keys, wanted: Wanted) -> Keys:
    """Return every table and list with only the entries that are wanted."""
    found: Keys = {}
    for key, value in keys.items():
        if isinstance(value, dict):
            found[key] = {name: entry for name, entry in value.items() if wanted(name)}
        elif isinstance(value, list):
            found[key] = [item for item in value if wanted(item)]
    return found


def _document(about: dict[str, Any], keys: Keys) -> dict[str, Any] | None:
    return {**about, "state": keys} if any(keys.values()) else None


def _whole(session: int, keys: Keys) -> list[StateSection]:
    counted = {key: value for key, value in keys.items() if isinstance(value, (dict, list))}
    single = [(key, _word(value)) for key, value in keys.items() if key not in counted]
    rows = [(key, f"{len(value):,}") for key, value in counted.items()]
    return [
        StateSection(facts=[("session", f"{session:,}"), *single]),
        StateSection("state", columns=("state key", "entries"), rows=rows, left=("state key",)),
    ]


def _word(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def _sections(keys: Keys) -> list[StateSection] | None:
    sections = []
    for key, value in keys.items():
        if value:
            entries = value.items() if isinstance(value, dict) else (("", item) for item in value)
            rows = [(name, _word(entry)) for name, entry in entries]
            sections.append(
                StateSection(section_title(key, len(rows)), columns=("key", "value"), rows=rows, left=("key", "value"))
            )
    return sections or None
