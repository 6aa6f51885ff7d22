# SPDX-License-Identifier: Apache-2.0
"""Canonical bytes of a Router state, in pages: one common page, and one page for each para that owns anything.

A para owns its account, its queues, its watermark and digests, and its inbound channels with their contents. Derived values (counts,
sizes, indexes, MQC heads inside a channel) are left out and recomputed on loading.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from struct import Struct

from validator.core.handlers import state as handler_states
from validator.core.handlers.state import is_handler_page
from validator.core.hashing import message_hash, mqc_link
from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import ZERO_HASH, Balances, ChannelId, Hash, ParaId, ParaKind
from validator.protocols.kit import Account, PageLayout, Touched, increase, read_pending, write_pending
from validator.protocols.router.configuration import CONFIGURATION_FIELDS, HostConfiguration
from validator.protocols.router.invariants import broken_book
from validator.protocols.router.records import Candidate, HorizontalMessage
from validator.protocols.router.state import (
    NO_CHANNELS,
    Book,
    HrmpChannel,
    HrmpOpenChannelRequest,
    InboundDownwardMessage,
    InboundHrmpMessage,
    MessageQueue,
    Page,
    RouterState,
    count_exactly,
)

# --- later pages ----------------------------------------------------------------------------------------------------------------------
# The part of the Router's pages that only later rules need. It stands at a page's end, and only if it holds anything.


SEED = 1
"""First byte of a page with what router.txt needs. It is one more for each part at the page's end that only later rules need."""
EMPTY_COMMON_PARTS = (7, 3)
"""Bytes of the parts of the common page that hold nothing: what rules up to router/2025-07 need, and what rules since need."""
EMPTY_PARA_PARTS = (1,)
"""The same of a para's page."""
HEADROOM_PAGE = PageLayout("state encoding")


def with_later_parts(page: Writer, *parts: Writer) -> bytes:
    """Return a page with the later parts, oldest first, up to the last one that holds anything."""
    held = max((at for at, part in enumerate(parts, 1) if any(part.buffer)), default=0)
    added = b"".join(bytes(part.buffer) for part in parts[:held])
    return bytes((SEED + held,)) + bytes(page.buffer[1:]) + added


def whole_page(page: bytes, empty_parts: tuple[int, ...]) -> Reader:
    """Return a reader of a page after its first byte; a later part that the page does not have holds nothing. Raises `DecodeError`."""
    held = page[0] - SEED if page else -1
    if not 0 <= held <= len(empty_parts):
        raise DecodeError(
            f"state encoding version {page[0] if page else None}, expected {SEED} to {SEED + len(empty_parts)}"
        )
    reader = Reader(page + bytes(sum(empty_parts[held:])))
    reader.position = 1
    return reader


def later_common_part(state: RouterState) -> Writer:
    """Encode limits that may be absent, deposits that router.txt does not know, and the ring."""
    out, config = Writer(), state.host_configuration
    out.option(config.hrmp_notification_xcm_version, out.u8)
    out.option(config.hrmp_system_channel_max_places, out.u32)
    out.option(config.hrmp_system_channel_max_message_size, out.u32)
    out.option(config.message_queue_heap_size, out.u32)
    # the seed's rules take the recipient's deposit from the configuration, which cannot change before the request is settled
    requests = map(state.hrmp_open_channel_requests.__getitem__, state.hrmp_open_channel_requests_list)
    others = [
        (at, request.recipient_deposit)
        for at, request in enumerate(requests)
        if request.confirmed and request.recipient_deposit != config.hrmp_recipient_deposit
    ]
    for amounts in (others, sorted(state.hrmp_stranded_deposits.items())):
        out.compact(len(amounts))
        for key, amount in amounts:
            out.u32(key)
            out.u128(amount)
    queue = state.message_queue
    out.option(None if queue is None else queue.ring, lambda ring: _write_paras(out, ring))
    return out


def newest_common_part(state: RouterState) -> Writer:
    """Encode the least balance of an account, and requests and places that counts do not show."""
    out = Writer()
    out.option(state.host_configuration.existential_deposit, out.u128)
    for counts in (state.hrmp_lost_places, state.hrmp_uncounted_acceptances):
        out.compact(len(counts))
        for para, count in sorted(counts.items()):
            out.u32(para)
            out.u32(count)
    return out


def read_newest_common_part(reader: Reader, state: RouterState) -> None:
    """Read what `newest_common_part` wrote into the state, after its requests. Raises `DecodeError`."""
    least = reader.option(reader.u128)
    state.host_configuration = replace(state.host_configuration, existential_deposit=least)
    for counts in (state.hrmp_lost_places, state.hrmp_uncounted_acceptances):
        counts.update(reader.items(lambda: (reader.u32(), reader.u32())))


def read_later_common_part(reader: Reader, state: RouterState) -> None:
    """Read what `later_common_part` wrote into the state, after its requests. Raises `DecodeError`."""
    state.host_configuration = config = replace(
        state.host_configuration,
        hrmp_notification_xcm_version=reader.option(reader.u8),
        hrmp_system_channel_max_places=reader.option(reader.u32),
        hrmp_system_channel_max_message_size=reader.option(reader.u32),
        message_queue_heap_size=reader.option(reader.u32),
    )
    requests = [state.hrmp_open_channel_requests[each] for each in state.hrmp_open_channel_requests_list]
    for request in requests:
        request.recipient_deposit = config.hrmp_recipient_deposit if request.confirmed else 0
    for at, deposit in reader.items(lambda: (reader.u32(), reader.u128())):
        if at >= len(requests):
            raise DecodeError(f"a deposit of request {at}, but there are {len(requests)}")
        requests[at].recipient_deposit = deposit
    state.hrmp_stranded_deposits = dict(reader.items(lambda: (reader.u32(), reader.u128())))
    ring = reader.option(lambda: list(reader.items(reader.u32)))
    if ring is not None:
        state.message_queue = MessageQueue(ring=ring)


def later_para_part(state: RouterState, para: ParaId) -> Writer:
    """Encode a para's book."""
    out = Writer()
    book = None if state.message_queue is None else state.message_queue.books.get(para)
    out.option(book, lambda book: _write_book(out, book))
    return out


def read_later_para_part(reader: Reader, state: RouterState, para: ParaId) -> None:
    """Read what `later_para_part` wrote into the state. Raises `DecodeError`."""
    book = reader.option(lambda: _read_book(reader))
    if book is None:
        return
    if state.message_queue is None:
        raise DecodeError(f"para {para} has a book, but there is no ring")
    state.message_queue.books[para] = book
    unprocessed = [payload for page in book.pages.values() for payload in page.messages if payload is not None]
    if unprocessed:
        state.relay_dispatch_queue_size[para] = (len(unprocessed), sum(map(len, unprocessed)))


def _write_book(out: Writer, book: Book) -> None:
    out.u32(book.begin)
    out.u32(book.end)
    out.u32(book.next_index)
    out.compact(len(book.pages))
    for number, page in sorted(book.pages.items()):
        out.u32(number)
        out.u32(page.heap_used)
        out.compact(len(page.messages))
        for payload in page.messages:
            out.option(payload, out.bytes)


def _read_book(reader: Reader) -> Book:
    book = Book(reader.u32(), reader.u32(), reader.u32())
    for _ in range(reader.compact()):
        number, heap_used = reader.u32(), reader.u32()
        messages = list(reader.items(lambda: reader.option(reader.bytes)))
        book.pages[number] = Page(messages, heap_used, sum(payload is not None for payload in messages))
    if broken := next(broken_book("a para", book), None):
        raise DecodeError(broken)
    return book


def _write_paras(out: Writer, paras: Sequence[ParaId]) -> None:
    out.compact(len(paras))
    for para in paras:
        out.u32(para)


# --- encoding -------------------------------------------------------------------------------------------------------------------------


_PARA_KINDS = tuple(ParaKind)
_BALANCES = tuple(Balances)
_CHANNEL = Struct("<QQQQIIIQ32s")
"""Two deposits (each u128 as two u64, low half first), three limits, messages sent, MQC head. Packed at once, for speed: a state may have a
million channels."""
_U64 = 2**64 - 1
_OWNER_BYTES = 5
"""Bytes of a para's page before its content: version and para id."""


def para_pages(state: RouterState) -> list[ParaId]:
    """Return, ascending, the paras that own anything."""
    return sorted({
        *state.paras,
        *state.accounts,
        *state.pending_candidates,
        *state.relay_dispatch_queues,
        *state.downward_message_queues,
        *state.downward_message_queue_heads,
        *state.downward_messages_sent,
        *state.hrmp_watermarks,
        *state.hrmp_ingress_channels_index,
        *state.hrmp_channel_digests,
        *(() if state.message_queue is None else state.message_queue.books),
    })  # fmt: skip


def encode_common_page(state: RouterState) -> bytes:
    """Encode what no para owns: configuration, modes, session, outgoing paras, requests, the ring."""
    out = Writer()
    out.u8(SEED)
    for name in CONFIGURATION_FIELDS:
        out.compact(getattr(state.host_configuration, name))
    out.u8(_BALANCES.index(state.balances_mode))
    out.u8(state.hrmp_notifications)
    out.u32(state.session_index)
    out.compact(len(state.outgoing_paras))
    for para in state.outgoing_paras:
        out.u32(para)
    out.option(state.next_dispatch_round_start_with, out.u32)

    out.compact(len(state.hrmp_open_channel_requests_list))
    for channel_id in state.hrmp_open_channel_requests_list:
        request = state.hrmp_open_channel_requests[channel_id]
        _write_channel_id(out, channel_id)
        out.u8(request.confirmed)
        out.u32(request.age)
        out.u128(request.sender_deposit)
        out.u32(request.limit_used_places)
        out.u32(request.limit_used_bytes)
        out.u32(request.limit_message_size)
    uncounted = sorted(state.hrmp_uncounted_requests.items())
    out.compact(len(uncounted))
    for para, count in uncounted:
        out.u32(para)
        out.u32(count)
    out.compact(len(state.hrmp_close_channel_requests_list))
    for channel_id in state.hrmp_close_channel_requests_list:
        _write_channel_id(out, channel_id)
    return with_later_parts(out, later_common_part(state), newest_common_part(state))


def encode_para_page(state: RouterState, para: ParaId) -> bytes | None:
    """Encode what a para owns. Return None if it owns nothing."""
    out = Writer()
    out.u8(SEED)
    out.u32(para)
    kind = state.paras.get(para)
    out.u8(0 if kind is None else 1 + _PARA_KINDS.index(kind))
    account = state.accounts.get(para) or Account()
    out.compact(account.free)
    out.compact(account.reserved)

    write_pending(out, state, para, _write_candidate)
    upward = state.relay_dispatch_queues.get(para, ())
    out.compact(len(upward))
    for payload in upward:
        out.bytes(payload)
    downward = state.downward_message_queues.get(para, ())
    out.compact(len(downward))
    for sent_at, msg in downward:
        out.u32(sent_at)
        out.bytes(msg)
    out.option(state.downward_message_queue_heads.get(para), out.hash)
    out.compact(state.downward_messages_sent.get(para, 0))
    out.option(state.hrmp_watermarks.get(para), out.u32)

    inbound = state.hrmp_channels.inbound.get(para, NO_CHANNELS)
    senders = state.hrmp_ingress_channels_index.get(para, ())
    out.compact(len(senders))
    for sender in senders:
        out.u32(sender)
        _write_channel(out, inbound[sender])
    digests = state.hrmp_channel_digests.get(para, {})
    out.compact(len(digests))
    for block, block_senders in digests.items():
        out.u32(block)
        out.compact(len(block_senders))
        for sender in block_senders:
            out.u32(sender)
    later = later_para_part(state, para)
    if not any(out.buffer[_OWNER_BYTES:]) and not any(later.buffer):
        return None
    return with_later_parts(out, later)


def decode_state(common_page: bytes, pages: Iterable[bytes]) -> RouterState:
    """Rebuild a state from its pages, derived fields included. Raises `DecodeError`."""
    reader = whole_page(common_page, EMPTY_COMMON_PARTS)
    values: dict[str, int] = {name: reader.compact() for name in CONFIGURATION_FIELDS}
    state = RouterState(HostConfiguration(**values))  # completed below
    state.balances_mode = reader.choice(_BALANCES)
    state.hrmp_notifications = reader.boolean()
    state.session_index = reader.u32()
    state.outgoing_paras = reader.items(reader.u32)
    state.next_dispatch_round_start_with = reader.option(reader.u32)
    for _ in range(reader.compact()):
        _read_request(reader, state)
    state.hrmp_uncounted_requests = dict(reader.items(lambda: (reader.u32(), reader.u32())))
    for _ in range(reader.compact()):
        channel_id = (reader.u32(), reader.u32())
        state.hrmp_close_channel_requests[channel_id] = None
        state.hrmp_close_channel_requests_list.append(channel_id)
    read_later_common_part(reader, state)
    read_newest_common_part(reader, state)
    count_exactly(state)
    reader.end()
    # a million channels have few different numbers: each is kept once, which saves a third of a channel's memory
    numbers: dict[int, int] = {}
    for page in pages:
        if is_handler_page(page):
            state.handler_states.load(page)
        else:
            _read_para_page(whole_page(page, EMPTY_PARA_PARTS), state, numbers)
    state.needs_dispatch = sorted(state.relay_dispatch_queues)
    queue = state.message_queue
    if queue is not None and sorted(queue.ring) != sorted(para for para, book in queue.books.items() if book.waits):
        raise DecodeError(f"the ring of paras with waiting messages is wrong: {queue.ring}")
    state.touched = Touched()
    return state


def _write_channel_id(out: Writer, channel_id: ChannelId) -> None:
    out.u32(channel_id[0])
    out.u32(channel_id[1])


def _read_request(reader: Reader, state: RouterState) -> None:
    channel_id = (reader.u32(), reader.u32())
    request = HrmpOpenChannelRequest(
        reader.boolean(), reader.u32(), reader.u128(), reader.u32(), reader.u32(), reader.u32()
    )
    state.hrmp_open_channel_requests[channel_id] = request
    state.hrmp_open_channel_requests_list.append(channel_id)
    increase(state.hrmp_open_channel_request_count, channel_id[0])
    if request.confirmed:
        increase(state.hrmp_accepted_channel_request_count, channel_id[1])


def _write_candidate(out: Writer, candidate: Candidate) -> None:
    out.u32(candidate.para_id)
    out.u32(candidate.relay_parent_number)
    out.u32(candidate.hrmp_watermark)
    out.u32(candidate.processed_downward_messages)
    out.compact(len(candidate.upward_messages))
    for payload in candidate.upward_messages:
        out.bytes(payload)
    out.compact(len(candidate.horizontal_messages))
    for recipient, data, _ in candidate.horizontal_messages:
        out.u32(recipient)
        out.bytes(data)
    out.option(candidate.candidate_hash, out.bytes)


def _read_candidate(reader: Reader) -> Candidate:
    para_id, relay_parent_number, hrmp_watermark, processed = (reader.u32() for _ in range(4))
    upward = tuple(reader.items(reader.bytes))
    horizontal = tuple(reader.items(lambda: HorizontalMessage(reader.u32(), reader.bytes())))
    return Candidate(
        para_id, relay_parent_number, hrmp_watermark, upward, processed, horizontal, reader.option(reader.bytes)
    )


def _write_channel(out: Writer, channel: HrmpChannel) -> None:
    sender_deposit, recipient_deposit, pruned_head = (
        channel.sender_deposit,
        channel.recipient_deposit,
        channel.pruned_head,
    )
    out.buffer += _CHANNEL.pack(
        sender_deposit & _U64,
        sender_deposit >> 64,
        recipient_deposit & _U64,
        recipient_deposit >> 64,
        channel.limit_used_places,
        channel.limit_used_bytes,
        channel.limit_message_size,
        channel.messages_sent,
        channel.mqc_head,
    )
    out.option(pruned_head, out.hash)
    contents = channel.contents or ()
    out.compact(len(contents))
    for sent_at, data, head in contents:
        out.u32(sent_at)
        out.bytes(data)
        if pruned_head is None:
            out.option(head, out.hash)


def _read_channel(reader: Reader, numbers: dict[int, int]) -> HrmpChannel:
    low, high, recipient_low, recipient_high, *limits, messages_sent, mqc_head = _CHANNEL.unpack(
        reader.take(_CHANNEL.size)
    )
    read = (low | high << 64, recipient_low | recipient_high << 64, *limits)
    deposit, recipient_deposit, places, size, message_size = (numbers.setdefault(number, number) for number in read)
    channel = HrmpChannel(deposit, recipient_deposit, places, size, message_size)
    channel.messages_sent = messages_sent
    channel.mqc_head = ZERO_HASH if mqc_head == ZERO_HASH else mqc_head
    head = reader.option(reader.hash)
    channel.pruned_head = head = channel.mqc_head if head == mqc_head else head
    contents: list[InboundHrmpMessage] = []
    for _ in range(reader.compact()):
        sent_at, data = reader.u32(), reader.bytes()
        if channel.pruned_head is None:
            contents.append(InboundHrmpMessage(sent_at, data, reader.option(reader.hash)))
        else:
            assert head is not None
            head = mqc_link(head, sent_at, message_hash(data))
            contents.append(InboundHrmpMessage(sent_at, data, head))
        channel.used_places += 1
        channel.used_bytes += len(data)
    channel.contents = contents or None
    return channel


def _read_para_page(reader: Reader, state: RouterState, numbers: dict[int, int]) -> None:
    para = reader.u32()
    para = numbers.setdefault(para, para)
    kind = reader.choice((None, *_PARA_KINDS))
    if kind is not None:
        state.paras[para] = kind
    free, reserved = reader.compact(), reader.compact()
    if kind is not None or free or reserved:
        state.accounts[para] = Account(free, reserved)

    read_pending(reader, state, para, _read_candidate)
    upward = deque(reader.items(reader.bytes))
    if upward:
        state.relay_dispatch_queues[para] = upward
        state.relay_dispatch_queue_size[para] = (len(upward), sum(map(len, upward)))
    downward = deque(reader.items(lambda: InboundDownwardMessage(reader.u32(), reader.bytes())))
    if downward:
        state.downward_message_queues[para] = downward
    _put(state.downward_message_queue_heads, para, reader.option(reader.hash))
    _put(state.downward_messages_sent, para, reader.compact() or None)
    _put(state.hrmp_watermarks, para, reader.option(reader.u32))

    senders, inbound = [], {}
    for _ in range(reader.compact()):
        sender = reader.u32()
        sender = numbers.setdefault(sender, sender)
        senders.append(sender)
        inbound[sender] = _read_channel(reader, numbers)
        insort(state.hrmp_egress_channels_index.setdefault(sender, []), para)
    if any(sender >= following for sender, following in pairwise(senders)):
        raise DecodeError(f"the senders to para {para} are not in ascending order")
    if senders:
        state.hrmp_ingress_channels_index[para] = senders
        state.hrmp_channels.inbound[para] = inbound
    digests = dict(reader.items(lambda: (reader.u32(), reader.items(reader.u32))))
    if digests:
        state.hrmp_channel_digests[para] = digests
    read_later_para_part(reader, state, para)
    reader.end()


def _put(storage: dict[ParaId, Hash] | dict[ParaId, int], para: ParaId, value: Hash | int | None) -> None:
    if value is not None:
        storage[para] = value  # type: ignore[assignment]


def encode_state(state: RouterState) -> tuple[bytes, Mapping[int, bytes]]:
    """Encode the state: the common page, and the pages of all owners by owner, ascending."""
    pages = {}
    for para in para_pages(state):
        page = encode_para_page(state, para)
        if page is not None:
            pages[para] = page
    for owner in state.handler_states.owners():
        page = state.handler_states.page(owner)
        assert page is not None
        pages[owner] = page
    return encode_common_page(state), pages


def owner_of(page: bytes) -> int:
    """Return the owner of a page. Raises `DecodeError`."""
    if is_handler_page(page):
        return handler_states.owner_of(page)
    return whole_page(page[:_OWNER_BYTES], EMPTY_PARA_PARTS).u32()


def is_current(page: bytes) -> bool:
    """Return whether decoding and encoding the page returns the same bytes: it is no page of an earlier version."""
    return not is_handler_page(page) or page[0] == handler_states.PAGE.version
