# SPDX-License-Identifier: Apache-2.0
"""Calls take effect for the para that sent them, or fail with the broken rule and have no effect."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import validator_hrmp_calls
from validator_hrmp_calls import WEIGHT, AcceptOpenChannel, Call, CloseChannel, InitOpenChannel, encode

from validator.plugin.api import CALL_WEIGHTS, MessageWeight
from validator.testing import Harness, PluginError

REQUEST = encode(InitOpenChannel(2001, 8, 1024))
ACCEPT = encode(AcceptOpenChannel(2000))
CLOSE = encode(CloseChannel(2000, 2001))
DEPOSIT = 100_000_000_000


def chain_with(*sent: tuple[int, bytes], sessions: int = 0, **options: object) -> Harness:
    """Return a chain on which these messages were sent, followed by the given number of session changes."""
    chain = Harness(validator_hrmp_calls, **options)  # type: ignore[arg-type]
    for para, payload in sent:
        assert chain.send(payload, para).outcome.value == "ok"
    for _ in range(sessions):
        chain.change_session()
    return chain


def u32s(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def test_channel_is_requested_accepted_used_and_closed() -> None:
    chain = Harness(validator_hrmp_calls, balances=3 * DEPOSIT)

    dispatch = chain.send(REQUEST, para=2000)
    assert (dispatch.outcome.value, dispatch.handler, dispatch.kind) == (
        "ok",
        "hrmp-calls@1.0.0",
        "hrmp_init_open_channel",
    )
    assert list(dispatch.events) == [("open_channel_requested", u32s(2000, 2001, 8, 1024))]
    request = chain.open_requests[2000, 2001]
    assert (request.limit_used_places, request.limit_message_size, request.confirmed) == (8, 1024, False)
    assert (chain.balance(2000), chain.reserved(2000)) == (2 * DEPOSIT, DEPOSIT)

    dispatch = chain.send(ACCEPT, para=2001)
    assert (dispatch.outcome.value, dispatch.kind) == ("ok", "hrmp_accept_open_channel")
    assert list(dispatch.events) == [("open_channel_accepted", u32s(2000, 2001))]
    assert chain.open_requests[2000, 2001].confirmed
    assert chain.reserved(2001) == DEPOSIT

    chain.change_session()
    assert list(chain.channels) == [(2000, 2001)]

    dispatch = chain.send(CLOSE, para=2001)
    assert (dispatch.outcome.value, dispatch.kind) == ("ok", "hrmp_close_channel")
    assert list(dispatch.events) == [("channel_closed", u32s(2001, 2000, 2001))]
    chain.change_session()
    assert (chain.channels, chain.reserved(2000), chain.reserved(2001)) == ({}, 0, 0)


REFUSED: list[tuple[Callable[[], Harness], int, Call, str]] = [
    (chain_with, 2000, InitOpenChannel(2000, 8, 1024), "OpenHrmpChannelToSelf"),
    (chain_with, 2000, InitOpenChannel(2001, 0, 1024), "OpenHrmpChannelZeroCapacity"),
    (chain_with, 2000, InitOpenChannel(2001, 1001, 1024), "OpenHrmpChannelCapacityExceedsLimit"),
    (chain_with, 2000, InitOpenChannel(2001, 8, 0), "OpenHrmpChannelZeroMessageSize"),
    (chain_with, 2000, InitOpenChannel(2001, 8, 102_401), "OpenHrmpChannelMessageSizeExceedsLimit"),
    (chain_with, 2000, InitOpenChannel(9, 8, 1024), "OpenHrmpChannelInvalidRecipient"),
    (
        lambda: chain_with((2000, REQUEST), (2001, ACCEPT), sessions=1),
        2000,
        InitOpenChannel(2001, 8, 1024),
        "OpenHrmpChannelAlreadyExists",
    ),
    (lambda: chain_with((2000, REQUEST)), 2000, InitOpenChannel(2001, 9, 1), "OpenHrmpChannelAlreadyRequested"),
    (lambda: chain_with(balances=DEPOSIT - 1), 2000, InitOpenChannel(2001, 8, 1024), "InsufficientBalance"),
    (chain_with, 2001, AcceptOpenChannel(2000), "AcceptHrmpChannelDoesntExist"),
    (
        lambda: chain_with((2000, REQUEST), (2001, ACCEPT)),
        2001,
        AcceptOpenChannel(2000),
        "AcceptHrmpChannelAlreadyConfirmed",
    ),
    (
        lambda: chain_with((2000, REQUEST), balances={2000: DEPOSIT, 2001: 1}),
        2001,
        AcceptOpenChannel(2000),
        "InsufficientBalance",
    ),
    (chain_with, 2002, CloseChannel(2000, 2001), "CloseHrmpChannelUnauthorized"),
    (chain_with, 2000, CloseChannel(2000, 2001), "CloseHrmpChannelDoesntExist"),
    (
        lambda: chain_with((2000, REQUEST), (2001, ACCEPT)),
        2000,
        CloseChannel(2000, 2001),
        "CloseHrmpChannelDoesntExist",
    ),
]


@pytest.mark.parametrize(
    ("chain", "para", "call", "rule"), REFUSED, ids=[f"{each[3]}-{n}" for n, each in enumerate(REFUSED)]
)
def test_call_that_breaks_rule_fails_without_effect(
    chain: Callable[[], Harness], para: int, call: Call, rule: str
) -> None:
    harness = chain()
    root = harness.state_root
    dispatch = harness.send(encode(call), para)
    assert (dispatch.outcome.value, (dispatch.failure or "").partition(":")[0]) == ("failed", rule)
    assert dispatch.events == ()
    assert harness.channel_events == []
    assert harness.state_root == root


def test_second_close_request_fails() -> None:
    chain = chain_with((2000, REQUEST), (2001, ACCEPT), sessions=1)
    assert chain.send(CLOSE).outcome.value == "ok"
    assert (chain.send(CLOSE, para=2001).failure or "").startswith("CloseHrmpChannelAlreadyUnderway")


def test_requests_up_to_limit_succeed() -> None:
    paras = range(2000, 2032)
    chain = Harness(validator_hrmp_calls, paras=paras)
    ends = [chain.send(encode(InitOpenChannel(para, 1, 1))) for para in paras[1:]]
    assert [dispatch.outcome.value for dispatch in ends] == ["ok"] * 30 + ["failed"]
    assert (ends[-1].failure or "").startswith("OpenHrmpChannelLimitExceeded")


def test_acceptances_up_to_limit_succeed() -> None:
    paras = range(2000, 2032)
    chain = Harness(validator_hrmp_calls, paras=paras)
    for para in paras[1:]:
        assert chain.send(encode(InitOpenChannel(2000, 1, 1)), para).outcome.value == "ok"
    ends = [chain.send(encode(AcceptOpenChannel(para))) for para in paras[1:]]
    assert [dispatch.outcome.value for dispatch in ends] == ["ok"] * 30 + ["failed"]
    assert (ends[-1].failure or "").startswith("AcceptHrmpChannelLimitExceeded")


@pytest.mark.parametrize("payload", [REQUEST, ACCEPT, CLOSE], ids=["init", "accept", "close"])
@pytest.mark.parametrize("change", [-1, 1])
def test_message_of_wrong_size_fails_with_reason(payload: bytes, change: int) -> None:
    chain = Harness(validator_hrmp_calls)
    root = chain.state_root
    dispatch = chain.send(payload[:change] if change < 0 else payload + b"\x00")
    assert dispatch.outcome.value == "failed"
    assert dispatch.failure == (
        f"DecodeError: {dispatch.kind}: expected {len(payload)} bytes, found {len(payload) + change}"
    )
    assert (dispatch.weight, chain.calls, chain.state_root) == (WEIGHT.base, 0, root)


def test_other_calls_of_pallet_have_no_handler() -> None:
    chain = Harness(validator_hrmp_calls)
    for payload in (b"\x3c\x03", b"\x3c", b"", b"\x3d\x00" + REQUEST[2:]):
        assert chain.send(payload).outcome.value == "no_handler"


def test_call_is_charged_sum_of_its_parts() -> None:
    dispatch = Harness(validator_hrmp_calls).send(REQUEST)
    event = CALL_WEIGHTS.emit + CALL_WEIGHTS.byte * (len("open_channel_requested") + 16)
    assert dispatch.weight == WEIGHT.base + CALL_WEIGHTS.channel + event
    bounded = Harness(validator_hrmp_calls, weight_max=dispatch.weight - 1)
    root = bounded.state_root
    assert bounded.send(REQUEST).outcome.value == "out_of_weight"
    assert bounded.state_root == root


def test_configured_pallet_index_is_used() -> None:
    chain = Harness(validator_hrmp_calls, {"pallet_index": 41})
    assert chain.send(REQUEST).outcome.value == "no_handler"
    assert chain.send(encode(InitOpenChannel(2001, 8, 1024), 41)).outcome.value == "ok"


@pytest.mark.parametrize("index", [-1, 256, "60", 60.0, None])
def test_invalid_pallet_index_is_rejected(index: object) -> None:
    with pytest.raises(PluginError, match=r"hrmp-calls.*config"):
        Harness(validator_hrmp_calls, {"pallet_index": index})


def test_weights_are_unchanged() -> None:
    """Other weights give other outcomes for the same messages, so a change needs a new version."""
    assert MessageWeight(1_000) == WEIGHT
