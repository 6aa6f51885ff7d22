# SPDX-License-Identifier: Apache-2.0
"""What the journal keeps of a batch comes back as it was, and nothing else does."""

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
from validator.lanes.journal import JOURNAL_VERSION, decode_entry, encode_entry


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    kind = draw(st.sampled_from(sorted(INPUTS)))
    source = draw(SOURCE)._replace(partition=draw(st.integers(0, 2**31 - 1)))
    made = decoded(kind, encoded(kind, draw(INPUTS[kind])), source)
    assert not isinstance(made, DeadLetter), made
    return made[1]


@given(st.lists(inputs() | DEAD_LETTER, max_size=8))
def test_a_batch_comes_back_in_its_order_and_dead_letters_as_a_count(batch: list[Input | DeadLetter]) -> None:
    again, dead = decode_entry(codec_for(), encode_entry(batch))
    assert again == [item for item in batch if isinstance(item, Input)]
    assert dead == sum(isinstance(item, DeadLetter) for item in batch)
    assert all(
        type(item.kind) is type(other.kind)
        for item, other in zip(again, batch, strict=False)
        if isinstance(other, Input)
    )


@given(st.lists(inputs(), min_size=1, max_size=4))
def test_every_truncation_is_refused(batch: list[Input]) -> None:
    entry = encode_entry(batch)
    for end in {0, 1, 2, 3, len(entry) // 2, len(entry) - 1}:
        with pytest.raises((DecodeError, JournalUnreadable)):
            decode_entry(codec_for(), entry[:end])
    with pytest.raises(DecodeError, match="left over"):
        decode_entry(codec_for(), entry + b"\0")


def test_an_entry_names_its_version_and_another_one_is_refused() -> None:
    entry = encode_entry([])
    assert entry[0] == JOURNAL_VERSION
    with pytest.raises(DecodeError, match=f"journal version {JOURNAL_VERSION + 1}, expected {JOURNAL_VERSION}"):
        decode_entry(codec_for(), bytes([JOURNAL_VERSION + 1]) + entry[1:])


@given(inputs())
def test_a_record_that_decodes_no_more_says_where_it_came_from(item: Input) -> None:
    broken = item._replace(raw=item.raw[:-1])
    with pytest.raises(JournalUnreadable) as told:
        decode_entry(codec_for(), encode_entry([broken]))
    topic, partition, offset = item.source
    assert f"{topic}[{partition}]@{offset}" in str(told.value)


@given(st.lists(inputs(), max_size=4))
def test_an_entry_is_no_pickle(batch: list[Input]) -> None:
    with pytest.raises(
        (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, AttributeError, ImportError)
    ):
        pickle.loads(encode_entry(batch))
