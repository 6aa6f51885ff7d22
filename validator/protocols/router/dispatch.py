# SPDX-License-Identifier: Apache-2.0
"""One round of upward message dispatch."""

from __future__ import annotations

from bisect import bisect_left

from validator.core.handlers.context import Host
from validator.core.handlers.upward import UpwardDispatcher
from validator.core.outcomes import Dispatch
from validator.core.types import BlockNumber
from validator.protocols.router.enactment import remove_upward_queue
from validator.protocols.router.state import RouterState


def process_pending_upward_messages(
    state: RouterState, dispatcher: UpwardDispatcher, host: Host, now: BlockNumber, dispatched: list[Dispatch]
) -> None:
    """Serve dispatch queues one message at a time, round robin, until the weight budget is used up; append to ``dispatched``.

    The budget is checked before a message is taken (I-04). So a message heavier than the rest of the budget is processed and ends the
    round, and a budget of zero dispatches nothing. The next round starts with the para after the last one served (I-03). A message whose
    processing raises is consumed, and the round continues. Source: router.txt ``process_pending_upward_messages``, router_rules 1.5.
    """
    budget = state.host_configuration.preferred_dispatchable_upward_messages_step_weight
    needs_dispatch = state.needs_dispatch
    weight_used = 0
    turn = _first_turn(state)

    while needs_dispatch and weight_used < budget:
        para = needs_dispatch[turn]
        queue = state.relay_dispatch_queues[para]
        payload = queue.popleft()
        state.touched.pages[para] = state.touched.paras[para] = None

        if queue:
            count, size = state.relay_dispatch_queue_size[para]
            state.relay_dispatch_queue_size[para] = (count - 1, size - len(payload))
            turn += 1
        else:
            remove_upward_queue(state, para)
        if turn >= len(needs_dispatch):
            turn = 0

        processed = dispatcher.process(host, para, payload)
        weight_used += processed.weight
        dispatched.append(Dispatch(now, len(dispatched), para, payload, *processed))

    state.next_dispatch_round_start_with = needs_dispatch[turn] if needs_dispatch else None


def _first_turn(state: RouterState) -> int:
    start = state.next_dispatch_round_start_with
    if start is None:
        return 0
    turn = bisect_left(state.needs_dispatch, start)
    return turn if turn < len(state.needs_dispatch) and state.needs_dispatch[turn] == start else 0
