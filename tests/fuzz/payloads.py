# SPDX-License-Identifier: Apache-2.0
"""Targets that read payloads: calls of handlers in SCALE."""

from __future__ import annotations

from validator_balances.calls import decode_transfer, encode_transfer
from validator_hrmp_calls import calls
from validator_remark import decode_remark

from tests.fuzz.target import Target
from validator.core.scale import DecodeError

CALLS = (calls.InitOpenChannel(2, 3, 4), calls.AcceptOpenChannel(2), calls.CloseChannel(2, 3))
DECODERS = (calls.decode_init_open_channel, calls.decode_accept_open_channel, calls.decode_close_channel)


def _check_transfer(data: bytes) -> bool:
    try:
        transfer = decode_transfer(data)
    except DecodeError:
        return False
    assert encode_transfer(transfer.dest, transfer.value, call_index=data[1], pallet_index=data[0]) == data
    return True


def _check_calls(data: bytes) -> bool:
    accepted = False
    for decode in DECODERS:
        try:
            call = decode(data)
        except DecodeError:
            continue
        assert calls.encode(call)[2:] == data[2:]
        accepted = True
    return accepted


def _check_remark(data: bytes) -> bool:
    try:
        decode_remark(data)
    except DecodeError:
        return False
    return True


TARGETS = (
    Target(
        "calls-balances",
        lambda: [encode_transfer(2000, value) for value in (0, 63, 64, 2**14, 2**30, 2**128 - 1)],
        _check_transfer,
    ),
    Target("calls-hrmp", lambda: [calls.encode(call) for call in CALLS], _check_calls),
    Target("calls-remark", lambda: [b"\0\0\x08ab", b"\0\7\0"], _check_remark),
)
