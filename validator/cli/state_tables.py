# SPDX-License-Identifier: Apache-2.0
"""A stored lane, a para and a channel of it as tables for a person."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from validator.core.hashing import blake2b_256, message_hash
from validator.service.state import entries_of_plugin, kept_by_plugins, state_of_channel, state_of_para

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from validator.core.types import ChannelId, ParaId
    from validator.protocols.router.state import RouterState
    from validator.service.state import RestoredLane
    from validator.service.verification import Check

FIRST_MESSAGES: Final = 5
"""Of each queue, and of the channels and blocks of a list that may be long: so many are shown."""
LIST_MAX: Final = 20

Fact = tuple[str, RenderableType]


def lane_tables(lane: RestoredLane) -> RenderableType:
    """Show where a lane stands, what its state holds and what its store weighs."""
    inner, head, state = lane.worker.lane, lane.head, lane.router.state
    counters = inner.counters
    upward = [sum(numbers) for numbers in zip((0, 0), *state.relay_dispatch_queue_size.values(), strict=True)]
    downward = [len(message.msg) for queue in state.downward_message_queues.values() for message in queue]
    horizontal = [channel.used_bytes for channel in state.hrmp_channels.values()]
    in_channels = sum(channel.used_places for channel in state.hrmp_channels.values())
    confirmed = sum(request.confirmed for request in state.hrmp_open_channel_requests.values())
    pending = sum(map(len, state.pending_candidates.values()))
    return Group(
        _title(lane),
        _facts(
            ("session", f"{state.session_index:,}"),
            ("paras", _with(len(state.paras), f"{len(state.outgoing_paras)} on their way out", state.outgoing_paras)),
            ("channels", f"{len(state.hrmp_channels):,}"),
            (
                "open requests",
                _with(len(state.hrmp_open_channel_requests), f"{confirmed} of them confirmed", confirmed),
            ),
            ("close requests", f"{len(state.hrmp_close_channel_requests):,}"),
            ("pending candidates", f"{pending:,}"),
        ),
        _heading("messages"),
        _table(
            ("", "messages", "bytes", "in"),
            [
                ("upward", f"{upward[0]:,}", f"{upward[1]:,}", f"{len(state.relay_dispatch_queues):,} queues"),
                (
                    "downward",
                    f"{len(downward):,}",
                    f"{sum(downward):,}",
                    f"{len(state.downward_message_queues):,} queues",
                ),
                (
                    "horizontal",
                    f"{in_channels:,}",
                    f"{sum(horizontal):,}",
                    f"{len(state.hrmp_channel_contents):,} channels",
                ),
            ],
            left=("", "in"),
        ),
        *_kept(lane),
        _heading("records"),
        _table(
            ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting"),
            [
                tuple(
                    f"{number:,}"
                    for number in (
                        counters.consumed,
                        counters.accepted,
                        counters.rejected,
                        counters.duplicate,
                        counters.dead,
                        counters.waiting,
                    )
                )
            ],
        ),
        Text(f"  {inner.waits_for()}"),
        *_waiting(lane),
        _heading("store"),
        _facts(
            ("slots", f"{lane.slots:,} with {_bytes(head.slots_bytes)}"),
            ("journal", f"{head.journal_entries:,} batches with {_bytes(head.journal_bytes)}"),
            (
                "consumed",
                ", ".join(
                    f"{topic}[{partition}]@{offset}" for (topic, partition), offset in sorted(lane.consumed.items())
                ),
            ),
            ("summary", lane.worker.summary().hex()),
            ("state root", inner.rules.state_root().hex()),
            ("runtime", head.runtime_digest.hex()),
            ("plugins", ", ".join(lane.plugins)),
        ),
    )


def plugin_tables(lane: RestoredLane, plugin: str, limit: int) -> RenderableType:
    """Show what a plugin keeps, at most so many entries of it (0: all). Raises `UserError` where that is nothing."""
    entries = entries_of_plugin(lane, plugin)
    rows = [(key.hex(), value.hex()) for key, value in (entries[:limit] if limit else entries)]
    size = sum(len(key) + len(value) for key, value in entries)
    return Group(
        _title(lane),
        _facts(("plugin", plugin), ("keys", f"{len(entries):,}"), ("bytes", f"{size:,}")),
        _heading("entries", len(entries), limit or None),
        _table(("key", "value"), rows, left=("key", "value")),
    )


def _kept(lane: RestoredLane) -> list[RenderableType]:
    kept = kept_by_plugins(lane)
    if not kept:
        return []
    rows = [(each.plugin, f"{each.keys:,}", f"{each.bytes:,}") for each in kept]
    return [_heading("kept by handlers"), _table(("plugin", "keys", "bytes"), rows, left=("plugin",))]


def para_tables(lane: RestoredLane, para: ParaId) -> RenderableType:
    """Show what a para owns, its channels both ways and what waits for it. Raises `UserError` where there is nothing."""
    router = lane.router
    state = state_of_para(lane, para)
    config = state.host_configuration
    account = state.accounts.get(para)
    kind = state.paras.get(para)
    leaving = " (on its way out)" if para in state.outgoing_paras else ""
    upward = state.relay_dispatch_queues.get(para, ())
    upward_bytes = sum(map(len, upward))
    downward = state.downward_message_queues.get(para, ())
    head = state.downward_message_queue_heads.get(para)
    sent = state.downward_messages_sent.get(para, 0)
    page = router.page(para)
    digests = state.hrmp_channel_digests.get(para, {})
    pending = state.pending_candidates.get(para, ())
    rows: list[tuple[str, ...]]
    parts: list[RenderableType] = [
        _title(lane, f"para {para}"),
        _facts(
            ("kind", "not a valid para" if kind is None else f"{kind.value}{leaving}"),
            ("account", "none" if account is None else f"{account.free:,} free, {account.reserved:,} reserved"),
            ("watermark", _or_none(state.hrmp_watermarks.get(para))),
            (
                "upward queue",
                f"{len(upward)} of {config.max_upward_queue_count} messages, {upward_bytes:,} of {config.max_upward_queue_size:,} bytes",
            ),
            (
                "downward queue",
                f"{len(downward)} messages, {sum(len(message.msg) for message in downward):,} bytes; {sent:,} ever sent",
            ),
            ("its MQC head", "none" if head is None else head.hex()),
            ("page", "none" if page is None else f"{_bytes(len(page))}, {blake2b_256(page).hex()}"),
        ),
    ]
    if upward:
        rows = [(str(at), f"{len(payload):,}", _hex(payload)) for at, payload in enumerate(_first(upward), 1)]
        parts += [_heading("upward messages", len(upward)), _table(("", "bytes", "payload"), rows, left=("payload",))]
    if downward:
        rows = [
            (str(sent - len(downward) + at), str(message.sent_at), f"{len(message.msg):,}", _hex(message.msg))
            for at, message in enumerate(_first(downward), 1)
        ]
        parts += [
            _heading("downward messages", len(downward)),
            _table(("number", "sent at", "bytes", "payload"), rows, left=("payload",)),
        ]
    if digests:
        rows = [(str(block), ", ".join(map(str, senders))) for block, senders in islice(digests.items(), LIST_MAX)]
        parts += [
            _heading("blocks with messages for it", len(digests), LIST_MAX),
            _table(("block", "senders"), rows, left=("senders",)),
        ]
    incoming = [(sender, para) for sender in state.hrmp_ingress_channels_index.get(para, ())]
    outgoing = [(para, recipient) for recipient in state.hrmp_egress_channels_index.get(para, ())]
    for words, channel_ids in (("channels to it", incoming), ("channels from it", outgoing)):
        if channel_ids:
            parts += [_heading(words, len(channel_ids), None), _channels(state, channel_ids)]
    parts += _requests(state)
    if pending:
        rows = [
            (
                str(each.backed_at),
                str(each.candidate.hrmp_watermark),
                str(len(each.candidate.upward_messages)),
                str(len(each.candidate.horizontal_messages)),
                str(each.candidate.processed_downward_messages),
            )
            for each in pending
        ]
        names = ("backed at", "watermark", "upward", "horizontal", "processed downward")
        parts += [_heading("pending candidates", len(pending), None), _table(names, rows)]
    return Group(*parts)


def channel_tables(lane: RestoredLane, channel_id: ChannelId) -> RenderableType:
    """Show a channel, or the request for one. Raises `UserError` where there is neither."""
    state = state_of_channel(lane, channel_id)
    parts: list[RenderableType] = [_title(lane, f"channel {channel_id[0]} -> {channel_id[1]}")]
    channel = state.hrmp_channels.get(channel_id)
    if channel is not None:
        places_left, bytes_left = (
            channel.limit_used_places - channel.used_places,
            channel.limit_used_bytes - channel.used_bytes,
        )
        parts.append(
            _facts(
                ("messages", f"{channel.used_places} of {channel.limit_used_places:,} places"),
                ("bytes", f"{channel.used_bytes:,} of {channel.limit_used_bytes:,}"),
                ("left", f"{places_left:,} messages, {bytes_left:,} bytes"),
                ("a message has at most", f"{channel.limit_message_size:,} bytes"),
                (
                    "deposits",
                    f"{channel.sender_deposit:,} of the sender, {channel.recipient_deposit:,} of the recipient",
                ),
                ("ever sent", f"{channel.messages_sent:,}"),
                ("MQC head", channel.mqc_head.hex()),
            )
        )
        contents = state.hrmp_channel_contents.get(channel_id, ())
        rows = []
        for at, message in enumerate(contents, 1):
            number = channel.messages_sent - len(contents) + at
            rows.append(
                (
                    # what was in the channel when the lane began has no number
                    str(number) if number > 0 else "",
                    str(message.sent_at),
                    f"{len(message.data):,}",
                    message_hash(message.data).hex(),
                    "" if message.mqc_head is None else _hex(message.mqc_head),
                )
            )
        if rows:
            names = ("number", "sent at", "bytes", "hash of the payload", "MQC head after it")
            parts += [_heading("contents", len(rows), None), _table(names, rows, left=names[3:])]
    parts += _requests(state)
    return Group(*parts)


def check_tables(checks: Sequence[Check]) -> RenderableType:
    """Show a lane of the checkpoint beside the one that the topics give."""
    table = Table(Column("", no_wrap=True), "in the checkpoint", "from the topics", Column("", no_wrap=True), box=None)
    for check in checks:
        outcome = Text("same", style="green") if check.same else Text("differs", style="bold red")
        table.add_row(check.what, _short(check.stored), _short(check.rebuilt), outcome)
    return table


def differing(check: Check) -> str:
    """Say in one line what of a comparison differs."""
    named = ", ".join(check.differing[:LIST_MAX])
    more = f" and {len(check.differing) - LIST_MAX} more" if len(check.differing) > LIST_MAX else ""
    return f"{check.what}: {named}{more}" if named else f"{check.what}: {check.stored}, the topics give {check.rebuilt}"


# --- parts -------------------------------------------------------------------------------------------------------------------------------


def _title(lane: RestoredLane, what: str = "") -> RenderableType:
    words = [lane.name, what, f"after block {lane.worker.lane.executed_block:,}", f"batch {lane.batch}"]
    return Rule(Text(" · ".join(filter(None, words)), style="bold"), align="left")


def _heading(words: str, count: int = 0, shown: int | None = FIRST_MESSAGES) -> RenderableType:
    numbers = (
        "" if not count else f" ({count:,})" if shown is None or count <= shown else f" (first {shown} of {count:,})"
    )
    return Text(f"\n{words}{numbers}", style="bold cyan")


def _facts(*facts: Fact) -> Table:
    table = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2), pad_edge=True)
    for fact in facts:
        table.add_row(*fact)
    return table


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Table:
    columns = (
        Column(name, justify="left" if name in left else "right", no_wrap=name not in left, overflow="fold")
        for name in names
    )
    table = Table(*columns, box=None, padding=(0, 1), header_style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def _channels(state: RouterState, channel_ids: Sequence[ChannelId]) -> Table:
    rows = []
    for channel_id in channel_ids:
        channel = state.hrmp_channels[channel_id]
        full = (
            channel.used_places * 5 >= channel.limit_used_places * 4
            or channel.used_bytes * 5 >= channel.limit_used_bytes * 4
        )
        closing = "closing" if channel_id in state.hrmp_close_channel_requests else "nearly full" if full else ""
        rows.append(
            (
                f"{channel_id[0]} -> {channel_id[1]}",
                f"{channel.used_places:,}/{channel.limit_used_places:,}",
                f"{channel.used_bytes:,}/{channel.limit_used_bytes:,}",
                f"{channel.limit_message_size:,}",
                _hex(channel.mqc_head, 4),
                closing,
            )
        )
    return _table(("channel", "messages", "bytes", "message at most", "MQC head", ""), rows)


def _requests(state: RouterState) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if state.hrmp_open_channel_requests_list:
        rows = [
            (
                f"{sender} -> {recipient}",
                "confirmed" if request.confirmed else "",
                str(request.age),
                f"{request.limit_used_places:,}",
                f"{request.limit_used_bytes:,}",
                f"{request.limit_message_size:,}",
                f"{request.sender_deposit:,}",
            )
            for (sender, recipient) in state.hrmp_open_channel_requests_list
            for request in (state.hrmp_open_channel_requests[sender, recipient],)
        ]
        names = ("channel", "", "sessions old", "messages", "bytes", "message at most", "deposit")
        parts += [_heading("requests to open", len(rows), None), _table(names, rows)]
    if state.hrmp_close_channel_requests_list:
        closing = [f"{sender} -> {recipient}" for sender, recipient in state.hrmp_close_channel_requests_list]
        parts += [_heading("requests to close", len(closing), None), Text(f" {', '.join(closing)}")]
    return parts


def _waiting(lane: RestoredLane) -> list[RenderableType]:
    blocks = list(lane.worker.lane.waiting())
    if not blocks:
        return []
    rows = []
    for number, block in blocks[:LIST_MAX]:
        record = "" if block.record is None else "yes"
        missing = "" if block.record is None else f"{block.missing():,}"
        rows.append((str(number), f"{len(block.places):,}", record, missing))
    names = ("block", "records here", "its own record", "still missing")
    return [_heading("waiting", len(blocks), LIST_MAX), _table(names, rows)]


def _first(queue: Iterable[Any]) -> list[Any]:
    return list(islice(queue, FIRST_MESSAGES))


def _with(count: int, words: str, wanted: object) -> str:
    return f"{count:,}, {words}" if wanted else f"{count:,}"


def _or_none(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _hex(data: bytes, size: int = 16) -> str:
    return data.hex() if len(data) <= size else f"{data[:size].hex()}…"


def _short(text: str) -> str:
    return f"{text[:16]}…" if len(text) > 31 and " " not in text else text


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count:,} bytes"
    return f"{count / 1e3:,.0f} kB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"
