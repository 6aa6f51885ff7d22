# SPDX-License-Identifier: Apache-2.0
"""Journal entries decode to the batch they were written from; everything else is refused."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs import codec_for, decoded, encoded
from tests.unit.codec.records import DEAD_LETTER, INPUTS, SOURCE
from validator.core.inputs import DeadLetter, Input
from validator.core.scale import DecodeError
from validator.lanes.definition import JournalUnreadable
from validator.lanes.store import decode_entry, encode_entry


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    kind = draw(st.sampled_from(sorted(INPUTS)))
    source = draw(SOURCE)._replace(partition=draw(st.integers(0, 2**31 - 1)))
    result = decoded(kind, encoded(kind, draw(INPUTS[kind])), source)
    assert not isinstance(result, DeadLetter), result
    return result[1]


@given(st.lists(inputs() | DEAD_LETTER, max_size=8))
def test_batch_round_trips_in_order_with_dead_letters_as_count(batch: list[Input | DeadLetter]) -> None:
    again, dead = decode_entry(codec_for(), encode_entry(batch))
    assert again == [item for item in batch if isinstance(item, Input)]
    assert dead == sum(isinstance(item, DeadLetter) for item in batch)
    assert all(
        type(item.kind) is type(other.kind)
        for item, other in zip(again, batch, strict=False)
        if isinstance(other, Input)
    )


@given(st.lists(inputs(), min_size=1, max_size=4))
def test_truncated_entry_is_refused(batch: list[Input]) -> None:
    entry = encode_entry(batch)
    for end in {0, 1, 2, 3, len(entry) // 2, len(entry) - 1}:
        with pytest.raises((DecodeError, JournalUnreadable)):
            decode_entry(codec_for(), entry[:end])
    with pytest.raises(DecodeError, match="left over"):
        decode_entry(codec_for(), entry + b"\0")


def test_entry_of_other_version_is_refused() -> None:
    entry = encode_entry([])
    assert entry[0] == 1
    with pytest.raises(DecodeError, match="journal version 2, expected 1"):
        decode_entry(codec_for(), b"\x02" + entry[1:])


@given(inputs())
def test_undecodable_record_is_reported_with_its_source(item: Input) -> None:
    broken = item._replace(raw=item.raw[:-1])
    with pytest.raises(JournalUnreadable) as caught:
        decode_entry(codec_for(), encode_entry([broken]))
    topic, partition, offset = item.source
    assert f"{topic}[{partition}]@{offset}" in str(caught.value)


@given(st.lists(inputs(), max_size=4))
def test_entry_is_not_a_pickle(batch: list[Input]) -> None:
    with pytest.raises(
        (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, AttributeError, ImportError)
    ):
        pickle.loads(encode_entry(batch))
