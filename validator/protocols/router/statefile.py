# SPDX-License-Identifier: Apache-2.0
"""A lane's state file: the state keys of the conformance format, written by someone who starts to follow a live chain.

Derived keys (sets, counts, indexes, sizes) may be left out; if they are given, they must agree. Queues and channels may be seeded with
their waiting messages. If a channel's earlier history is not known, its MQC head is taken as given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from validator.compare import first_difference
from validator.core.handlers.errors import ContextError
from validator.core.handlers.handler import KIND
from validator.core.limits import HANDLER_KEY_BYTES_MAX, HANDLER_VALUE_BYTES_MAX, U32_MAX, U128_MAX
from validator.core.types import ZERO_HASH, Balances, ChannelId, Para, ParaId
from validator.document import Node, read_para
from validator.errors import UserError
from validator.plugin.protocol_api import ChainSettings, StateFile
from validator.protocols.kit import Account, channel_name, increase
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.features.message_queue import enact_upward_messages
from validator.protocols.router.invariants import broken_book, broken_invariants
from validator.protocols.router.state import (
    MESSAGE_OVERHEAD_BYTES,
    Book,
    HrmpChannel,
    HrmpOpenChannelRequest,
    InboundDownwardMessage,
    InboundHrmpMessage,
    MessageQueue,
    Page,
    RouterState,
    add_channel,
    count_exactly,
)
from validator.protocols.router.traces import view

STATE_KEYS = tuple(view(RouterState(HostConfiguration())))

HANDLER_STATES = "handler_states"
"""An extra key: the state of handlers by plugin and key; keys and values are hex. The conformance format has no key for it."""

UMP_BOOKS = "ump_books"
"""An extra key: the exact layout of the pages of upward messages, by para. It may be left out where `_read_message_queue` says."""

STRANDED_DEPOSITS = "stranded_deposits"
"""An extra key: by para, deposits that stay reserved although their request is gone (router_profiles PR-04)."""

UNCOUNTED_REQUESTS, LOST_PLACES = "uncounted_requests", "lost_places"
"""Extra keys: by para, requests that its open request count does not have (I-06), and those that are gone but still counted (PR-03)."""

UNCOUNTED_ACCEPTANCES = "uncounted_acceptances"
"""An extra key: by para, confirmed requests that its accepted request count does not have (PR-17)."""

_EXTRA_AMOUNTS = (UNCOUNTED_REQUESTS, LOST_PLACES, UNCOUNTED_ACCEPTANCES, STRANDED_DEPOSITS)

PAGE_MESSAGES_MAX = 2**20
"""Greatest index of a message in a page. A page of the default size holds 13,107 empty messages."""

PAGES_MAX = 2**31
"""Greatest number of a page: a lane can number as many again."""

SHOWN_CHARACTERS = 200
"""Characters of a value in an error: a queue may hold megabytes."""

_HASH_BYTES = 32


def read_state(
    node: Node,
    config: HostConfiguration,
    *,
    balances: Balances = Balances.LEDGER,
    notifications: bool = False,
) -> RouterState:
    """Build the Router state that an object of state keys describes.

    ``valid_paras`` lists para ids, or objects with ``para_id`` and ``kind``. Raises `UserError` for an object without any key of a state,
    a malformed value, a derived key that disagrees, or an invariant that does not hold.
    """
    node.refuse_misspelt(known := (*STATE_KEYS, HANDLER_STATES, UMP_BOOKS, *_EXTRA_AMOUNTS))
    node.refuse_foreign(known, "keys of a state, such as valid_paras, balances and channels")
    state = RouterState(config, balances, notifications)
    for para in node["valid_paras"].items() if node.has("valid_paras") else ():
        onboarded = read_para(para) if isinstance(para.value, dict) else Para(para.integer())
        if onboarded.para_id in state.paras:
            raise para.fail("a para that is not listed yet")
        state.paras[onboarded.para_id] = onboarded.kind
    _read_accounts(node, state)
    for key in _EXTRA_AMOUNTS:
        most = U128_MAX if key == STRANDED_DEPOSITS else U32_MAX
        amounts = {_para(name, amount): amount.integer(most) for name, amount in _members(node, key)}
        setattr(state, f"hrmp_{key}", {para: amount for para, amount in amounts.items() if amount})
    _read_upward(node, state)
    _read_message_queue(node, state)
    _read_downward(node, state)
    _read_requests(node, state)
    for name, channel in _members(node, "channels"):
        _read_channel(channel, node, state, _channel_id(name, channel))
    _read_digests(node, state)
    state.hrmp_watermarks = {_para(name, mark): mark.integer() for name, mark in _members(node, "watermarks")}
    state.outgoing_paras = (
        [para.integer() for para in node["outgoing_paras"].items()] if node.has("outgoing_paras") else []
    )
    _read_handler_states(node, state)
    _check(node, state)
    return state


def write_state(state: RouterState) -> dict[str, Any]:
    """Return the document that `read_state` reads: every state key, the kind of every para, and the state of handlers."""
    document = view(state)
    document["valid_paras"] = [{"para_id": para, "kind": kind.value} for para, kind in sorted(state.paras.items())]
    # a session change settles requests in the order in which they were made
    requests: dict[str, Any] = document["open_requests"]
    order = map(channel_name, state.hrmp_open_channel_requests_list)
    document["open_requests"] = {name: requests[name] for name in order}
    configured = state.host_configuration.hrmp_recipient_deposit
    for channel_id, request in state.hrmp_open_channel_requests.items():
        if request.confirmed and request.recipient_deposit != configured:
            document["open_requests"][channel_name(channel_id)]["recipient_deposit"] = request.recipient_deposit
    for name in _EXTRA_AMOUNTS:
        amounts = getattr(state, f"hrmp_{name}")
        if amounts:
            document[name] = {str(para): amount for para, amount in sorted(amounts.items())}
    if state.message_queue is not None:
        document[UMP_BOOKS] = _books(state.message_queue)
    kept: dict[str, dict[str, str]] = {}
    for plugin, key, value in state.handler_states.entries():
        kept.setdefault(plugin, {})[key.hex()] = value.hex()
    return {**document, HANDLER_STATES: kept} if kept else document


def _check(node: Node, state: RouterState) -> None:
    stated = {key: value for key, value in node.object().items() if value is not None}
    given = {key: value for key, value in stated.items() if key in STATE_KEYS and key != "valid_paras"}
    if "open_requests" in given:  # a recipient's deposit is no key of the view
        given["open_requests"] = {
            name: {key: value for key, value in request.items() if key != "recipient_deposit"}
            for name, request in given["open_requests"].items()
        }
    difference = first_difference(given, view(state))
    if difference is not None:
        where, _, values = difference.partition(": expected ")
        said, _, implied = values.rpartition(", got ")
        raise UserError(f"{node.path}.{where}: the file says {_start(said)}, its other keys imply {_start(implied)}")
    broken = next(broken_invariants(state), None)
    if broken is not None:
        raise UserError(f"{node.path}: the rules cannot reach this state: {broken}")


def _start(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _read_accounts(node: Node, state: RouterState) -> None:
    for name, account in _members(node, "balances"):
        free = account.get("free", lambda value: value.integer(U128_MAX), 0)
        reserved = account.get("reserved", lambda value: value.integer(U128_MAX), 0)
        state.accounts[_para(name, account)] = Account(free, reserved)


def _read_upward(node: Node, state: RouterState) -> None:
    for name, queue in _members(node, "ump_queues"):
        payloads = deque(payload.hex() for payload in queue.items())
        if payloads:
            para = _para(name, queue)
            state.relay_dispatch_queues[para] = payloads
            state.relay_dispatch_queue_size[para] = (len(payloads), sum(map(len, payloads)))
    state.needs_dispatch = sorted(state.relay_dispatch_queues)
    state.next_dispatch_round_start_with = node.get("next_dispatch_round_start_with", Node.integer, None)


def _read_message_queue(node: Node, state: RouterState) -> None:
    """Read the books of upward messages, if the state has a ring: as `UMP_BOOKS` lays them out, else as the other keys imply.

    Without a layout, messages that were set aside keep their addresses, and waiting ones begin a page after them.
    """
    if not node.has("ready_ring"):
        for key in (UMP_BOOKS, "ump_overweight"):
            if node.has(key):
                raise node[key].fail("null, since ready_ring is null")
        return
    waiting, state.relay_dispatch_queues = state.relay_dispatch_queues, {}
    state.relay_dispatch_queue_size, state.needs_dispatch = {}, []
    state.next_dispatch_round_start_with = None
    queue = state.message_queue = MessageQueue()
    if node.has(UMP_BOOKS):
        queue.ring = [para.integer() for para in node["ready_ring"].items()]
        for name, item in _members(node, UMP_BOOKS):
            book = _read_book(item)
            if book != Book():
                queue.books[_para(name, item)] = book
    else:
        for name, items in _members(node, "ump_overweight"):
            book = _book_of_set_aside(items)
            if book != Book():
                queue.books[_para(name, items)] = book
        for item in node["ready_ring"].items():
            if item.integer() not in waiting:
                raise item.fail("a para with waiting messages in ump_queues")
            _check_sizes(node, state, item.integer(), waiting[item.integer()])
            enact_upward_messages(state, item.integer(), waiting[item.integer()])
    for para, book in queue.books.items():
        size = book.size()
        if size != (0, 0):
            state.relay_dispatch_queue_size[para] = size


def _check_sizes(node: Node, state: RouterState, para: ParaId, payloads: Iterable[bytes]) -> None:
    """Refuse a waiting message that no page can hold: enactment would drop it."""
    longest = state.host_configuration.heap_size - MESSAGE_OVERHEAD_BYTES
    for at, payload in enumerate(payloads):
        if len(payload) > longest:
            raise UserError(
                f"{node.path}.ump_queues.{para}[{at}]: expected at most {longest} bytes, which a page holds, found {len(payload)}"
            )


def _book_of_set_aside(items: Node) -> Book:
    book = Book()
    for item in items.items():
        number, index = item["page"].integer(PAGES_MAX - 1), item["index"].integer(PAGE_MESSAGES_MAX)
        page = book.pages.setdefault(number, Page())
        if index < len(page.messages):
            raise item["index"].fail(f"an index from {len(page.messages)} on")
        page.messages += [None] * (index - len(page.messages))
        page.append(item["msg"].hex())
        book.begin = book.end = max(book.begin, number + 1)
    return book


def _read_book(node: Node) -> Book:
    begin, end = node["begin"].integer(PAGES_MAX), node["end"].integer(PAGES_MAX)
    book = Book(begin, end, node.get("next_index", Node.integer, 0))
    for name, item in _members(node, "pages"):
        messages = [None if each.value is None else each.hex() for each in item["messages"].items()]
        unprocessed = sum(payload is not None for payload in messages)
        book.pages[_number(name, item, "a page's number")] = Page(messages, item["heap_used"].integer(), unprocessed)
    broken = next(broken_book("this one", book), None)
    if broken is not None:
        raise UserError(f"{node.path}: {broken}")
    return book


def _books(queue: MessageQueue) -> dict[str, Any]:
    return {
        str(para): {
            "begin": book.begin,
            "end": book.end,
            "next_index": book.next_index,
            "pages": {
                str(number): {
                    "heap_used": page.heap_used,
                    "messages": [None if payload is None else payload.hex() for payload in page.messages],
                }
                for number, page in sorted(book.pages.items())
            },
        }
        for para, book in sorted(queue.books.items())
    }


def _read_downward(node: Node, state: RouterState) -> None:
    for name, queue in _members(node, "dmq"):
        messages = deque(InboundDownwardMessage(item["sent_at"].integer(), item["msg"].hex()) for item in queue.items())
        if messages:
            state.downward_message_queues[_para(name, queue)] = messages
    for name, head in _members(node, "dmq_heads"):
        state.downward_message_queue_heads[_para(name, head)] = head.hex(_HASH_BYTES)


def _read_requests(node: Node, state: RouterState) -> None:
    for name, item in _members(node, "open_requests"):
        channel_id = _channel_id(name, item)
        state.hrmp_open_channel_requests_list.append(channel_id)
        state.hrmp_open_channel_requests[channel_id] = request = HrmpOpenChannelRequest(
            confirmed=item["confirmed"].boolean(),
            age=item["age"].integer(),
            sender_deposit=item["sender_deposit"].integer(U128_MAX),
            limit_used_places=item["limit_used_places"].integer(),
            limit_used_bytes=item["limit_used_bytes"].integer(),
            limit_message_size=item["limit_message_size"].integer(),
        )
        if item.has("recipient_deposit") and not request.confirmed:
            raise item["recipient_deposit"].fail("null, since the request is not confirmed")
        left = item.get(
            "recipient_deposit", lambda value: value.integer(U128_MAX), state.host_configuration.hrmp_recipient_deposit
        )
        request.recipient_deposit = left if request.confirmed else 0
        increase(state.hrmp_open_channel_request_count, channel_id[0])
        if request.confirmed:
            increase(state.hrmp_accepted_channel_request_count, channel_id[1])
    _check_counts(node, UNCOUNTED_REQUESTS, state.hrmp_open_channel_request_count, "open")
    _check_counts(node, UNCOUNTED_ACCEPTANCES, state.hrmp_accepted_channel_request_count, "confirmed")
    count_exactly(state)
    for item in node["close_request_set"].items() if node.has("close_request_set") else ():
        channel_id = _channel_id(item.text(), item)
        state.hrmp_close_channel_requests[channel_id] = None
        state.hrmp_close_channel_requests_list.append(channel_id)


def _check_counts(node: Node, key: str, counts: Mapping[ParaId, int], what: str) -> None:
    for name, uncounted in _members(node, key):
        counted = counts.get(_para(name, uncounted), 0)
        if uncounted.integer() > counted:
            raise uncounted.fail(f"at most the {counted} {what} requests of para {name}")


def _read_channel(channel: Node, node: Node, state: RouterState, channel_id: ChannelId) -> None:
    opened = HrmpChannel(
        sender_deposit=channel.get("sender_deposit", lambda value: value.integer(U128_MAX), 0),
        recipient_deposit=channel.get("recipient_deposit", lambda value: value.integer(U128_MAX), 0),
        limit_used_places=channel["limit_used_places"].integer(),
        limit_used_bytes=channel["limit_used_bytes"].integer(),
        limit_message_size=channel["limit_message_size"].integer(),
        mqc_head=channel.get("mqc_head", lambda value: value.hex(_HASH_BYTES), ZERO_HASH),
    )
    name = f"{channel_id[0]}->{channel_id[1]}"
    contents = node["contents"] if node.has("contents") else Node({}, "")
    messages = [
        InboundHrmpMessage(item["sent_at"].integer(), item["data"].hex(), None)
        for item in (contents[name].items() if contents.has(name) else ())
    ]
    opened.pruned_head = None if messages else opened.mqc_head
    opened.used_places = len(messages)
    opened.used_bytes = sum(len(message.data) for message in messages)
    opened.contents = messages or None
    add_channel(state, channel_id, opened)


def _read_digests(node: Node, state: RouterState) -> None:
    for name, entries in _members(node, "digests"):
        digests: dict[int, list[ParaId]] = {}
        for entry in entries.items():
            parts = list(entry.items())
            if len(parts) != 2:
                raise entry.fail("[block, [sender, ...]]")
            digests[parts[0].integer()] = [sender.integer() for sender in parts[1].items()]
        if digests:
            state.hrmp_channel_digests[_para(name, entries)] = digests


def _read_handler_states(node: Node, state: RouterState) -> None:
    for plugin, entries in _members(node, HANDLER_STATES):
        if not KIND.fullmatch(plugin):
            raise UserError(f"{entries.path}: expected a plugin's name as key, found {plugin[:60]!r}")
        for name, value in entries.members():
            key, kept = Node(name, value.path).hex(), value.hex()
            if not 1 <= len(key) <= HANDLER_KEY_BYTES_MAX:
                raise UserError(f"{value.path}: expected a key of 1 to {HANDLER_KEY_BYTES_MAX} bytes, found {len(key)}")
            if len(kept) > HANDLER_VALUE_BYTES_MAX:
                raise UserError(f"{value.path}: expected at most {HANDLER_VALUE_BYTES_MAX} bytes, found {len(kept)}")
            try:
                state.handler_states.put(plugin, key, kept)
            except ContextError as error:
                raise UserError(f"{entries.path}: {error}") from None


def _members(node: Node, key: str) -> list[tuple[str, Node]]:
    return list(node[key].members()) if node.has(key) else []


def _para(name: str, node: Node) -> ParaId:
    return _number(name, node, "a para id")


def _number(name: str, node: Node, what: str) -> int:
    # each number has one spelling: no sign, no leading zero; int() refuses very long digit strings
    if not name.isascii() or not name.isdigit() or len(name) > 10 or str(int(name)) != name or int(name) > U32_MAX:
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise UserError(f"{node.path}: expected {what} from 0 to {U32_MAX} as key, found {shown!r}")
    return int(name)


def _channel_id(name: str, node: Node) -> ChannelId:
    ends: list[Any] = name.split("->")
    if len(ends) != 2:
        raise UserError(f"{node.path}: expected a channel 'sender->recipient', found {name!r}")
    return _para(ends[0], node), _para(ends[1], node)


def _read(node: Node, settings: ChainSettings) -> RouterState:
    return read_state(node, settings.configuration, balances=settings.balances, notifications=settings.notifications)


def _counts(state: RouterState) -> dict[str, int]:
    return {"paras": len(state.paras), "channels": len(state.hrmp_channels)}


STATE_FILE: Final = StateFile(read=_read, write=write_state, counts=_counts)
