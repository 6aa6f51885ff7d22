# SPDX-License-Identifier: Apache-2.0
"""A failed message leaves nothing behind, whatever its handler has done and wherever it failed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields
from typing import Any, TypeAlias

from hypothesis import event, given
from hypothesis import strategies as st

from tests.hypothesis_profile import examples
from validator.core.errors import Violation
from validator.core.handlers.context import Context
from validator.core.handlers.dispatch import DispatchTable, HandlerDispatcher, HandlerEpoch
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import BoundHandler, Handler, MessageWeight
from validator.core.outcomes import Processed
from validator.core.rules import ChainSettings, LaneRules
from validator.core.types import Balances, Para, ParaKind, SessionChange
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.encoding import decode_state, encode_state
from validator.protocols.router.host import RouterHost
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.state import RouterState
from validator.protocols.router.traces import view

PARAS = (1, 2, 3, 4)
NOBODY = 99
LIMITS = HostConfiguration(
    preferred_dispatchable_upward_messages_step_weight=1_000_000,
    max_downward_message_size=12,
    hrmp_channel_max_places=4,
    hrmp_channel_max_message_size=8,
    hrmp_channel_max_size=16,
    hrmp_max_parachain_outbound_channels=2,
    hrmp_max_parachain_inbound_channels=2,
    hrmp_max_parathread_outbound_channels=1,
    hrmp_max_parathread_inbound_channels=1,
    hrmp_sender_deposit=5,
    hrmp_recipient_deposit=3,
    hrmp_open_request_ttl=4,
)

Call: TypeAlias = tuple[str, tuple[Any, ...]]
"""A member of `Context` and its arguments."""
Script: TypeAlias = tuple[int, list[Call]]
"""A para, and the calls that a handler makes for its message."""

paras = st.sampled_from((*PARAS, *PARAS, NOBODY))
keys = st.sampled_from((b"a", b"b", b"c", b"d"))
calls: st.SearchStrategy[Call] = st.one_of(
    st.tuples(st.just("init_open_channel"), st.tuples(paras, st.integers(1, 4), st.integers(1, 8))),
    st.tuples(st.just("accept_open_channel"), st.tuples(paras)),
    st.tuples(st.just("close_channel"), st.tuples(paras, paras)),
    st.tuples(st.just("queue_downward_message"), st.tuples(paras, st.binary(max_size=13))),
    st.tuples(st.just("transfer"), st.tuples(paras, st.integers(0, 30))),
    st.tuples(st.just("write"), st.tuples(keys, st.binary(max_size=3))),
    st.tuples(st.just("delete"), st.tuples(keys)),
    st.tuples(st.just("emit"), st.tuples(st.just("event"))),
)
scripts: st.SearchStrategy[Script] = st.tuples(st.sampled_from(PARAS), st.lists(calls, max_size=8))


class Planned(Exception):
    """The failure at the end of a script."""


def play(context: Context, steps: Sequence[Call]) -> None:
    """Make the calls, and catch violations as a handler may."""
    for name, arguments in steps:
        try:
            getattr(context, name)(*arguments)
        except (Violation, ContextError):
            event(f"{name} refused")
        else:
            event(f"{name} done")


def fail(context: Context, how: str) -> object:
    if how == "raises":
        raise Planned
    if how == "runs out of weight":
        context.charge(context.weight_left + 1)
    if how == "breaks a rule":
        context.init_open_channel(context.origin, 1, 1)
    if how == "calls wrongly":
        context.read(b"")
    return how  # a handler returns nothing


FAILURES = ("raises", "runs out of weight", "breaks a rule", "calls wrongly", "returns")


def dispatch(router: LaneRules, script: Script, how: str | None = None) -> Processed:
    """Run a script as the handler of one message, with a failure at its end."""
    para, steps = script

    def handle(context: Context, message: bytes) -> Any:
        play(context, steps)
        return None if how is None else fail(context, how)

    handler = Handler("script", handle, MessageWeight(1), b"m")
    dispatcher = HandlerDispatcher([HandlerEpoch(0, DispatchTable([BoundHandler("plugin", "1.0", handler)]))])
    return dispatcher.process(RouterHost(router.state, router.env), para, b"m")


def everything(state: RouterState) -> dict[str, Any]:
    """Return every field of the state except those that only record its history."""
    values = {field.name: deepcopy(getattr(state, field.name)) for field in fields(state)}
    del values["touched"]
    values["handler_states"] = (list(state.handler_states.entries()), dict(state.handler_states.bytes_used))
    return values


def snapshot(router: LaneRules) -> tuple[Any, ...]:
    """Return everything observable of a Router: pages in order, indices, root, and the block's output."""
    state = router.state
    check_invariants(state)
    common, owned = encode_state(state)
    decoded = decode_state(common, owned.values())
    assert encode_state(decoded) == (common, owned)
    assert router.state_root() == ROUTER.root_of(state) == ROUTER.root_of(decoded)
    return common, owned, everything(state), view(state), router.state_root(), list(router.env.events.events)


def genesis(balances: Balances, *, notifications: bool) -> LaneRules:
    kinds = (ParaKind.PARACHAIN, ParaKind.PARACHAIN, ParaKind.PARACHAIN, ParaKind.PARATHREAD)
    router = ROUTER.at_genesis(
        ChainSettings(
            LIMITS,
            tuple(Para(para, kind, 40) for para, kind in zip(PARAS, kinds, strict=True)),
            balances=balances,
            notifications=notifications,
        )
    )
    router.begin_block(1)
    for sender, recipient in ((1, 2), (2, 1), (3, 1)):
        host = RouterHost(router.state, router.env)
        host.init_open_channel(sender, recipient, 4, 8)
        host.accept_open_channel(recipient, sender)
    router.change_session(SessionChange())
    router.begin_block(2)
    for sender, recipient in ((2, 3), (1, 4), (4, 2)):  # to be accepted
        RouterHost(router.state, router.env).init_open_channel(sender, recipient, 4, 8)
    return router


@examples(400)
@given(
    balances=st.sampled_from(Balances),
    notifications=st.booleans(),
    before=st.lists(scripts, max_size=3),
    failing=scripts,
    how=st.sampled_from(FAILURES),
    after=scripts,
    new_block=st.booleans(),
)
def test_failed_message_leaves_nothing_behind(
    *,
    balances: Balances,
    notifications: bool,
    before: list[Script],
    failing: Script,
    how: str,
    after: Script,
    new_block: bool,
) -> None:
    router, spared = (genesis(balances, notifications=notifications) for _ in range(2))
    for each in (router, spared):
        for script in before:
            assert dispatch(each, script).outcome == "ok"
        if new_block:
            each.begin_block(3)
    expected = snapshot(router)

    processed = dispatch(router, failing, how)
    assert processed.outcome == ("out_of_weight" if how == "runs out of weight" else "failed")
    assert processed.events == ()
    assert snapshot(router) == expected

    # and nothing that affects later blocks
    assert dispatch(router, after) == dispatch(spared, after)
    assert snapshot(router) == snapshot(spared)
    assert ROUTER.from_pages([*router.common_pages(), *encode_state(router.state)[1].values()]).state_root() == (
        spared.state_root()
    )


@examples(200)
@given(script=scripts.filter(lambda script: bool(script[1])), data=st.data(), notifications=st.booleans())
def test_message_out_of_weight_at_any_call_leaves_nothing_behind(
    *, script: Script, data: st.DataObject, notifications: bool
) -> None:
    """Grant weight for some of the calls only: none of them leaves a trace, not even those that were covered."""
    whole = dispatch(genesis(Balances.LEDGER, notifications=notifications), script)
    router = genesis(Balances.LEDGER, notifications=notifications)
    expected = snapshot(router)
    limit = data.draw(st.integers(0, whole.weight - 1))
    para, steps = script
    handler = Handler("script", lambda context, message: play(context, steps), MessageWeight(1), b"m")
    table = DispatchTable([BoundHandler("plugin", "1.0", handler)])
    dispatcher = HandlerDispatcher([HandlerEpoch(0, table)], weight_max=limit)
    processed = dispatcher.process(RouterHost(router.state, router.env), para, b"m")
    assert (processed.outcome, processed.weight, processed.events) == ("out_of_weight", limit, ())
    assert snapshot(router) == expected
