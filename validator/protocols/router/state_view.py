# SPDX-License-Identifier: Apache-2.0
"""The Router's views for `validator state show`: the whole state, one para, one channel."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Final, TypeVar

from validator.core.hashing import blake2b_256, message_hash
from validator.core.limits import U32_MAX
from validator.core.types import ChannelId, ParaId
from validator.hexadecimal import to_hex
from validator.plugin.protocol_api import StateSection, StateView, section_title
from validator.protocols.kit import PendingCandidate
from validator.protocols.router.encoding import encode_para_page
from validator.protocols.router.state import Book, HrmpChannel, HrmpChannels, MessageQueue, RouterState
from validator.protocols.router.statefile import write_state
from validator.protocols.router.traces import view

# --- state sections -------------------------------------------------------------------------------------------------------------------
# Figures and tables that show a Router state, one para or one channel to a person.


FIRST_MESSAGES: Final = 5
"""Maximum number of messages shown of a queue."""
LIST_MAX: Final = 20
"""Maximum number of blocks shown of a list."""

Row = tuple[str, ...]


def whole_sections(state: RouterState) -> list[StateSection]:
    """Summarise a state in figures."""
    upward = [sum(numbers) for numbers in zip((0, 0), *state.relay_dispatch_queue_size.values(), strict=True)]
    downward = [len(message.msg) for queue in state.downward_message_queues.values() for message in queue]
    horizontal = [channel.used_bytes for channel in state.hrmp_channels.values()]
    in_channels = sum(channel.used_places for channel in state.hrmp_channels.values())
    confirmed = sum(request.confirmed for request in state.hrmp_open_channel_requests.values())
    pending = sum(map(len, state.pending_candidates.values()))
    leaving = len(state.outgoing_paras)
    facts = (
        ("session", f"{state.session_index:,}"),
        ("paras", _with(len(state.paras), f"{leaving} outgoing", leaving)),
        ("channels", f"{len(state.hrmp_channels):,}"),
        ("open requests", _with(len(state.hrmp_open_channel_requests), f"{confirmed} of them confirmed", confirmed)),
        ("close requests", f"{len(state.hrmp_close_channel_requests):,}"),
        ("pending candidates", f"{pending:,}"),
    )
    rows = (
        ("upward", f"{upward[0]:,}", f"{upward[1]:,}", f"{len(state.relay_dispatch_queue_size):,} queues"),
        ("downward", f"{len(downward):,}", f"{sum(downward):,}", f"{len(state.downward_message_queues):,} queues"),
        ("horizontal", f"{in_channels:,}", f"{sum(horizontal):,}", f"{len(state.hrmp_channel_contents):,} channels"),
    )
    return [
        StateSection(facts=facts),
        StateSection("messages", columns=("queue", "messages", "bytes", "in"), rows=rows, left=("queue", "in")),
    ]


def para_sections(state: RouterState, para: ParaId, page: bytes | None) -> list[StateSection]:
    """Show what a para owns, its channels in both directions and what waits for it; ``page`` encodes what it owns."""
    config = state.host_configuration
    account = state.accounts.get(para)
    kind = state.paras.get(para)
    leaving = " (outgoing)" if para in state.outgoing_paras else ""
    upward_count, upward_bytes = state.relay_dispatch_queue_size.get(para, (0, 0))
    in_queue = f"{upward_count} of {_limit(config.max_upward_queue_count)}"
    downward = state.downward_message_queues.get(para, ())
    head = state.downward_message_queue_heads.get(para)
    sent = state.downward_messages_sent.get(para, 0)
    facts = (
        ("kind", "not a valid para" if kind is None else f"{kind.value}{leaving}"),
        ("account", "none" if account is None else f"{account.free:,} free, {account.reserved:,} reserved"),
        ("watermark", _or_none(state.hrmp_watermarks.get(para))),
        ("upward queue", f"{in_queue} messages, {upward_bytes:,} of {_limit(config.max_upward_queue_size)} bytes"),
        (
            "downward queue",
            f"{len(downward)} messages, {sum(len(message.msg) for message in downward):,} bytes; {sent:,} sent in total",
        ),
        ("MQC head", "none" if head is None else to_hex(head)),
        ("page", "none" if page is None else f"{_bytes(len(page))}, {to_hex(blake2b_256(page))}"),
    )
    sections = [StateSection(facts=facts), *_upward(state, para), *_downward(downward, sent), *_blocks(state, para)]
    incoming = [(sender, para) for sender in state.hrmp_ingress_channels_index.get(para, ())]
    outgoing = [(para, recipient) for recipient in state.hrmp_egress_channels_index.get(para, ())]
    sections += _channels("inbound channels", state, incoming)
    sections += _channels("outbound channels", state, outgoing)
    return [*sections, *_requests(state), *_pending_section(state, para)]


def channel_sections(state: RouterState, channel_id: ChannelId) -> list[StateSection]:
    """Show a channel, or the request to open it."""
    channel = state.hrmp_channels.get(channel_id)
    if channel is None:
        return _requests(state)
    left = (
        f"{_left(channel.limit_used_places, channel.used_places)} messages",
        f"{_left(channel.limit_used_bytes, channel.used_bytes)} bytes",
        *_fullness(channel),
    )
    facts = (
        ("messages", f"{channel.used_places} of {_limit(channel.limit_used_places)} places"),
        ("bytes", f"{channel.used_bytes:,} of {_limit(channel.limit_used_bytes)}"),
        ("left", ", ".join(left)),
        ("max message size", f"{_limit(channel.limit_message_size)} bytes"),
        ("deposits", f"{channel.sender_deposit:,} of the sender, {channel.recipient_deposit:,} of the recipient"),
        ("sent in total", f"{channel.messages_sent:,}"),
        ("MQC head", to_hex(channel.mqc_head)),
    )
    contents = channel.contents or ()
    rows = []
    for at, message in enumerate(contents, 1):
        number = channel.messages_sent - len(contents) + at
        rows.append(
            (
                # messages that were in the channel when the lane began have no number
                str(number) if number > 0 else "",
                str(message.sent_at),
                f"{len(message.data):,}",
                to_hex(message_hash(message.data)),
                "" if message.mqc_head is None else to_hex(message.mqc_head),
            )
        )
    columns = ("number", "sent at", "bytes", "payload hash", "MQC head after it")
    return [
        StateSection(facts=facts),
        *_table("contents", columns, rows, left=columns[3:]),
        *_requests(state),
    ]


def _table(
    words: str, columns: Row, rows: Sequence[Row], left: Row = (), count: int | None = None, shown: int | None = None
) -> list[StateSection]:
    """Return a table with its title, or an empty list if there are no rows; ``count`` is the number of all entries, shown or not."""
    title = section_title(words, len(rows) if count is None else count, shown)
    return [StateSection(title, columns=columns, rows=rows, left=left)] if rows else []


def _upward(state: RouterState, para: ParaId) -> list[StateSection]:
    if state.message_queue is None:
        return _waiting(state.relay_dispatch_queues.get(para, ()))
    book = state.message_queue.books.get(para, Book())
    aside = list(book.set_aside())
    rows = [
        (str(page), str(index), f"{len(payload):,}", to_hex(payload)) for page, index, payload in aside[:FIRST_MESSAGES]
    ]
    columns = ("page", "index", "bytes", "payload")
    return [
        *_waiting(list(book.waiting())),
        *_table("upward messages set aside as too heavy", columns, rows, ("payload",), len(aside), FIRST_MESSAGES),
    ]


def _waiting(queue: Any) -> list[StateSection]:
    rows = [(str(at), f"{len(payload):,}", to_hex(payload)) for at, payload in enumerate(_first(queue), 1)]
    return _table("upward messages", ("position", "bytes", "payload"), rows, ("payload",), len(queue), FIRST_MESSAGES)


def _downward(queue: Any, sent: int) -> list[StateSection]:
    rows = [
        (str(sent - len(queue) + at), str(message.sent_at), f"{len(message.msg):,}", to_hex(message.msg))
        for at, message in enumerate(_first(queue), 1)
    ]
    columns = ("number", "sent at", "bytes", "payload")
    return _table("downward messages", columns, rows, ("payload",), len(queue), FIRST_MESSAGES)


def _blocks(state: RouterState, para: ParaId) -> list[StateSection]:
    digests = state.hrmp_channel_digests.get(para, {})
    rows = [(str(block), ", ".join(map(str, senders))) for block, senders in islice(digests.items(), LIST_MAX)]
    words = "blocks with inbound messages"
    return _table(words, ("block", "senders"), rows, ("senders",), len(digests), LIST_MAX)


def _channels(words: str, state: RouterState, channel_ids: Sequence[ChannelId]) -> list[StateSection]:
    rows = []
    for channel_id in channel_ids:
        channel = state.hrmp_channels[channel_id]
        closing = ("closing",) if channel_id in state.hrmp_close_channel_requests else ()
        rows.append(
            (
                f"{channel_id[0]} -> {channel_id[1]}",
                f"{channel.used_places:,}/{_limit(channel.limit_used_places)}",
                f"{channel.used_bytes:,}/{_limit(channel.limit_used_bytes)}",
                _limit(channel.limit_message_size),
                to_hex(channel.mqc_head),
                ", ".join((*closing, *_fullness(channel))),
            )
        )
    return _table(
        words, ("channel", "messages", "bytes", "max message size", "MQC head", "remark"), rows, ("MQC head", "remark")
    )


def _requests(state: RouterState) -> list[StateSection]:
    rows = [
        (
            f"{sender} -> {recipient}",
            "confirmed" if request.confirmed else "",
            str(request.age),
            _limit(request.limit_used_places),
            _limit(request.limit_used_bytes),
            _limit(request.limit_message_size),
            f"{request.sender_deposit:,}",
        )
        for (sender, recipient) in state.hrmp_open_channel_requests_list
        for request in (state.hrmp_open_channel_requests[sender, recipient],)
    ]
    columns = ("channel", "answer", "age (sessions)", "messages", "bytes", "max message size", "deposit")
    sections = _table("requests to open", columns, rows)
    closing = [f"{sender} -> {recipient}" for sender, recipient in state.hrmp_close_channel_requests_list]
    if closing:
        sections.append(StateSection(section_title("requests to close", len(closing)), text=f" {', '.join(closing)}"))
    return sections


def _pending_section(state: RouterState, para: ParaId) -> list[StateSection]:
    rows = [
        (
            str(each.backed_at),
            str(each.candidate.hrmp_watermark),
            str(len(each.candidate.upward_messages)),
            str(len(each.candidate.horizontal_messages)),
            str(each.candidate.processed_downward_messages),
        )
        for each in state.pending_candidates.get(para, ())
    ]
    columns = ("backed at", "watermark", "upward", "horizontal", "processed downward")
    return _table("pending candidates", columns, rows)


def _first(queue: Iterable[Any]) -> list[Any]:
    return list(islice(queue, FIRST_MESSAGES))


def _with(count: int, words: str, wanted: object) -> str:
    return f"{count:,}, {words}" if wanted else f"{count:,}"


def _fullness(channel: HrmpChannel) -> tuple[str, ...]:
    """Return whether a channel takes no message, or few more: four fifths of its places or bytes are used."""
    uses = ((channel.used_places, channel.limit_used_places), (channel.used_bytes, channel.limit_used_bytes))
    if any(used >= limit for used, limit in uses):
        return ("full",)
    return ("nearly full",) if any(used * 5 >= limit * 4 for used, limit in uses) else ()


def _limit(value: int) -> str:
    return "unlimited" if value == U32_MAX else f"{value:,}"


def _left(limit: int, used: int) -> str:
    return "unlimited" if limit == U32_MAX else f"{limit - used:,}"


def _or_none(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"


# --- state view -----------------------------------------------------------------------------------------------------------------------


K = TypeVar("K")
V = TypeVar("V")

_OF_A_CHANNEL: Final = ("channels", "contents", "open_requests", "close_request_set")


def about_para(state: RouterState, para: ParaId) -> RouterState | None:
    """Return the part of a state that concerns a para: what it owns, its channels and its requests; None if there is nothing."""
    channels = [(sender, para) for sender in state.hrmp_ingress_channels_index.get(para, ())]
    channels += [(para, recipient) for recipient in state.hrmp_egress_channels_index.get(para, ())]
    channels += [channel_id for channel_id in state.hrmp_open_channel_requests_list if para in channel_id]
    if not channels and encode_para_page(state, para) is None:
        return None
    return _part(state, (para,), dict.fromkeys(channels))


def about_channel(state: RouterState, channel_id: ChannelId) -> RouterState | None:
    """Return the part of a state that concerns a channel or the request for it, or None if there is neither."""
    if channel_id not in state.hrmp_channels and channel_id not in state.hrmp_open_channel_requests:
        return None
    return _part(state, (), (channel_id,))


def _whole_document(state: RouterState) -> dict[str, Any]:
    return {
        "host_configuration": {
            name: value for name, value in asdict(state.host_configuration).items() if value is not None
        },
        "balances": state.balances_mode.value,
        "hrmp_notifications": state.hrmp_notifications,
        "pending_candidates": _pending(state),
    }


def _para_document(state: RouterState, para: ParaId) -> dict[str, Any] | None:
    part = about_para(state, para)
    if part is None:
        return None
    page = encode_para_page(state, para)
    return {
        "para_id": para,
        "page_hash": None if page is None else blake2b_256(page).hex(),
        "pending_candidates": _pending(part),
        "state": write_state(part),
    }


def _channel_document(state: RouterState, channel_id: ChannelId) -> dict[str, Any] | None:
    part = about_channel(state, channel_id)
    if part is None:
        return None
    opened = part.hrmp_channels.get(channel_id)
    keys = view(part)
    return {
        "channel": list(channel_id),
        "messages_sent": 0 if opened is None else opened.messages_sent,
        "state": {key: keys[key] for key in _OF_A_CHANNEL},
    }


def _para_sections(state: RouterState, para: ParaId) -> Sequence[StateSection] | None:
    part = about_para(state, para)
    return None if part is None else para_sections(part, para, encode_para_page(state, para))


def _channel_sections(state: RouterState, channel_id: ChannelId) -> Sequence[StateSection] | None:
    part = about_channel(state, channel_id)
    return None if part is None else channel_sections(part, channel_id)


def _pending(state: RouterState) -> dict[str, list[dict[str, Any]]]:
    return {str(para): [_candidate(each) for each in queue] for para, queue in sorted(state.pending_candidates.items())}


def _candidate(pending: PendingCandidate) -> dict[str, Any]:
    """Return a candidate by the field names of its record."""
    candidate = pending.candidate
    return {
        "backed_at": pending.backed_at,
        "relay_parent_number": candidate.relay_parent_number,
        "hrmp_watermark": candidate.hrmp_watermark,
        "upward_messages": [payload.hex() for payload in candidate.upward_messages],
        "processed_downward_messages": candidate.processed_downward_messages,
        "horizontal_messages": [
            {"recipient": message.recipient, "data": message.data.hex()} for message in candidate.horizontal_messages
        ],
        "candidate_hash": None if candidate.candidate_hash is None else candidate.candidate_hash.hex(),
    }


def _part(state: RouterState, paras: Collection[ParaId], channels: Collection[ChannelId]) -> RouterState:
    """Return a state that holds only what the given paras own, and the given channels and requests."""
    queue = state.message_queue
    return RouterState(
        state.host_configuration,
        state.balances_mode,
        state.hrmp_notifications,
        state.session_index,
        paras=_only(state.paras, paras),
        accounts=_only(state.accounts, paras),
        outgoing_paras=[para for para in state.outgoing_paras if para in paras],
        pending_candidates=_only(state.pending_candidates, paras),
        relay_dispatch_queues=_only(state.relay_dispatch_queues, paras),
        relay_dispatch_queue_size=_only(state.relay_dispatch_queue_size, paras),
        needs_dispatch=[para for para in state.needs_dispatch if para in paras],
        next_dispatch_round_start_with=(
            state.next_dispatch_round_start_with if state.next_dispatch_round_start_with in paras else None
        ),
        message_queue=queue
        and MessageQueue(_only(queue.books, paras), ring=[para for para in queue.ring if para in paras]),
        downward_message_queues=_only(state.downward_message_queues, paras),
        downward_message_queue_heads=_only(state.downward_message_queue_heads, paras),
        downward_messages_sent=_only(state.downward_messages_sent, paras),
        hrmp_open_channel_requests=_only(state.hrmp_open_channel_requests, channels),
        hrmp_open_channel_requests_list=[each for each in state.hrmp_open_channel_requests_list if each in channels],
        hrmp_open_channel_request_count=_only(state.hrmp_open_channel_request_count, paras),
        hrmp_uncounted_requests=_only(state.hrmp_uncounted_requests, paras),
        hrmp_stranded_deposits=_only(state.hrmp_stranded_deposits, paras),
        hrmp_accepted_channel_request_count=_only(state.hrmp_accepted_channel_request_count, paras),
        hrmp_close_channel_requests=_only(state.hrmp_close_channel_requests, channels),
        hrmp_close_channel_requests_list=[each for each in state.hrmp_close_channel_requests_list if each in channels],
        hrmp_watermarks=_only(state.hrmp_watermarks, paras),
        hrmp_channels=HrmpChannels(_only(state.hrmp_channels, channels)),
        hrmp_ingress_channels_index=_only(state.hrmp_ingress_channels_index, paras),
        hrmp_egress_channels_index=_only(state.hrmp_egress_channels_index, paras),
        hrmp_channel_digests=_only(state.hrmp_channel_digests, paras),
    )


def _only(whole: Mapping[K, V], keys: Collection[K]) -> dict[K, V]:
    return {key: whole[key] for key in keys if key in whole}


STATE_VIEW: Final = StateView(
    paras=lambda state: sorted(state.paras),
    channels=lambda state: sorted(state.hrmp_channels),
    whole_document=_whole_document,
    para_document=_para_document,
    channel_document=_channel_document,
    whole_sections=whole_sections,
    para_sections=_para_sections,
    channel_sections=_channel_sections,
)
