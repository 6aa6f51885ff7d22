# SPDX-License-Identifier: Apache-2.0
"""Handler state as pages: canonical, one page for each owner, and part of the state root."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.handlers.relay import host_of, relay
from validator.core.handlers import state as state_module
from validator.core.handlers.errors import ContextError
from validator.core.handlers.state import (
    BUCKETS,
    FIRST_OWNER,
    PAGE,
    HandlerStates,
    is_handler_page,
    owner_of,
)
from validator.core.rules import pages
from validator.core.scale import DecodeError, Writer
from validator.protocols.router.encoding import decode_state, encode_state
from validator.protocols.router.rules import ROUTER

Kept: TypeAlias = dict[tuple[str, bytes], bytes]

PLUGINS = st.sampled_from(("one", "two"))
KEYS = st.binary(min_size=1, max_size=2)
PUTS = st.lists(st.tuples(PLUGINS, KEYS, st.none() | st.binary(max_size=3)), max_size=20)


@pytest.fixture(autouse=True)
def few_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few buckets, so that pages hold several keys."""
    monkeypatch.setattr(state_module, "BUCKETS", 4)


def put_all(puts: list[tuple[str, bytes, bytes | None]]) -> tuple[HandlerStates, Kept]:
    """Return handler states and a plain dictionary after the same writes."""
    states, model = HandlerStates(), {}
    for plugin, key, value in puts:
        states.put(plugin, key, value)
        if value is None:
            model.pop((plugin, key), None)
        else:
            model[plugin, key] = value
    return states, model


def loaded(encoded: list[bytes]) -> HandlerStates:
    states = HandlerStates()
    for page in encoded:
        states.load(page)
    return states


def encoded(states: HandlerStates) -> list[bytes]:
    made = [states.page(owner) for owner in states.owners()]
    assert None not in made
    return [page for page in made if page]


@given(PUTS)
def test_handler_states_behave_like_dictionary(puts: list[tuple[str, bytes, bytes | None]]) -> None:
    states, model = put_all(puts)
    assert list(states.entries()) == [(*names, value) for names, value in sorted(model.items())]
    for plugin in ("one", "two"):
        own = {key: value for (name, key), value in model.items() if name == plugin}
        assert [(key, value) for _, key, value in states.entries(plugin)] == sorted(own.items())
        assert states.bytes_used.get(plugin) == (sum(len(key) + len(value) for key, value in own.items()) or None)
        assert all(states.get(plugin, key) == value for key, value in own.items())


@given(PUTS, st.randoms())
def test_pages_are_canonical_and_round_trip(puts: list[tuple[str, bytes, bytes | None]], random: object) -> None:
    states, model = put_all(puts)
    written = encoded(states)
    assert [owner_of(page) for page in written] == states.owners()
    assert all(is_handler_page(page) and FIRST_OWNER <= owner_of(page) < FIRST_OWNER + 4 for page in written)
    again = [(plugin, key, value) for (plugin, key), value in model.items()]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert encoded(put_all(again)[0]) == written  # type: ignore[arg-type]
    back = loaded(written)
    assert encoded(back) == written
    assert (list(back.entries()), back.bytes_used) == (list(states.entries()), states.bytes_used)
    assert not back.touched


@given(PUTS, st.data())
def test_touched_owners_cover_changed_pages(puts: list[tuple[str, bytes, bytes | None]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(puts)))
    states, _ = put_all(puts[:at])
    before = {owner: states.page(owner) for owner in range(FIRST_OWNER, FIRST_OWNER + 4)}
    states.touched.clear()
    for put in puts[at:]:
        states.put(*put)
    assert {owner for owner, page in before.items() if states.page(owner) != page} <= set(states.touched)


@given(PUTS.filter(bool), st.data())
def test_changed_byte_is_refused_or_gives_another_page(
    puts: list[tuple[str, bytes, bytes | None]], data: st.DataObject
) -> None:
    written = encoded(put_all(puts)[0])
    if not written:
        return
    page = bytearray(data.draw(st.sampled_from(written)))
    damage = data.draw(st.sampled_from(("byte", "cut", "longer")))
    if damage == "byte":
        page[data.draw(st.integers(0, len(page) - 1))] ^= data.draw(st.integers(1, 255))
    elif damage == "cut":
        del page[data.draw(st.integers(0, len(page) - 1)) :]
    else:
        page += b"\0"
    try:
        states = loaded([bytes(page)])
    except DecodeError:
        return
    assert damage == "byte"
    assert encoded(states) == [bytes(page)]


def page_of(*entries: tuple[bytes, bytes, bytes], owner: int) -> bytes:
    out = Writer()
    out.u8(PAGE.version)
    out.u64(owner)
    out.compact(len(entries))
    for entry in entries:
        for part in entry:
            out.bytes(part)
    return bytes(out.buffer)


def test_non_canonical_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "BUCKETS", 1)
    one, two = (b"p", b"a", b"1"), (b"p", b"b", b"2")
    assert loaded([page_of(one, two, owner=FIRST_OWNER)]).get("p", b"b") == b"2"
    for entries in ((two, one), (one, one, two), ()):
        with pytest.raises(DecodeError, match="the page of owner 4294967296 is not in canonical form"):
            loaded([page_of(*entries, owner=FIRST_OWNER)])
    with pytest.raises(DecodeError, match="key 61 of p lies in the page of owner 4294967297"):
        loaded([page_of(one, owner=FIRST_OWNER + 1)])
    with pytest.raises(DecodeError, match="a plugin's name: "):
        loaded([page_of((b"\xff", b"a", b""), owner=FIRST_OWNER)])
    with pytest.raises(DecodeError, match="handler state encoding version 130, expected 129"):
        loaded([b"\x82" + page_of(one, owner=FIRST_OWNER)[1:]])
    with pytest.raises(DecodeError):
        loaded([b""])
    monkeypatch.setattr(state_module, "HANDLER_STATE_BYTES_MAX", 3)
    with pytest.raises(DecodeError, match="p: expected at most 3 bytes of state, found 4"):
        loaded([page_of(one, two, owner=FIRST_OWNER)])


def test_write_over_limit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "HANDLER_STATE_BYTES_MAX", 6)
    states = HandlerStates()
    states.put("p", b"a", b"12345")
    states.touched.clear()
    before = encoded(states)
    for key, value in ((b"a", b"123456"), (b"b", b"")):
        with pytest.raises(ContextError):
            states.put("p", key, value)
    assert (encoded(states), states.touched, states.bytes_used) == (before, {}, {"p": 6})


def test_handler_owners_follow_para_ids() -> None:
    assert (BUCKETS, FIRST_OWNER) == (1024, 2**32)
    assert PAGE.version >= 0x80


# --- with the rest of the state ---


def test_state_root_covers_handler_state() -> None:
    router = relay()
    host = host_of(router)
    roots = [router.state_root()]
    for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", None), (b"a", b"1")):
        host.write("p", key, value)
        assert router.state_root() == ROUTER.root_of(router.state)
        roots.append(router.state_root())
    assert roots[4] == roots[2]
    assert roots[5] == roots[1]
    assert len(set(roots)) == 4
    host.write("q", b"a", b"1")
    assert router.state_root() not in roots


def test_router_restores_handler_state_and_reports_changed_owners() -> None:
    router = relay()
    host = host_of(router)
    for key in (b"a", b"b", b"c", b"d", b"e"):
        host.write("p", key, key)
    router.state_root()
    router.mark_saved()
    again = ROUTER.from_pages(pages(router))
    assert pages(again) == pages(router)
    assert again.state_root() == router.state_root() == ROUTER.root_of(router.state)
    assert not again.changed()
    host_of(again).write("p", b"a", None)
    (owner,) = again.changed()
    assert owner >= FIRST_OWNER
    common, owned = encode_state(again.state)
    assert list(decode_state(common, owned.values()).handler_states.entries()) == [
        ("p", key, key) for key in (b"b", b"c", b"d", b"e")
    ]
