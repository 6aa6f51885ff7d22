# SPDX-License-Identifier: Apache-2.0
"""All invariants of the Router's storage, recomputed from ground truth (router_rules 1.11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from validator.core.hashing import message_hash, mqc_link
from validator.core.types import Balance, ChannelId, ParaId
from validator.protocols.kit import ascends, broken_deposits, broken_index, channel_name, raise_if_broken
from validator.protocols.router.state import MESSAGE_OVERHEAD_BYTES, Book, MessageQueue, RouterState

LEFT_BY_THE_CHAIN: Final = (
    "as_the_chain: the chain itself leaves places of requests that are gone, uncounted requests and acceptances, reserved deposits without "
    "a request, and watermarks and digests of paras that are gone: they are kept apart, and the rest must agree"
)
"""What `router_rules 1.11` demands and the chain breaks (chain_2026 3.18)."""


def check_invariants(state: RouterState) -> None:
    """Raise `InvariantBroken` with a sentence for every invariant that the state breaks."""
    raise_if_broken(broken_invariants(state))


def broken_invariants(state: RouterState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold."""
    yield from _upward(state)
    yield from _downward(state)
    yield from _requests(state)
    yield from _channels(state)
    yield from _contents(state)
    yield from _digests(state)
    yield from broken_deposits(state, _deposits(state))
    yield from _handlers(state)
    if not ascends(state.outgoing_paras):
        yield f"outgoing_paras is not ascending and unique: {state.outgoing_paras}"


def _upward(state: RouterState) -> Iterator[str]:
    if state.message_queue is not None:
        yield from _message_queue(state, state.message_queue)
        return
    sizes = {para: (len(queue), sum(map(len, queue))) for para, queue in state.relay_dispatch_queues.items()}
    if sizes != state.relay_dispatch_queue_size:
        yield f"relay_dispatch_queue_size is {state.relay_dispatch_queue_size}, the queues have {sizes}"
    if state.needs_dispatch != sorted(state.relay_dispatch_queues):
        yield f"needs_dispatch is {state.needs_dispatch}, paras with queues are {sorted(state.relay_dispatch_queues)}"
    if any(count == 0 for count, _ in sizes.values()):
        yield "a relay dispatch queue is empty"
    pointer = state.next_dispatch_round_start_with
    if pointer is not None and pointer not in state.needs_dispatch:
        yield f"next_dispatch_round_start_with is {pointer}, which does not need dispatch"


def _message_queue(state: RouterState, queue: MessageQueue) -> Iterator[str]:
    if state.relay_dispatch_queues or state.needs_dispatch or state.next_dispatch_round_start_with is not None:
        yield "upward messages wait both in the message queue and outside of it"
    waiting = [para for para, book in queue.books.items() if book.waits]
    if sorted(queue.ring) != sorted(waiting):
        yield f"the ring is {queue.ring}, paras with waiting messages are {sorted(waiting)}"
    sizes = {}
    for para, book in queue.books.items():
        yield from broken_book(f"{para}", book)
        size = book.size()
        if size != (0, 0):
            sizes[para] = size
    if sizes != state.relay_dispatch_queue_size:
        yield f"relay_dispatch_queue_size is {state.relay_dispatch_queue_size}, the pages have {sizes}"


def broken_book(para: str, book: Book) -> Iterator[str]:
    """Yield a sentence for each invariant that a para's book breaks."""
    if not 0 <= book.begin <= book.end or not all(number in book.pages for number in range(book.begin, book.end)):
        yield f"the book of {para} lacks a page from {book.begin} to {book.end}: it has {sorted(book.pages)}"
        return
    if any(number >= book.end for number in book.pages):
        yield f"the book of {para} ends at page {book.end}, but has pages {sorted(book.pages)}"
    if book.next_index >= (len(book.pages[book.begin].messages) if book.waits else 1):
        yield f"the first waiting message of {para} would be {book.next_index}, past its page's end"
    for number, page in book.pages.items():
        unprocessed = [payload for payload in page.messages if payload is not None]
        if not unprocessed:
            yield f"page {number} of {para} has no message left"
        if page.unprocessed != len(unprocessed):
            yield f"page {number} of {para} counts {page.unprocessed} messages, it has {len(unprocessed)}"
        if page.heap_used < sum(len(payload) + MESSAGE_OVERHEAD_BYTES for payload in unprocessed):
            yield f"page {number} of {para} uses {page.heap_used} bytes of heap, less than its messages take"
        start = book.next_index if number == book.begin else 0
        if number >= book.begin and None in page.messages[start:]:
            yield f"a message that waits in page {number} of {para} is processed"


def _downward(state: RouterState) -> Iterator[str]:
    for para, queue in state.downward_message_queues.items():
        if not queue:
            yield f"the downward queue of {para} is empty"
        if any(later.sent_at < earlier.sent_at for earlier, later in pairwise(queue)):
            yield f"the downward queue of {para} is not in order of sent_at"


def _requests(state: RouterState) -> Iterator[str]:
    requests = state.hrmp_open_channel_requests
    if not _same_items(state.hrmp_open_channel_requests_list, requests):
        yield "hrmp_open_channel_requests_list is not the set of open requests"
    if not _same_items(state.hrmp_close_channel_requests_list, state.hrmp_close_channel_requests):
        yield "hrmp_close_channel_requests_list is not the set of close requests"

    by_sender = Counter(sender for sender, _ in requests)
    counted = Counter(state.hrmp_open_channel_request_count)
    counted.update(state.hrmp_uncounted_requests)
    counted.subtract(state.hrmp_lost_places)
    if counted != by_sender:
        yield f"hrmp_open_channel_request_count is {dict(counted)}, the requests are {dict(by_sender)}"
    confirmed = Counter(recipient for (_, recipient), request in requests.items() if request.confirmed)
    accepted = Counter(state.hrmp_accepted_channel_request_count)
    accepted.update(state.hrmp_uncounted_acceptances)
    if accepted != confirmed:
        yield f"hrmp_accepted_channel_request_count is {dict(accepted)}, confirmed are {dict(confirmed)}"
    for counts in (
        state.hrmp_open_channel_request_count,
        state.hrmp_uncounted_requests,
        state.hrmp_lost_places,
        state.hrmp_accepted_channel_request_count,
        state.hrmp_uncounted_acceptances,
    ):
        if any(count <= 0 for count in counts.values()):
            yield f"a count of requests is not positive: {counts}"
    for channel_id in requests:
        if channel_id in state.hrmp_channels:
            yield f"channel {channel_name(channel_id)} is both open and requested"


def _channels(state: RouterState) -> Iterator[str]:
    if not all(state.hrmp_channels.inbound.values()):
        yield "a recipient of hrmp_channels has an empty row"
    yield from broken_index(state.hrmp_channels, state.hrmp_ingress_channels_index, state.hrmp_egress_channels_index)
    for channel_id in state.hrmp_channels:
        for para in channel_id:
            if para not in state.paras:
                yield f"channel {channel_name(channel_id)} is open, but {para} is not a valid para"


def _contents(state: RouterState) -> Iterator[str]:
    for channel_id, channel in state.hrmp_channels.items():
        if channel.contents is not None and not channel.contents:
            yield f"the contents of channel {channel_name(channel_id)} are empty"
        contents = channel.contents or ()
        places, size = len(contents), sum(len(message.data) for message in contents)
        if (channel.used_places, channel.used_bytes) != (places, size):
            yield (
                f"channel {channel_name(channel_id)} counts {channel.used_places}, {channel.used_bytes} bytes; "
                f"it holds {places}, {size} bytes"
            )
        if places > channel.limit_used_places or size > channel.limit_used_bytes:
            yield f"channel {channel_name(channel_id)} holds {places} messages, {size} bytes, more than its limits"
        if any(later.sent_at < earlier.sent_at for earlier, later in pairwise(contents)):
            yield f"the contents of channel {channel_name(channel_id)} are not in order of sent_at"
        head = channel.pruned_head
        if head is not None:
            for message in contents:
                head = mqc_link(head, message.sent_at, message_hash(message.data))
            if head != channel.mqc_head:
                yield f"the contents of channel {channel_name(channel_id)} lead to head {head.hex()}, mqc_head is {channel.mqc_head.hex()}"


def _digests(state: RouterState) -> Iterator[str]:
    for recipient, digests in state.hrmp_channel_digests.items():
        if not digests or not all(digests.values()):
            yield f"the digests of {recipient} have an empty level"
        if not ascends(list(digests)):
            yield f"the digests of {recipient} are not in ascending order of blocks: {list(digests)}"
    for (sender, recipient), contents in state.hrmp_channel_contents.items():
        for message in contents:
            if sender not in state.hrmp_channel_digests.get(recipient, {}).get(message.sent_at, ()):
                yield f"no digest of {recipient} says that {sender} sent in block {message.sent_at}"


def _deposits(state: RouterState) -> Iterator[tuple[ParaId, Balance]]:
    for (sender, recipient), request in state.hrmp_open_channel_requests.items():
        yield sender, request.sender_deposit
        if request.confirmed:
            yield recipient, request.recipient_deposit
    yield from state.hrmp_stranded_deposits.items()
    for (sender, recipient), channel in state.hrmp_channels.items():
        yield sender, channel.sender_deposit
        yield recipient, channel.recipient_deposit


def _handlers(state: RouterState) -> Iterator[str]:
    kept: Counter[str] = Counter()
    for plugin, key, value in state.handler_states.entries():
        kept[plugin] += len(key) + len(value)
    if state.handler_states.bytes_used != kept:
        yield f"handlers are said to keep {state.handler_states.bytes_used} bytes, they keep {dict(kept)}"


def _same_items(items: list[ChannelId], keys: Iterable[ChannelId]) -> bool:
    return sorted(items) == sorted(keys)
