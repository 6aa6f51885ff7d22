# SPDX-License-Identifier: Apache-2.0
"""The episode of gateways: what a peer submits of the world's traffic, and what counts as written twice."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from tests.crash.gateways import CODEC, divided, more_than_once, paras_of
from tests.crash.traffic import Sent, Traffic, chains_of
from validator.codec.json_form import encode_input, to_json
from validator.core.inputs import RecordKind

CHAINS = chains_of(4, 3, 30)
WORLD: Any = SimpleNamespace(chains=CHAINS)


def test_peer_submits_every_candidate_once_with_the_same_bytes() -> None:
    traffic = Traffic(CHAINS, Random(1), 3)
    records = [sent for _ in range(4) for sent in traffic.segment()]
    through, direct = divided(records, paras_of(WORLD))
    assert sorted(through + direct) == sorted(records)
    assert len({sent.value for sent in through}) == len(through) > 50
    good = {each.value for chain in CHAINS for each in chain.records if each.topic == "candidates"}
    assert {sent.value for sent in through} == {sent.value for sent in records} & good
    for sent in through:
        again = encode_input(CODEC, RecordKind.CANDIDATE, to_json("candidates", sent.value, CODEC), "router")
        assert again == sent.value


def test_record_that_is_there_again_is_counted_each_time() -> None:
    written = [Sent("candidates", b"a", value) for value in (b"1", b"2", b"1", b"3", b"1")]
    assert more_than_once(written) == [written[2], written[4]]
    assert more_than_once([]) == []
