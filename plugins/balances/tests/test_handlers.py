# SPDX-License-Identifier: Apache-2.0
"""Transfers move their value, or fail with a reason and move nothing."""

from __future__ import annotations

import pytest
import validator_balances
from hypothesis import given
from hypothesis import strategies as st
from validator_balances import TRANSFER_KEEP_ALIVE, WEIGHT, encode_transfer, sovereign_account

from validator.plugin.api import CALL_WEIGHTS, MessageWeight, hookimpl
from validator.testing import Harness, PluginError

DEPOSIT = {"existential_deposit": 10}
BALANCES = {2000: 100, 2001: 50, 2002: 0}


def chain_with(**options: object) -> Harness:
    return Harness(validator_balances, DEPOSIT, **{"balances": BALANCES, **options})  # type: ignore[arg-type]


def keep_alive(dest: int, value: int) -> bytes:
    return encode_transfer(dest, value, call_index=TRANSFER_KEEP_ALIVE)


def test_transfer_moves_its_value() -> None:
    chain = chain_with()
    dispatch = chain.send(encode_transfer(2001, 30))
    assert (dispatch.outcome.value, dispatch.handler, dispatch.kind) == (
        "ok",
        "balances@1.0.0",
        "transfer_allow_death",
    )
    assert list(dispatch.events) == [
        ("transfer", sovereign_account(2000) + sovereign_account(2001) + (30).to_bytes(16, "little"))
    ]
    assert [chain.balance(para) for para in (2000, 2001, 2002)] == [70, 80, 0]
    dispatch = chain.send(keep_alive(2002, 80 - 10), para=2001)
    assert (dispatch.outcome.value, dispatch.kind) == ("ok", "transfer_keep_alive")
    assert [chain.balance(para) for para in (2000, 2001, 2002)] == [70, 10, 70]


def test_only_allow_death_may_empty_account() -> None:
    chain = chain_with()
    root = chain.state_root
    for value, left in ((91, 9), (100, 0)):
        dispatch = chain.send(keep_alive(2001, value))
        assert (dispatch.outcome.value, dispatch.failure) == (
            "failed",
            f"NotExpendable: para 2000 would keep {left}, expected at least the existential deposit of 10",
        )
        assert (dispatch.events, chain.state_root) == ((), root)
    assert chain.send(encode_transfer(2001, 91)).outcome.value == "ok"
    assert chain.balance(2000) == 9
    assert chain.send(encode_transfer(2001, 9)).outcome.value == "ok"
    assert (chain.balance(2000), chain.balance(2001)) == (0, 150)


@pytest.mark.parametrize("encode", [encode_transfer, keep_alive], ids=["allow_death", "keep_alive"])
@pytest.mark.parametrize(
    ("dest", "value", "failure"),
    [
        (2001, 101, "ContextError: amount: expected at most the free balance of 100, found 101"),
        (2000, 101, "ContextError: amount: expected at most the free balance of 100, found 101"),
        (2002, 9, "BelowMinimum: para 2002 would hold 9, expected at least the existential deposit of 10"),
        (7, 1, "BelowMinimum: para 7 would hold 1, expected at least the existential deposit of 10"),
    ],
)
def test_transfer_that_fails_moves_nothing(encode: object, dest: int, value: int, failure: str) -> None:
    chain = chain_with()
    root = chain.state_root
    dispatch = chain.send(encode(dest, value))  # type: ignore[operator]
    assert (dispatch.outcome.value, dispatch.failure, dispatch.events) == ("failed", failure, ())
    assert [chain.balance(para) for para in (2000, 2001, 2002)] == [100, 50, 0]
    assert chain.state_root == root


def test_transfer_that_overflows_u128_fails() -> None:
    chain = chain_with(balances={2000: 100, 2001: 2**128 - 50, 2002: 0})
    dispatch = chain.send(encode_transfer(2001, 50))
    assert (dispatch.failure or "").startswith("ContextError: amount: expected the recipient's free balance to stay")
    assert chain.send(encode_transfer(2001, 49)).outcome.value == "ok"


def test_zero_transfer_and_self_transfer_change_nothing() -> None:
    chain = chain_with()
    root = chain.state_root
    for payload in (encode_transfer(2002, 0), keep_alive(9, 0), encode_transfer(2000, 100), keep_alive(2000, 100)):
        dispatch = chain.send(payload)
        assert (dispatch.outcome.value, [event.name for event in dispatch.events]) == ("ok", ["transfer"])
        assert chain.state_root == root


def test_reserved_deposits_cannot_be_spent() -> None:
    """Only free balance moves: a channel's reserved deposit stays."""
    hrmp = pytest.importorskip("validator_hrmp_calls", reason="the plugin hrmp-calls is not installed")

    class Both:
        """Two plugins' handlers under one manifest."""

        validator_manifest = staticmethod(validator_balances.validator_manifest)

        @staticmethod
        @hookimpl
        def validator_handlers(config: validator_balances.Config) -> object:
            yield from validator_balances.validator_handlers(config)
            yield from hrmp.validator_handlers(hrmp.Config())

    deposit = 100_000_000_000
    chain = Harness(Both(), DEPOSIT, balances=deposit + 20)
    assert chain.send(hrmp.encode(hrmp.InitOpenChannel(2001, 8, 1024))).outcome.value == "ok"
    assert (chain.balance(2000), chain.reserved(2000)) == (20, deposit)
    assert (chain.send(encode_transfer(2001, 21)).failure or "").startswith("ContextError: amount")
    assert chain.send(encode_transfer(2001, 20)).outcome.value == "ok"
    assert (chain.balance(2000), chain.reserved(2000)) == (0, deposit)


@given(
    transfers=st.lists(
        st.tuples(st.sampled_from((2000, 2001, 2002)), st.integers(1999, 2003), st.integers(0, 120), st.booleans()),
        max_size=12,
    )
)
def test_total_is_constant_and_failed_messages_change_no_balance(
    transfers: list[tuple[int, int, int, bool]],
) -> None:
    """Compare with balances that the test computes by the rules of the README."""
    chain = chain_with()
    expected = dict(BALANCES)
    for para, dest, value, alive in transfers:
        after = dict(expected)
        after[para] -= value
        after[dest] = after.get(dest, 0) + value
        fine = expected[para] >= value and (not value or after[dest] >= 10) and (not alive or after[para] >= 10)
        dispatch = chain.send(keep_alive(dest, value) if alive else encode_transfer(dest, value), para)
        assert dispatch.outcome.value == ("ok" if fine else "failed"), dispatch.failure
        expected = after if fine else expected
        assert {each: chain.balance(each) for each in expected} == expected
    assert sum(expected.values()) == 150


def test_transfer_to_non_para_account_fails_with_reason() -> None:
    chain = chain_with()
    payload = b"\x05\x00\x00" + b"\x11" * 32 + b"\x04"
    dispatch = chain.send(payload)
    assert (dispatch.outcome.value, dispatch.failure, dispatch.weight) == (
        "failed",
        f"DecodeError: dest: expected the sovereign account of a para, found {'11' * 32}",
        WEIGHT.base,
    )
    assert chain.calls == 0


def test_other_calls_of_pallet_have_no_handler() -> None:
    chain = chain_with()
    for payload in (b"\x05", b"\x05\x01" + bytes(34), b"\x05\x04", b"\x04\x00" + encode_transfer(2001, 1)[2:]):
        assert chain.send(payload).outcome.value == "no_handler"


def test_transfer_is_charged_sum_of_its_parts() -> None:
    event = CALL_WEIGHTS.emit + CALL_WEIGHTS.byte * (len("transfer") + 32 + 32 + 16)
    moved = WEIGHT.base + CALL_WEIGHTS.transfer + event
    weights = [chain_with().send(payload).weight for payload in (encode_transfer(2001, 0), encode_transfer(2001, 10))]
    assert weights == [moved, moved + CALL_WEIGHTS.free_balance]
    assert chain_with().send(keep_alive(2001, 10)).weight == moved + 2 * CALL_WEIGHTS.free_balance


def test_transfer_without_enough_weight_moves_nothing() -> None:
    weight = chain_with().send(keep_alive(2001, 10)).weight
    for limit in (WEIGHT.base - 1, WEIGHT.base, weight - 1):
        chain = chain_with(weight_max=limit)
        root = chain.state_root
        dispatch = chain.send(keep_alive(2001, 10))
        assert (dispatch.outcome.value, dispatch.weight, chain.state_root) == ("out_of_weight", limit, root)


def test_configured_pallet_index_is_used() -> None:
    chain = Harness(validator_balances, {"pallet_index": 4, "existential_deposit": 0}, balances=BALANCES)
    assert chain.send(encode_transfer(2001, 1)).outcome.value == "no_handler"
    assert chain.send(encode_transfer(2002, 1, pallet_index=4)).outcome.value == "ok"
    assert chain.balance(2002) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"pallet_index": -1},
        {"pallet_index": 256},
        {"pallet_index": "5"},
        {"existential_deposit": -1},
        {"existential_deposit": 2**128},
        {"existential_deposit": 1.5},
        {"existential": 1},
    ],
    ids=str,
)
def test_invalid_configuration_is_rejected(config: dict[str, object]) -> None:
    with pytest.raises(PluginError, match=r"balances.*config"):
        Harness(validator_balances, config)


def test_account_of_unknown_para_is_kept() -> None:
    chain = chain_with()
    assert chain.send(encode_transfer(4321, 10)).outcome.value == "ok"
    chain.restart()
    chain.change_session(onboarding=[4321])
    chain.restart()
    assert chain.send(encode_transfer(2002, 10), para=4321).outcome.value == "ok"
    assert (chain.balance(4321), chain.balance(2002)) == (0, 10)


def test_transfer_without_ledger_moves_nothing() -> None:
    for deposit, outcome in ((10, "failed"), (0, "ok")):
        chain = Harness(validator_balances, {"existential_deposit": deposit}, balances=0, unlimited=True)
        root = chain.state_root
        dispatch = chain.send(keep_alive(2001, 20))
        assert (dispatch.outcome.value, chain.state_root) == (outcome, root), dispatch.failure


def test_weights_are_unchanged() -> None:
    """Other weights give other outcomes for the same messages, so a change needs a new version."""
    assert MessageWeight(1_000) == WEIGHT
