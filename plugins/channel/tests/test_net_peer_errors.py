# SPDX-License-Identifier: Apache-2.0
"""What a peer writes into an ERROR chooses neither a field of a log line nor a label of a metric. Source: channel_rules 3.3 "log flood"."""

from __future__ import annotations

import json
import re

import pytest
from channel_tls import Pki, RawPeer, World, serving, until
from validator_channel.events import PeerError
from validator_channel.net.outcomes import Ending
from validator_channel.wire import Kind

ODD = [
    "CLEAN",
    "LEFT",
    "TRANSPORT_LOST",
    "DRAINED",
    "PEER_ERROR",
    "x end=CLEAN y=1",
    '" end=CLEAN "',
    "é\u202e\u2028z",
    "",
]


def report(raw: RawPeer, code: str, detail: str = "") -> None:
    error = json.dumps({"category": "runtime", "code": code, "fatal": True, "detail": detail}).encode()
    raw.session._link.send(Kind.ERROR, 0, 0xFFFFFFFF, error)
    raw.flush()


def unquoted(line: str) -> str:
    assert line.isprintable()
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)


async def test_code_of_a_peer_ends_as_one_of_a_fixed_set(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        for at, code in enumerate(ODD):
            async with world.raw(at) as (raw, _):
                report(raw, code, detail=f" end=CLEAN {code}")
                await until(lambda at=at: len(world.lines) > at)
            fields = unquoted(world.lines[-1]).split()
            assert [each for each in fields if "end=" in each or "CLEAN" in each] == ["end=PEER_ERROR"]
            assert fields[-2:] == ['peer_error=""', 'detail=""']
        assert world.listener.counters.ended == {"PEER_ERROR": len(ODD)}
        async with world.raw(99) as (raw, _):
            report(raw, "SESSION_LIMIT")
            await until(lambda: world.listener.counters.ended["SESSION_LIMIT"])
        assert " end=SESSION_LIMIT " in world.lines[-1]
        assert world.lines[-1].endswith(' peer_error="SESSION_LIMIT"')


@pytest.mark.parametrize("code", ["LEFT", "CLEAN", "DRAINED"])
async def test_code_of_a_peer_does_not_suppress_the_line_of_a_refusal(pki: Pki, code: str) -> None:
    async with serving(World(pki)) as world:
        raw = await RawPeer.join(world, 5)
        report(raw, code, "why")
        await until(lambda: len(world.lines) == 2)
        (line,) = [line for line in world.lines if line.startswith("refused a connection: ")]
        assert line.endswith(f': the other end reports "{code}": "why" (PEER_ERROR)')
        assert world.failed == {"PEER_ERROR": 1}
        raw.close()


@pytest.mark.parametrize(
    ("code", "detail", "reason"),
    [
        ("SESSION_LIMIT", None, ""),
        ("SESSION_IN_USE", "d", 'the session ID is live already; the other end reports: "d"'),
        ("BAD_JSON", "d", 'the other end reports "BAD_JSON": "d"'),
        ("NEW", None, 'the other end reports "NEW"'),
    ],
)
def test_reason_says_who_has_said_it(code: str, detail: str | None, reason: str) -> None:
    ending = Ending()
    assert (ending.code(is_clean=False), ending.reason(is_clean=False)) == ("LEFT", "")
    ending.note_peer_error(PeerError(code, is_fatal=True, detail=detail))
    assert ending.reason(is_clean=False) == reason
    assert (ending.code(is_clean=True), ending.fields(is_clean=True), ending.reason(is_clean=True)) == ("CLEAN", "", "")
    ending.note_ours("DRAINED")
    ending.note_ours("LEFT")
    assert (ending.code(is_clean=False), ending.fields(is_clean=False)) == ("DRAINED", "")
