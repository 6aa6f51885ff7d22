# SPDX-License-Identifier: Apache-2.0
"""A message's identity has one text, which is safe in a URL."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_journeys.identity import NUMBER_MAX, Identity, IdentityError, Kind, parse

U32 = st.integers(0, 2**32 - 1)


@st.composite
def identities(draw: st.DrawFn) -> Identity:
    kind = draw(st.sampled_from(Kind))
    return Identity(
        draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)),
        kind,
        None if kind is Kind.DOWNWARD else draw(U32),
        None if kind is Kind.UPWARD else draw(U32),
        draw(U32),
        draw(st.integers(-NUMBER_MAX, NUMBER_MAX)),
    )


@given(identities())
def test_a_text_names_one_message(identity: Identity) -> None:
    text = str(identity)
    assert parse(text) == identity
    assert quote(text, safe="") == text


def test_texts() -> None:
    assert str(Identity("a.b", Kind.HORIZONTAL, 2000, 2004, 17, 5)) == "a.b.horizontal.2000.2004.17.5"
    assert str(Identity("polkadot", Kind.DOWNWARD, None, 2004, 0, -3)) == "polkadot.downward.relay.2004.0.-3"
    assert str(Identity("polkadot", Kind.UPWARD, 2000, None, 0, 1)) == "polkadot.upward.2000.relay.0.1"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "expected LANE"),
        ("horizontal.2000.2004.17.5", "expected LANE"),
        ("Polkadot.horizontal.2000.2004.17.5", "lane"),
        (".horizontal.2000.2004.17.5", "lane"),
        ("p.sideways.2000.2004.17.5", "kind"),
        ("p.horizontal.relay.2004.17.5", "sender"),
        ("p.horizontal.02000.2004.17.5", "sender"),
        ("p.downward.2000.2004.17.5", "sender"),
        ("p.horizontal.2000.4294967296.17.5", "recipient"),
        ("p.upward.2000.2004.17.5", "recipient"),
        ("p.horizontal.2000.2004.-1.5", "opened_at"),
        ("p.horizontal.2000.2004.17.-0", "number"),
        ("p.horizontal.2000.2004.17.05", "number"),
        ("p.horizontal.2000.2004.17.9223372036854775808", "number"),
        ("p.horizontal.2000.2004.17.٣", "number"),
        ("p.horizontal.2000.2004.17.5\n", "number"),
    ],
)
def test_wrong_text_names_its_part(text: str, part: str) -> None:
    with pytest.raises(IdentityError, match=f"message id: {part}"):
        parse(text)
