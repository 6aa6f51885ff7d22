# SPDX-License-Identifier: Apache-2.0
"""Chains that count their versions themselves, and types by other names: what the metadata shows decides. Source: chain_2026 section 5."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from relay_world import FIRST, SPEC, Collected, World, busy_chain, empty_chain, metadata, runtime
from relay_world import configuration as configured
from test_blocks import first_block
from validator_relay_chain import layout, source
from validator_relay_chain.block import decode_block
from validator_relay_chain.command import adopt_rules
from validator_relay_chain.errors import ParentUnknown, RulesWanted
from validator_relay_chain.limits import RECENT_HASHES
from validator_relay_chain.metadata import Runtime
from validator_relay_chain.pool import NodePool
from validator_relay_chain.prepare import configuration, prepare
from validator_relay_chain.rules import UNSEEN, RulesGuard, decode_configuration, features_of, guess_of, read_rules
from validator_simulators.relay_chain import MockNode
from validator_simulators.relay_chain.made import MadeCandidate, MadeChain

from validator.config.toml import to_toml
from validator.plugin.api import Writer

OWN = "our-relay"


class Shown:
    """A runtime that shows what a test wants."""

    def __init__(
        self, name: str, version: int, *, calls: tuple[str, ...] = (), items: tuple[str, ...] = (), **flags: bool
    ) -> None:
        self.spec_name, self.spec_version = name, version
        self._calls, self._items = calls, items
        self.has_signals = flags.get("signals", False)
        self.has_downward_pages = flags.get("pages", False)
        self.has_scheduling_parents = flags.get("parents", False)
        self.configuration_fields = () if flags.get("one_limit") else ("hrmp_max_parathread_inbound_channels",)

    def has_call(self, pallet: str, call: str) -> bool:
        return call in self._calls

    def has(self, pallet: str, item: str) -> bool:
        return item in self._items


def features(*given: Any, before: tuple[str, ...] = (), **shown: Any) -> set[str]:
    return set(features_of(cast("Runtime", Shown(*given, **shown)), before))


CALLS = ("hrmp_cancel_open_request", "force_open_hrmp_channel")
NEWER = (*CALLS, "establish_channel_with_system")
ALL = {"one_limit": True, "items": ("DeliveryFeeFactor", "BookStateFor"), "calls": CALLS}


@pytest.mark.parametrize(
    ("shown", "unseen"),
    [
        ({}, set()),
        ({"items": ("DeliveryFeeFactor",)}, set()),
        (ALL, {"relaxed_watermark"}),
        (ALL | {"calls": NEWER}, {"relaxed_watermark", "force_open_channel", "dmp_by_relay_parent"}),
        (ALL | {"signals": True}, set(UNSEEN) - {"watermark_may_stay", "approved_peer_signal"}),
        (ALL | {"signals": True, "pages": True}, set(UNSEEN)),
        (ALL | {"signals": True, "parents": True}, set(UNSEEN)),
    ],
)
@pytest.mark.parametrize("version", [1, 9_999_999])
def test_version_of_another_chain_decides_nothing(shown: Any, unseen: set[str], version: int) -> None:
    found = features(OWN, version, **shown)
    assert found & UNSEEN.keys() == unseen
    assert ("force_open_channel_plain" in found) == ("force_open_channel" not in found and shown.get("calls") == CALLS)


def test_versions_of_known_chains_decide() -> None:
    everything = ALL | {"signals": True, "pages": True}
    assert not features("polkadot", 9_429, **everything) & (UNSEEN.keys() - {"force_open_channel"})
    assert "downward_needs_head" in features("kusama", 1_004_000, **ALL)
    assert "downward_needs_head" not in features("westend", 1_004_000, **ALL)
    assert "approved_peer_signal" in features("rococo", 1_019_000, **everything)
    assert "approved_peer_signal" not in features("paseo", 2_000_000, **ALL), "it needs signals"


def test_what_a_lane_had_stays_at_an_upgrade() -> None:
    assert "watermark_may_stay" in features(OWN, 2, before=("watermark_may_stay", "message_queue"), **ALL)
    assert "message_queue" not in features(OWN, 2, before=("message_queue",), one_limit=True), "metadata shows that one"
    assert "watermark_may_stay" not in features("polkadot", 9_430, before=("watermark_may_stay",), **ALL)


@pytest.mark.parametrize("name", ["polkadot", "kusama", "paseo", "westend", "rococo"])
def test_known_chains_are_not_guessed(name: str) -> None:
    assert guess_of(cast("Runtime", Shown(name, 1))) is None


@cache
def load(name: str, version: int, raw: bytes) -> Runtime:
    return Runtime(name, version, raw)


def test_one_line_says_what_was_guessed_and_a_change_of_it_counts(tmp_path: Path) -> None:
    chain = busy_chain()
    for version in (SPEC, SPEC + 1):
        chain.recording.versions[version] = {"specName": OWN, "specVersion": version}
    world, folder = World([], tmp_path), tmp_path / "lane"
    with MockNode(chain.recording, head=FIRST + 20) as node:
        world.urls = [node.url]
        prepared = prepare(world.chain(), "ours", folder, from_block=FIRST + 2, tell=world.tell)
    (line,) = [line for line in world.told if "guessed" in line]
    (entry,) = prepared.rules
    assert line == (
        "no version of our-relay is known here: since its metadata shows one limit of channels for all paras, what it does not show is "
        "guessed from polkadot 9430; if the judge disagrees, change this line in [[chains.ours.rules]]: "
        f"features = {json.dumps(entry['features'])}"
    )
    config = tmp_path / "validator.toml"
    text = to_toml(configuration(prepared, ["ws://127.0.0.1:1"], str(folder), None))
    config.write_text(text.replace('"relaxed_watermark"', '"watermark_may_stay"'))
    adopt_rules(config)
    guard = RulesGuard("ours", folder)
    assert "watermark_may_stay" in guard.features_at(FIRST + 9)
    assert "relaxed_watermark" not in guard.features_at(FIRST + 9)
    with pytest.raises(RulesWanted, match=r"lacks: \+ relaxed_watermark \(no version of our-relay is known here"):
        guard.check(FIRST + 9, load(OWN, 2, metadata()))
    assert read_rules(folder).wanted is not None
    assert {"watermark_may_stay", "relaxed_watermark"} <= {*(read_rules(folder).wanted or entry).features}  # type: ignore[union-attr]


# --- relay parents ---

OLD = FIRST + 3
"""A relay parent, more blocks before the candidates than a cursor knows."""
BACKED = (OLD + RECENT_HASHES + 5, OLD + RECENT_HASHES + 9)


@cache
def chain_with_old_parents() -> MadeChain:
    chain = empty_chain()
    parent = b""
    for number in range(FIRST, BACKED[-1] + 1):
        backed = [MadeCandidate(para, parent, number - 1) for para in (1000, 2000)] if number in BACKED else []
        chain.add(backed=backed, included=sorted(chain._pending))
        parent = chain.parent if number == OLD else parent
    return chain


def old_parents(out: Collected) -> list[int]:
    return [each["relay_parent_number"] for number in BACKED for each in out.of("candidates", number)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the hashes whose headers are asked for."""
    found: list[str] = []
    ask = NodePool.ask

    def noted(pool: NodePool, read: Any, method: str, *params: Any, **named: Any) -> Any:
        found.extend(params if method == "chain_getHeader" else ())
        return ask(pool, read, method, *params, **named)

    monkeypatch.setattr(NodePool, "ask", noted)
    return found


@pytest.mark.parametrize("start", [None, BACKED[0] - 1])
def test_old_relay_parent_is_asked_for_once_at_most(tmp_path: Path, asked: list[str], start: int | None) -> None:
    """Not at all if the process has followed it; once if it has started later."""
    chain = chain_with_old_parents()
    with MockNode(chain.recording) as node:
        world, out = World([node.url], tmp_path), Collected()
        seed = world.seed()
        if start is not None:
            world.to_block = start
            world.follow(out, seed)
        asked.clear()
        world.to_block = chain.number
        world.follow(out, seed)
    assert old_parents(out) == [OLD] * 4
    assert asked.count(chain.recording.canonical[OLD]) == (0 if start is None else 1)


def test_relay_parent_that_no_node_knows_stops_the_lane_with_its_block(tmp_path: Path) -> None:
    chain = empty_chain()
    chain.add()
    chain.add(backed=[MadeCandidate(1000, b"\x07" * 32, FIRST)])
    with MockNode(chain.recording) as node:
        world = World([node.url], tmp_path, to_block=chain.number)
        with pytest.raises(
            ParentUnknown,
            match=rf"block {FIRST + 1}: the relay parent of a candidate is block 0x0707.* is needed.*block 0x0707.* is not known",
        ):
            world.follow(Collected(), world.seed())


def test_numbers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "NUMBERS_MAX", 2)
    chain = busy_chain(FIRST + 9)
    with MockNode(chain.recording) as node:
        read = World([node.url], tmp_path).chain()
        hashes = [bytes.fromhex(chain.recording.canonical[FIRST + at][2:]) for at in range(5)]
        assert [read.number_of(each) for each in hashes] == list(range(FIRST, FIRST + 5))
        assert len(read._numbers) == 2
        read.pool.close()


# --- descriptors ---


def test_descriptor_by_another_name_decodes_the_same() -> None:
    raw = metadata()
    assert b"CandidateDescriptor" in raw
    other = Runtime("polkadot", SPEC, raw.replace(b"CandidateDescriptor", b"CandidateDescriptoX"))
    assert other.unread == runtime().unread
    assert decode_block(first_block(), other) == decode_block(first_block(), runtime())


PRIMITIVES = ("u8", "u16", "u32", "b32", "b24", "b25", "b64", "<>")


def types_of(*parts: str) -> dict[int, Any]:
    """Return a registry whose last type is a struct of parts."""
    types: dict[int, Any] = {}
    for at, part in enumerate(PRIMITIVES):
        if part[0] == "b":
            made: Any = {"array": {"len": int(part[1:]), "type": 0}}
        elif part == "<>":
            made = {"variant": {"variants": [{"index": at, "fields": []} for at in range(3)]}}
        else:
            made = {"primitive": part}
        types[at] = {"path": [], "def": made}
    fields = [{"name": f"field{at}", "type": PRIMITIVES.index(part)} for at, part in enumerate(parts)]
    types[len(types)] = {"path": ["any", "Name"], "def": {"composite": {"fields": fields}}}
    return types


TAIL = ("b32", "b32", "b32")
SECOND = ("u32", "b32", "u8", "u16", "u32", "u8", "b24", *TAIL, "b64", "b32", "b32")
THIRD = ("u32", "b32", "u8", "u16", "u32", "u8", "b24", *TAIL, "b32", "b32", "b32", "b32")


@pytest.mark.parametrize(
    ("parts", "is_descriptor", "has_signals"),
    [
        (("u32", "b32", "b32", *TAIL, "b64", "b32", "b32"), True, False),
        (SECOND, True, True),
        (THIRD, True, True),
        (("u32", "b32", "<>", *SECOND[3:]), True, True),
        (("u32", "b32", "u8", "u16", "u32", "b25", *SECOND[7:]), True, True),
        ((*SECOND[:-1], "b24"), False, False),
        (("b32", "u32", *SECOND[2:]), False, False),
    ],
)
def test_descriptor_is_known_by_its_layout(parts: tuple[str, ...], is_descriptor: bool, has_signals: bool) -> None:
    types = types_of(*parts)
    assert (layout.shape(types, len(types) - 1) == layout.DESCRIPTOR) == is_descriptor
    assert layout.has_signals(types) == has_signals


# --- constants ---

SYSTEM = b"DefaultChannelSizeAndCapacityWithSystem"


def with_constant(name: bytes, value: bytes) -> bytes:
    """Return the shipped metadata with a constant of the pallet ``Hrmp``, which has none there."""
    raw = metadata()
    registry = load("polkadot", SPEC, raw)._types
    calls, events = (
        next(at for at, each in registry.items() if each["path"][-3:] == ["hrmp", "pallet", kind])
        for kind in ("Call", "Event")
    )
    before, made = Writer(), Writer()
    for each in (calls, events):
        before.u8(1)
        before.compact(each)
    at = raw.index(bytes(before.buffer)) + len(before.buffer)
    assert raw[at] == 0, "no constants"
    made.compact(1)
    made.bytes(name)
    made.compact(next(at for at, each in registry.items() if each["def"].get("primitive") == "u32"))
    made.bytes(value)
    made.compact(0)
    return raw[:at] + bytes(made.buffer) + raw[at + 1 :]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (SYSTEM, bytes([0, 16, 0, 0, 4, 0, 0, 0]), (4, 4_096)),
        (SYSTEM, bytes(7), None),
        (b"Another", bytes(8), None),
    ],
)
def test_channel_with_a_system_chain_has_the_size_of_the_constant(
    name: bytes, value: bytes, expected: tuple[int, int] | None
) -> None:
    shown = Runtime("polkadot", SPEC, with_constant(name, value))
    assert shown.constant("Hrmp", name.decode()) == value
    found = decode_configuration(configured(), shown)
    limits = (found.get("hrmp_system_channel_max_places"), found.get("hrmp_system_channel_max_message_size"))
    assert limits == (expected or (None, None))
    plain = decode_configuration(configured(), runtime())
    assert {name: found[name] for name in plain} == plain
