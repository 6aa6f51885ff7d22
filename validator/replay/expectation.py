# SPDX-License-Identifier: Apache-2.0
"""Finds what in a trace's expectation can never be compared with anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validator.core.limits import U32_MAX
from validator.document import Node, printable
from validator.errors import UserError

if TYPE_CHECKING:
    from validator.plugin.protocol_api import ProtocolDefinition

EXACT = "_set"
"""Suffix of a state key that lists all keys of another one, unless the protocol itself has a state key of that name."""


def expects_anything(expect: dict[str, Any]) -> bool:
    """Return whether an expectation of a step names anything that can differ."""
    return any(
        _has_value(value) if key == "state" else bool(value) or key == "dispatched" for key, value in expect.items()
    )


def _has_value(expected: Any) -> bool:
    return any(map(_has_value, expected.values())) if isinstance(expected, dict) else True


def check_state_keys(state: Node, protocol: ProtocolDefinition) -> list[str]:
    """Return a warning for each key that no state of the protocol has.

    Raises `UserError` for a key below a state key that is no para or no channel: ``null`` would match whatever the state holds.
    """
    traces = protocol.traces
    for names, is_good, wanted in (
        (traces.para_keys, _is_para, 'a para as the key, such as "2000"'),
        (traces.channel_keys, _is_channel, 'a channel as the key, such as "2000->2004"'),
    ):
        for name in names:
            expected = state[name].value if state.has(name) else None
            for key in expected if isinstance(expected, dict) else ():
                if not is_good(key):
                    raise UserError(f"{state.path}.{name}: expected {wanted}, found {printable(key)!r}")
    known = {*traces.state_keys, *(f"{key}{EXACT}" for key in traces.state_keys)}
    return [
        f"{state.path}: protocol {protocol.name} has no state key {printable(key)!r}: null, 0 and [] always match"
        for key in state.object()
        if key not in known
    ]


def _is_para(text: str) -> bool:
    return text.isascii() and text.isdecimal() and str(int(text[:11])) == text and int(text) <= U32_MAX


def _is_channel(text: str) -> bool:
    ends = text.split("->")
    return len(ends) == 2 and all(map(_is_para, ends))
