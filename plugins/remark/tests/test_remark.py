# SPDX-License-Identifier: Apache-2.0
"""The plugin stores the hash of each para's latest remark under the para's id, and passes the contract of handler plugins."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import pytest
import validator_remark
from hypothesis import given
from hypothesis import strategies as st
from validator_remark import REMARK, REMARK_WITH_EVENT, WEIGHT, decode_remark

from validator.plugin.api import CALL_WEIGHTS, DecodeError, MessageWeight
from validator.plugin.protocol_api import Writer
from validator.testing import Example, HandlerContract, Harness, PluginError

HELLO = b"\x14hello"
HASH = blake2b(b"hello", digest_size=32).digest()
PARA = (2000).to_bytes(4, "little")


class TestRemark(HandlerContract):
    plugin = validator_remark
    examples = (
        REMARK + HELLO,
        REMARK_WITH_EVENT + HELLO,
        REMARK_WITH_EVENT + b"\x00",
        Example(REMARK + HELLO, para=2001, setup=lambda chain: chain.send(REMARK + b"\x00", para=2001)),
    )
    readme = Path(__file__).parents[1] / "README.md"


def encode_remark(text: bytes) -> bytes:
    out = Writer()
    out.buffer += REMARK
    out.bytes(text)
    return bytes(out.buffer)


def test_hash_is_stored_under_para_id() -> None:
    chain = Harness(validator_remark)
    dispatch = chain.send(REMARK + HELLO)
    assert (dispatch.outcome.value, dispatch.handler, dispatch.kind) == ("ok", "remark@1.0.0", "remark")
    assert dispatch.events == ()
    assert chain.state == {PARA: HASH}
    dispatch = chain.send(REMARK_WITH_EVENT + b"\x00", para=2001)
    empty = blake2b(b"", digest_size=32).digest()
    assert (dispatch.kind, list(dispatch.events)) == ("remark_with_event", [("remarked", empty)])
    assert chain.state == {PARA: HASH, (2001).to_bytes(4, "little"): empty}
    chain.send(REMARK + HELLO, para=2001)
    assert chain.state == {PARA: HASH, (2001).to_bytes(4, "little"): HASH}
    chain.restart()
    assert chain.state == {PARA: HASH, (2001).to_bytes(4, "little"): HASH}


@given(text=st.binary(max_size=300))
def test_encoded_remark_decodes_to_same_text(text: bytes) -> None:
    assert decode_remark(encode_remark(text)) == text


@given(text=st.binary(max_size=100), more=st.binary(min_size=1, max_size=3), data=st.data())
def test_truncated_or_extended_remark_is_rejected(text: bytes, more: bytes, data: st.DataObject) -> None:
    payload = encode_remark(text)
    with pytest.raises(DecodeError, match=f"^{len(more)} bytes left over at offset {len(payload)}$"):
        decode_remark(payload + more)
    cut = data.draw(st.integers(2, len(payload) - 1))
    with pytest.raises(DecodeError, match="bytes expected at offset"):
        decode_remark(payload[:cut])


@pytest.mark.parametrize(
    ("payload", "failure"),
    [
        (REMARK, "DecodeError: 1 bytes expected at offset 2, 0 left"),
        (REMARK + HELLO[:-1], "DecodeError: 5 bytes expected at offset 3, 4 left"),
        (REMARK_WITH_EVENT + HELLO + b"!", "DecodeError: 1 bytes left over at offset 8"),
        (REMARK + b"\x15\x00hello", "DecodeError: compact integer at offset 2 is not in its shortest form"),
    ],
)
def test_malformed_remark_fails_with_reason(payload: bytes, failure: str) -> None:
    chain = Harness(validator_remark)
    root = chain.state_root
    dispatch = chain.send(payload)
    assert (dispatch.outcome.value, dispatch.failure, dispatch.weight) == ("failed", failure, WEIGHT.of(payload))
    assert (chain.calls, chain.state, chain.state_root) == (0, {}, root)


def test_oversized_remark_is_rejected() -> None:
    chain = Harness(validator_remark)
    longest = 65_536 - len(REMARK) - 4
    assert chain.send(encode_remark(bytes(longest))).outcome.value == "ok"
    dispatch = chain.send(encode_remark(bytes(longest + 1)))
    assert dispatch.failure == "OversizePayload: expected at most 65536 bytes, found 65537"


def test_other_calls_of_pallet_have_no_handler() -> None:
    chain = Harness(validator_remark)
    for payload in (b"", b"\x00", b"\x00\x01" + HELLO, b"\x00\x08", b"\x01\x00" + HELLO):
        assert chain.send(payload).outcome.value == "no_handler"


def test_remark_is_charged_for_bytes_and_context_calls() -> None:
    payload = REMARK + HELLO
    kept = WEIGHT.base + WEIGHT.per_byte * len(payload) + CALL_WEIGHTS.write + CALL_WEIGHTS.byte * (4 + 32)
    emitted = CALL_WEIGHTS.emit + CALL_WEIGHTS.byte * (len("remarked") + 32)
    assert Harness(validator_remark).send(payload).weight == kept
    assert Harness(validator_remark).send(REMARK_WITH_EVENT + HELLO).weight == kept + emitted
    for limit in (WEIGHT.of(payload) - 1, kept - 1, kept + emitted - 1):
        chain = Harness(validator_remark, weight_max=limit)
        dispatch = chain.send(REMARK_WITH_EVENT + HELLO)
        assert (dispatch.outcome.value, dispatch.weight, chain.state) == ("out_of_weight", limit, {})


def test_configuration_is_rejected() -> None:
    with pytest.raises(PluginError, match=r"it has no configuration, found .*pallet_index"):
        Harness(validator_remark, {"pallet_index": 0})


def test_weights_are_unchanged() -> None:
    """Other weights give other outcomes for the same messages, so a change needs a new version."""
    assert MessageWeight(500, per_byte=1) == WEIGHT
