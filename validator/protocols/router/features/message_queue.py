# SPDX-License-Identifier: Apache-2.0
"""Upward messages in pages, served para by para in order of arrival. Source: router_profiles 3.9.

Weight is one number, and the queue's own bookkeeping weighs nothing (PR-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from validator.core.errors import Report, refuse
from validator.core.handlers.context import Host
from validator.core.handlers.upward import UpwardDispatcher
from validator.core.limits import U64_MAX
from validator.core.outcomes import Dispatch, DispatchOutcome, MessageRange
from validator.core.rules import Effects, Environment
from validator.core.types import BlockNumber, ParaId, Weight
from validator.protocols.router.enactment import report_oversized
from validator.protocols.router.errors import (
    UpwardCapacityExceeded,
    UpwardMessageSize,
    UpwardMoreMessagesThanPermitted,
    UpwardTotalSizeExceeded,
)
from validator.protocols.router.features.errors import (
    AlreadyProcessed,
    CannotOffboard,
    InsufficientWeight,
    NoMessage,
    NoPage,
    Queued,
    UpwardIsOffboarding,
)
from validator.protocols.router.host import RouterHost
from validator.protocols.router.records import ServiceOverweight
from validator.protocols.router.requests import dispatcher_of
from validator.protocols.router.state import MESSAGE_OVERHEAD_BYTES, Book, MessageQueue, Page, RouterState


def queue_of(state: RouterState) -> MessageQueue:
    """Return the message queue; the feature is in force."""
    assert state.message_queue is not None
    return state.message_queue


# --- acceptance, enactment, offboarding ---------------------------------------------------------------------------------------


def check_upward_messages(state: RouterState, para: ParaId, messages: Sequence[bytes], report: Report = refuse) -> None:
    """Check number and sizes, and that the para's queue has room; messages that were set aside count, and limits are inclusive.

    Reports `UpwardIsOffboarding`, `UpwardMoreMessagesThanPermitted`, `UpwardCapacityExceeded`, then for each message in order
    `UpwardMessageSize`, `UpwardTotalSizeExceeded`.
    """
    if messages and para in state.outgoing_paras:
        report(UpwardIsOffboarding())
    config = state.host_configuration
    if len(messages) > config.max_upward_message_num_per_candidate:
        report(
            UpwardMoreMessagesThanPermitted(sent=len(messages), permitted=config.max_upward_message_num_per_candidate)
        )
    count, total_size = state.relay_dispatch_queue_size.get(para, (0, 0))
    count += len(messages)
    if count > config.max_upward_queue_count:
        report(UpwardCapacityExceeded(count=count, limit=config.max_upward_queue_count))
    for idx, message in enumerate(messages):
        if len(message) > config.max_upward_message_size:
            report(UpwardMessageSize(idx=idx, msg_size=len(message), max_size=config.max_upward_message_size))
        total_size += len(message)
        if total_size > config.max_upward_queue_size:
            report(UpwardTotalSizeExceeded(total_size=total_size, limit=config.max_upward_queue_size))


def enact_upward_messages(state: RouterState, para: ParaId, messages: Iterable[bytes]) -> tuple[MessageRange, ...]:
    """Append messages to the para's last page, or to a new one; a para without waiting messages joins the ring at its end.

    A message that no page can hold is dropped; its range has its place among ``messages``, from 1.
    """
    queue, heap_size = queue_of(state), state.host_configuration.heap_size
    dropped: list[MessageRange] = []
    for at, payload in enumerate(messages, 1):
        needed = len(payload) + MESSAGE_OVERHEAD_BYTES
        if needed > heap_size:
            dropped.append(MessageRange(para, at, at, len(payload)))
            continue
        book = queue.books.setdefault(para, Book())
        if not book.waits:
            queue.ring.append(para)
        if not book.waits or book.pages[book.end - 1].heap_used + needed > heap_size:
            book.pages[book.end] = Page()
            book.end += 1
        book.pages[book.end - 1].append(payload)
        count, size = state.relay_dispatch_queue_size.get(para, (0, 0))
        state.relay_dispatch_queue_size[para] = (count + 1, size + len(payload))
    return tuple(dropped)


def check_unprocessed(state: RouterState, para: ParaId) -> None:
    """Check that a para has no message that waits or was set aside. Raises `CannotOffboard`."""
    count, _ = state.relay_dispatch_queue_size.get(para, (0, 0))
    if count:
        raise CannotOffboard(para_id=para, unprocessed=count)


def drop_upward_messages(state: RouterState, para: ParaId) -> None:
    """Remove an outgoing para's book and its place in the ring (PR-09)."""
    queue = queue_of(state)
    book = queue.books.pop(para, None)
    if book is not None and book.waits:
        queue.ring.remove(para)
    state.relay_dispatch_queue_size.pop(para, None)


# --- the round ----------------------------------------------------------------------------------------------------------------


def serve_message_queue(
    state: RouterState, dispatcher: UpwardDispatcher, host: Host, now: BlockNumber, dispatched: list[Dispatch]
) -> None:
    """Go once through the ring and serve each para until it has no message left or its next one exceeds the rest of the budget.

    The head moves on to the next para first of all. A message heavier than the whole budget is set aside: it stays in its page and is
    passed over from then on. A budget of zero serves nothing (PR-08). ``dispatched`` grows by what is handed over.
    """
    budget = state.host_configuration.preferred_dispatchable_upward_messages_step_weight
    ring = queue_of(state).ring
    if not budget or not ring:
        return
    turn = list(ring)
    ring.append(ring.pop(0))
    used = 0
    for para in turn:
        used = _serve_para(state, dispatcher, host, now, para, used, budget, dispatched)


def _serve_para(
    state: RouterState,
    dispatcher: UpwardDispatcher,
    host: Host,
    now: BlockNumber,
    para: ParaId,
    used: Weight,
    budget: Weight,
    dispatched: list[Dispatch],
) -> Weight:
    """Serve one para and return the weight that the round has used by then."""
    queue = queue_of(state)
    book = queue.books[para]
    while book.waits:
        page = book.pages[book.begin]
        payload = page.messages[book.next_index]
        assert payload is not None
        weight = dispatcher.weigh(host, payload)
        if weight <= budget:
            if weight and used + weight > budget:
                return used
            used += _hand_over(state, dispatcher, host, now, para, book.begin, book.next_index, budget, dispatched)
        else:
            state.touched.pages[para] = None
        book.next_index += 1
        if book.next_index == len(page.messages):
            if not page.unprocessed:
                del book.pages[book.begin]
            book.begin += 1
            book.next_index = 0
    queue.ring.remove(para)
    return used


def _hand_over(
    state: RouterState,
    dispatcher: UpwardDispatcher,
    host: Host,
    now: BlockNumber,
    para: ParaId,
    number: int,
    index: int,
    limit: Weight,
    dispatched: list[Dispatch],
    *,
    may_retry: bool = False,
) -> Weight:
    """Hand a message over, mark it as processed and return its weight. The caller removes a page that is finished.

    Raises `InsufficientWeight`, and leaves everything as it was, if the message ``may_retry`` and its handler runs out of weight.
    """
    page = queue_of(state).books[para].pages[number]
    payload = page.messages[index]
    assert payload is not None
    processed = dispatcher.process(host, para, payload, limit)
    if processed.outcome is DispatchOutcome.OUT_OF_WEIGHT and may_retry:
        raise InsufficientWeight(weight=processed.weight, weight_limit=limit)
    page.process(index)
    count, size = state.relay_dispatch_queue_size[para]
    if count > 1:
        state.relay_dispatch_queue_size[para] = (count - 1, size - len(payload))
    else:
        del state.relay_dispatch_queue_size[para]
    state.touched.pages[para] = state.touched.paras[para] = None
    dispatched.append(Dispatch(now, len(dispatched), para, payload, *processed))
    return processed.weight


def service_overweight(state: RouterState, env: Environment, request: ServiceOverweight) -> Effects:
    """Hand over a message that was set aside, outside of the round's budget.

    Besides its own weight, a handler may use at most that of a round, and no more than the request allows in all. If the request's limit is
    what stops it, the message stays. Raises `NoPage`, `NoMessage`, `Queued`, `AlreadyProcessed`, `InsufficientWeight`.
    """
    para, number, index, weight_limit = request
    book = queue_of(state).books.get(para, Book())
    page = book.pages.get(number)
    if page is None:
        raise NoPage(para_id=para, page=number)
    if index >= len(page.messages):
        raise NoMessage(para_id=para, page=number, index=index)
    if number > book.begin or (number == book.begin and index >= book.next_index):
        raise Queued(para_id=para, page=number, index=index)
    payload = page.messages[index]
    if payload is None:
        raise AlreadyProcessed(para_id=para, page=number, index=index)
    host = RouterHost(state, env)
    dispatcher = dispatcher_of(env)
    weight = dispatcher.weigh(host, payload)
    if weight > weight_limit:
        raise InsufficientWeight(weight=weight, weight_limit=weight_limit)
    now, dispatched = env.now, env.dispatched
    budget = state.host_configuration.preferred_dispatchable_upward_messages_step_weight
    limit = min(weight + budget, U64_MAX)
    may_retry, limit = weight_limit < limit, min(weight_limit, limit)
    _hand_over(state, dispatcher, host, now, para, number, index, limit, dispatched, may_retry=may_retry)
    if not page.unprocessed:
        del book.pages[number]
    return Effects()


# --- the switch ---------------------------------------------------------------------------------------------------------------


def begin_message_queue(state: RouterState, env: Environment) -> None:
    """Move all waiting messages into pages, para by para in the order of the next round under router.txt (PR-07)."""
    order = sorted(state.needs_dispatch)
    start = state.next_dispatch_round_start_with
    if start in order:
        at = order.index(start)
        order = order[at:] + order[:at]
    queues = state.relay_dispatch_queues
    state.relay_dispatch_queues, state.relay_dispatch_queue_size = {}, {}
    state.needs_dispatch, state.next_dispatch_round_start_with = [], None
    state.message_queue = MessageQueue()
    for para in order:
        report_oversized(env, para, enact_upward_messages(state, para, queues[para]))
        state.touched.pages[para] = state.touched.paras[para] = None
