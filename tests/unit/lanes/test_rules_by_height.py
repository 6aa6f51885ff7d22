# SPDX-License-Identifier: Apache-2.0
"""A protocol whose rules change at a block: every execution of a block uses the rules of its height."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import CHAIN, cut, live, rebuilt, run
from tests.unit.lanes.chains import definition_of
from validator.codec.encode import OutputRecord
from validator.codec.json_form import to_json
from validator.config import DEFAULT_PROTOCOL
from validator.core.errors import Report, Violation
from validator.core.rules import ChainSettings, Environment, RulesEpoch, in_force
from validator.core.scale import DecodeError, Reader, Writer
from validator.errors import UserError
from validator.lanes.definition import LaneDefinition
from validator.lanes.store import Head, LaneCache
from validator.plugin import runtime as runtime_module
from validator.plugin.protocol_api import LimitsTable, ProtocolDefinition, RecordType
from validator.plugin.runtime import RulesUse, RuntimePlan, first_rules_difference, installed_protocol, make_runtime
from validator.protocols.router.profile import SEED_RULES
from validator.protocols.router.records import Candidate
from validator.protocols.router.rules import ROUTER, channel_headroom, para_headroom
from validator.protocols.router.state import RouterState

OPEN, CLOSED, OPEN_AGAIN = RulesEpoch(0, 1, "open"), RulesEpoch(12, 2, "closed"), RulesEpoch(18, 3, "open")
NEVER_REACHED = RulesEpoch(10**6, 4, "closed")


class CandidateRefused(Violation, kind="Test/CandidateRefused", clause="test"):
    """The rules of this height accept no candidate."""

    block: int


def seed(env: Environment) -> Environment:
    return replace(env, profile=SEED_RULES)


def check_candidate(state: RouterState, env: Environment, candidate: Candidate, report: Report) -> None:
    if env.profile == "closed":
        report(CandidateRefused(env.now))
        return
    ROUTER.check_candidate(state, seed(env), candidate, report)


BY_HEIGHT = replace(
    ROUTER,
    begin_block=lambda state, env, parent: ROUTER.begin_block(state, seed(env), parent),
    signals=lambda env, candidate: ROUTER.signals(seed(env), candidate),
    apply_request=lambda state, env, request: ROUTER.apply_request(state, seed(env), request),
    queue_downward=lambda state, env, message: ROUTER.queue_downward(state, seed(env), message),
    check_candidate=check_candidate,
    enact_candidate=lambda state, env, candidate: ROUTER.enact_candidate(state, seed(env), candidate),
    dispatch=lambda state, env: ROUTER.dispatch(state, seed(env)),
    change_session=lambda state, env, change: ROUTER.change_session(state, seed(env), change),
    para_headroom=lambda state, _, para: para_headroom(state, SEED_RULES, para),
    channel_headroom=lambda state, _, channel: channel_headroom(state, SEED_RULES, channel),
    levels=lambda state, _, now, choice: ROUTER.levels(state, SEED_RULES, now, choice),
)
"""A Router that accepts no candidates while its profile is ``closed``."""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LaneDefinition]]:
    """Return a function that installs the protocol with a list of rules and returns the lane's definition."""
    plain = installed_protocol(DEFAULT_PROTOCOL)
    assert plain is not None

    def install(*rules: RulesEpoch) -> LaneDefinition:
        changed = replace(plain, rules=rules, rule_profiles=None, rule_set=BY_HEIGHT)
        monkeypatch.setattr(runtime_module, "protocols_of", lambda _: (changed,))
        make_runtime.cache_clear()
        return definition_of(CHAIN)

    yield install
    monkeypatch.undo()
    make_runtime.cache_clear()


def verdicts(records: list[OutputRecord]) -> list[dict[str, Any]]:
    return [to_json("verdicts", record.value) for record in records if record.topic == "verdicts"]


def play(definition: LaneDefinition) -> list[OutputRecord]:
    return [record for records, _ in live(definition, cut(CHAIN.records)) for record in records]


def test_latest_started_epoch_is_in_force() -> None:
    rules = (OPEN, CLOSED, OPEN_AGAIN)
    assert [in_force(rules, block).version for block in (0, 11, 12, 17, 18, 10**9)] == [1, 1, 2, 2, 3, 3]


def test_candidate_is_judged_by_rules_of_its_block(program: Callable[..., LaneDefinition]) -> None:
    before = {(each["block"], each["kind"], each["index"]): each for each in verdicts(play(program(OPEN)))}
    after = verdicts(play(program(OPEN, CLOSED, OPEN_AGAIN)))
    refused = {each["block"] for each in after if not each["ok"] and each["error"]["kind"] == CandidateRefused.kind}
    assert refused == {each["block"] for each in after if each["kind"] == "candidate" and 12 <= each["block"] < 18}
    early = [each for each in after if each["block"] < 12]
    assert early
    assert early == [before[each["block"], each["kind"], each["index"]] for each in early], (
        "bytes before the switch changed"
    )


def test_new_epoch_has_own_digest_and_keeps_earlier_ones(
    program: Callable[..., LaneDefinition],
) -> None:
    one, three = program(OPEN), program(OPEN, CLOSED, OPEN_AGAIN)
    assert [epoch.from_block for epoch in three.epochs] == [0, 12, 18]
    assert three.epochs[0].digest == one.epochs[0].digest
    assert len({epoch.digest for epoch in three.epochs}) == 3
    assert three.digest_at(11) != three.digest_at(12)


def test_rebuilt_lane_matches_uninterrupted_lane_across_switches(program: Callable[..., LaneDefinition]) -> None:
    definition = program(OPEN, CLOSED, OPEN_AGAIN)
    batches, store = cut(CHAIN.records), Store()
    for batch, (expected, processor) in zip(batches, live(definition, batches), strict=True):
        assert run(definition, store, LaneCache(), batch) == expected
        assert rebuilt(definition, store) == processor.snapshot()


def test_epoch_may_be_added_after_executed_blocks(program: Callable[..., LaneDefinition]) -> None:
    batches, store = cut(CHAIN.records), Store()
    shorter = program(OPEN, CLOSED)
    for batch in batches[:4]:
        run(shorter, store, LaneCache(), batch)
    longer = program(OPEN, CLOSED, OPEN_AGAIN, NEVER_REACHED)
    expected = [records for records, _ in live(longer, batches)][4:]
    assert [run(longer, store, LaneCache(), batch) for batch in batches[4:]] == expected


def test_journal_keeps_rules_it_was_written_under(program: Callable[..., LaneDefinition]) -> None:
    batches, store = cut(CHAIN.records), Store()
    definition = program(OPEN, CLOSED)
    for batch in batches:
        run(definition, store, LaneCache(), batch)
    assert store.committed.head is not None
    stored = definition.under(Head.decode(store.committed.head).rules)
    assert [tuple(use) for use in stored.rules] == [(0, 1), (12, 2)]


@pytest.mark.parametrize(
    ("rules", "block"),
    [
        ((OPEN, CLOSED._replace(from_block=5)), 5),
        ((OPEN,), 12),
        ((OPEN, CLOSED, OPEN_AGAIN._replace(from_block=20)), 20),
    ],
    ids=["earlier", "removed", "within"],
)
def test_change_to_rules_of_executed_blocks_is_refused_in_one_line(
    program: Callable[..., LaneDefinition], rules: tuple[RulesEpoch, ...], block: int
) -> None:
    batches, store = cut(CHAIN.records), Store()
    definition = program(OPEN, CLOSED)
    for batch in batches[:-1]:
        run(definition, store, LaneCache(), batch)
    kept = RulesEpoch(NEVER_REACHED.from_block, CLOSED.version, CLOSED.profile)
    listed = rules if any(epoch.version == CLOSED.version for epoch in rules) else (*rules, kept)
    changed = program(*listed)
    with pytest.raises(
        UserError, match=f"its rules differ from block {block} on, but block [0-9]+ is already executed"
    ) as error:
        run(changed, store, LaneCache(), batches[-1])
    assert "\n" not in str(error.value)


def test_plan_with_unknown_rules_is_refused_in_one_line(program: Callable[..., LaneDefinition]) -> None:
    planned = program(OPEN, CLOSED)
    program(OPEN)
    with pytest.raises(UserError, match="rules of version 2, this program has version 1") as error:
        planned.check()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ((), r"expected blocks that ascend from 0, found \[\]"),
        ((CLOSED,), r"expected blocks that ascend from 0, found \[12\]"),
        ((OPEN, CLOSED, CLOSED._replace(version=3)), "expected blocks that ascend from 0"),
        ((OPEN, CLOSED._replace(version=1)), r"expected each version once, found \[1, 1\]"),
        ((OPEN._replace(version="1"),), "expected blocks and versions from 0 to 4294967295, found '1'"),
        ((OPEN, CLOSED._replace(version=1 << 32)), "expected blocks and versions from 0 to .*, found 4294967296"),
        ((OPEN, CLOSED._replace(from_block=1.5)), "expected blocks and versions from 0 to .*, found 1.5"),
    ],
    ids=["none", "not from 0", "not ascending", "version twice", "text", "too large", "float"],
)
def test_invalid_list_of_rules_is_refused(rules: tuple[RulesEpoch, ...], problem: str) -> None:
    plain: ProtocolDefinition = make_runtime(RuntimePlan(DEFAULT_PROTOCOL)).protocol
    with pytest.raises(ValueError, match=problem):
        replace(plain, rules=rules)


@pytest.mark.parametrize("uses", [[], [(5, 1)], [(0, 1), (9, 2), (9, 3)], [(0, 1), (9, 2), (8, 3)]], ids=str)
def test_stored_list_of_rules_that_means_nothing_is_a_decode_error(uses: list[tuple[int, int]]) -> None:
    definition = definition_of(CHAIN)
    encoded = definition.encode_rules()
    name = Reader(encoded[1:]).bytes()
    rest = Reader(encoded)
    rest.position = 2 + len(name) + 1 + 8  # version, name with its length, one epoch
    out = Writer()
    out.u8(encoded[0])
    out.bytes(name)
    out.compact(len(uses))
    for from_block, version in uses:
        out.u32(from_block)
        out.u32(version)
    with pytest.raises(DecodeError, match="expected blocks that ascend from 0"):
        definition.under(bytes(out.buffer) + encoded[rest.position :])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"encoding_version": "1"}, "encoding_version: expected a number from 0 to 4294967295, found '1'"),
        ({"maxima": {"places": -1}}, "maxima: places: expected an integer from 0 on, found -1"),
        (
            {"records": (RecordType("blocks", "X", dict),)},
            "record X: expected topic candidates or channel-requests, found 'blocks'",
        ),
        (
            {"records": (RecordType("candidates", "X", dict),) * 2},
            "record X: expected one record type of this name, found several",
        ),
    ],
    ids=["version", "maximum", "topic", "name twice"],
)
def test_invalid_definition_is_refused(change: dict[str, Any], problem: str) -> None:
    plain: ProtocolDefinition = make_runtime(RuntimePlan(DEFAULT_PROTOCOL)).protocol
    with pytest.raises(ValueError, match=f"^protocol {DEFAULT_PROTOCOL}: {problem}$"):
        replace(plain, **change)


@pytest.mark.parametrize(
    ("maxima", "preset", "problem"),
    [
        ({"a": 1.5}, {}, "limits_table limits: a: expected an integer from 0 on, found 1.5"),
        ({"a": 3}, {"b": 1}, "limits_table limits: preset p: no such limit: b"),
        ({"a": 3}, {"a": 4}, "limits_table limits: preset p: a: expected 0 to 3, found 4"),
    ],
)
def test_invalid_table_of_limits_is_refused(maxima: dict[str, Any], preset: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        LimitsTable(maxima, {"p": preset})


@pytest.mark.parametrize("name", [b"\xff", b"p"], ids=["name", "configuration"])
@pytest.mark.parametrize("config", [b"{", b"[]", b"\xff", b"[" * 100_000], ids=["cut", "list", "no text", "deep"])
def test_damaged_use_of_handler_is_a_decode_error(name: bytes, config: bytes) -> None:
    definition = definition_of(CHAIN)
    out = Writer()
    out.compact(1)
    for field in (name, b""):
        out.bytes(field)
    out.u32(0)
    out.bytes(config)
    out.u8(0)
    encoded = definition.encode_rules()
    assert encoded.endswith(b"\0")  # no handlers
    with pytest.raises(DecodeError, match="handler plugin"):
        definition.under(encoded[:-1] + b"\1" + bytes(out.buffer))


def test_chain_settings_refuse_epochs_that_do_not_ascend() -> None:
    with pytest.raises(ValueError, match=r"expected blocks that ascend from 0, found \[0, 12, 5\]"):
        ChainSettings(rules=(OPEN, CLOSED, OPEN_AGAIN._replace(from_block=5)))


def test_rules_of_blocks_before_a_lane_begins_make_no_difference() -> None:
    one, other = [RulesUse(0, 1)], [RulesUse(0, 9), RulesUse(100, 1)]
    assert first_rules_difference(one, other) == 0
    assert first_rules_difference(one, other, 99) == 99
    assert first_rules_difference(one, other, 100) is None
