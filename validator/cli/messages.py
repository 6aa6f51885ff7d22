# SPDX-License-Identifier: Apache-2.0
"""`validator message` and `validator messages-of`: where messages between chains are, and why they wait, from the topic `journeys`."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Group
from rich.text import Text

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, connected, print_json, say, terminated_as_interrupted
from validator.cli.progress import counting, working
from validator.cli.table import cells, print_table, table_of
from validator.cli.watch import watched
from validator.codec.json_form import shown_json
from validator.config import DEFAULT_PROTOCOL
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.hexadecimal import from_hex, to_hex
from validator.kafka.reader import TopicReader
from validator.messages import (
    JOURNEYS,
    WAITING,
    LaneFacts,
    QueueName,
    age,
    before_each,
    content_of,
    end_of,
    ended_at,
    ends_of,
    holds,
    quantile,
    queue_of,
    queued_at,
    why_waits,
)
from validator.plugin.rule_pages import Sort, installed_pages
from validator.sentences import count, plural, why_of
from validator.visible import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.client.topics import ReadableTopic
    from validator.config import Config
    from validator.kafka.reader import TopicRecord

VERDICTS_LOOKED_AT: Final = 20_000
"""Last offsets of each partition of `verdicts` among which the last candidates of paras are looked for."""
SHOWN_MAX: Final = 100
"""Messages that a list shows by default."""
RECORDS_PER_STEP: Final = 10_000
"""Records between two steps of the progress bar."""

_STATUSES: Final = (WAITING, "received", "dispatched", "dropped")
_HASH: Final = re.compile("(0x)?[0-9a-f]{64}")


def message(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID|HASH",
            help="A message's id, or 32 bytes in hex: of its payload, its queue's MQC head, an XCM or its topic.",
        ),
    ],
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Show a message's way: where it was queued, what became of it, and why it waits if it does.

    Reads the topic `journeys`, which `[jobs.journeys]` writes. Several messages of one hash are listed. Exit code 1 if there is none.

    Examples:

    - `validator message polkadot.horizontal.2000.2004.17.5` shows the fifth message of the channel that was opened in block 17
    - `validator message 0x9f…` shows the messages with this payload, or with this topic
    """
    config = connected(config_path)
    shown = watched(JOURNEYS, config).topic
    digest = to_hex(from_hex(name)) if _HASH.fullmatch(name.lower()) else None
    if digest is None and name.count(".") < len(QueueName._fields):
        raise UserError(f"ID: expected LANE.KIND.SENDER.RECIPIENT.OPENED_AT.NUMBER or 32 bytes in hex, found {name!r}")
    with terminated_as_interrupted(), _reader(config, shown) as records:
        found = _named(shown, records, name) if digest is None else _of_hash(shown, records, digest)
    if not found:
        say(f"validator: no message {name} among those of {JOURNEYS}{_if_empty(config, shown)}")
        raise typer.Exit(exit_codes.DISAGREEMENT)
    told = _Teller(config, shown).told(found)
    if as_json:
        print_json(*(each.document() for each in told))
    elif len(told) == 1:
        print_table(_way(told[0]))
    else:
        print_table(_list(told))
        say(f"{len(told)} messages; `validator message ID` shows one")


def messages_of(
    para: Annotated[int, typer.Option("--para", min=0, max=U32_MAX, help="The para that sends or receives.")],
    lane: Annotated[str | None, typer.Option("--lane", help="Only messages of this lane.")] = None,
    stuck: Annotated[
        int | None,
        typer.Option("--stuck", min=1, metavar="BLOCKS", help="Only messages that have waited for as many blocks."),
    ] = None,
    status: Annotated[
        str,
        typer.Option(
            "--status", metavar="STATUS", help=f"{', '.join(_STATUSES)}.", autocompletion=lambda: list(_STATUSES)
        ),
    ] = WAITING,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Messages to list.")] = SHOWN_MAX,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """List a para's messages, by default those that wait, longest first, each with why; and how long each queue's messages have waited.

    Exit code 1 with --stuck if there is one: for alerts.

    Examples:

    - `validator messages-of --para 2000` shows what waits from and to para 2000
    - `validator messages-of --para 2000 --stuck 50` shows, and reports by its exit code, what has waited for 50 blocks
    - `validator messages-of --para 2000 --status dropped` shows what was lost
    """
    if status not in _STATUSES:
        raise UserError(f"--status: expected {', '.join(_STATUSES)}, found {status!r}")
    if stuck is not None and status != WAITING:
        raise UserError(f"--stuck needs --status {WAITING}, found {status}")
    config = connected(config_path)
    shown = watched(JOURNEYS, config).topic
    queues: dict[QueueName, _Waits] = {}
    with terminated_as_interrupted(), _reader(config, shown) as records:
        found = _of_para(shown, records, para, lane)
    for each in found:
        queues.setdefault(queue_of(each), _Waits(Counter(), [])).take(each)
    wanted = [each for each in found if each["status"] == status]
    teller = _Teller(config, shown, found)
    told = teller.told(wanted)
    if status == WAITING:
        told = [each for each in told if stuck is None or (each.age or 0) >= stuck]
        told.sort(
            key=lambda each: (
                queued_at(each.message) or 0,
                tuple(map(str, queue_of(each.message))),
                each.message["number"],
            )
        )
    else:
        told.sort(key=lambda each: (-(ended_at(each.message) or 0), each.message["id"]))
    listed = told[:limit]
    if as_json:
        print_json(*(each.document() for each in listed))
    else:
        parts: list[Any] = [_queues(queues)] if queues else []
        print_table(Group(*parts, Text(""), _list(listed)) if listed else Group(*parts))
        if len(told) > len(listed):
            say(f"{len(told) - len(listed)} more; --limit shows further ones")
        if not told:
            for_long = f" for {stuck} blocks" if stuck else ""
            say(f"validator: no {status} message of para {para}{for_long}{'' if found else _if_empty(config, shown)}")
    if stuck is not None and told:
        raise typer.Exit(exit_codes.DISAGREEMENT)


# --- reading ---


@contextmanager
def _reader(config: Config, shown: ReadableTopic) -> Iterator[Iterator[TopicRecord]]:
    """Yield the records of the topic, of each key the last one."""
    with (
        TopicReader(config.kafka, config.topics.prefix, [JOURNEYS], newest=True, missing=shown.missing) as reader,
        counting("reading the messages") as progress,
    ):
        total = sum(end - first for first, end in reader.spans().values())

        def records() -> Iterator[TopicRecord]:
            for done, record in enumerate(reader.read_to_end()):
                if done % RECORDS_PER_STEP == 0:
                    progress(done, total)
                yield record

        yield records()


def _if_empty(config: Config, shown: ReadableTopic) -> str:
    """Return what an answer adds if the topic has no record at all."""
    with TopicReader(config.kafka, config.topics.prefix, [JOURNEYS], missing=shown.missing) as reader:
        is_empty = next(iter(reader.read_to_end()), None) is None
    return (
        "; the topic is empty: the job journeys has not read what the lanes emit (`validator lanes`, and the job's log)"
        if is_empty
        else ""
    )


def _named(shown: ReadableTopic, records: Iterable[TopicRecord], name: str) -> list[dict[str, Any]]:
    last = None
    for record in records:
        if record.key == name.encode():
            last = record
    return [] if last is None else [shown.decode(last.value)]


def _of_hash(shown: ReadableTopic, records: Iterable[TopicRecord], digest: str) -> list[dict[str, Any]]:
    raw, last = from_hex(digest), dict[bytes | None, dict[str, Any]]()
    for record in records:
        if raw in record.value:
            message = shown.decode(record.value)
            if holds(message, digest):
                last[record.key] = message
    return sorted(last.values(), key=lambda each: each["id"])


def _of_para(shown: ReadableTopic, records: Iterable[TopicRecord], para: int, lane: str | None) -> list[dict[str, Any]]:
    last, text = dict[bytes | None, bytes](), str(para).encode()
    for record in records:
        parts = (record.key or b"").rsplit(b".", 5)
        if text in parts[2:4] and (lane is None or parts[0] == lane.encode()):
            last[record.key] = record.value
    return [shown.decode(value) for value in last.values()]


def _lane_facts(config: Config, lanes: set[str]) -> dict[str, LaneFacts]:
    facts = {lane: LaneFacts() for lane in lanes}
    for topic, tail in (("lanes", None), ("headroom", None), ("verdicts", VERDICTS_LOOKED_AT)):
        with TopicReader(config.kafka, config.topics.prefix, [topic], tail=tail, newest=tail is None) as reader:
            for read in reader.read_to_end():
                try:
                    record = shown_json(topic, read.value)
                except UserError:  # a foreign record
                    continue
                if record["lane"] in facts:
                    facts[record["lane"]].take(topic, record)
    return facts


# --- telling ---


class _Told(NamedTuple):
    """A message with what the lane's records say about it; ``ahead`` is None unless it waits."""

    message: dict[str, Any]
    age: int | None
    ahead: int | None
    why: str

    def document(self) -> dict[str, Any]:
        return {**self.message, "age_blocks": self.age, "ahead": self.ahead, "why": self.why or None}


class _Teller:
    """Says why messages wait. ``known`` are messages whose queues were read completely; others are read again."""

    def __init__(self, config: Config, shown: ReadableTopic, known: list[dict[str, Any]] | None = None) -> None:
        self._config, self._shown, self._known = config, shown, known

    def told(self, messages: list[dict[str, Any]]) -> list[_Told]:
        waiting = [each for each in messages if each["status"] == WAITING]
        if not waiting:
            return [_Told(each, each["waits_blocks"], None, "") for each in messages]
        with working("looking at the lanes"):
            facts = _lane_facts(self._config, {each["lane"] for each in messages})
        known = self._beside(waiting) if self._known is None else self._known
        before = before_each((queue_of(each), each["number"]) for each in known if each["status"] == WAITING)
        told = []
        for each in messages:
            lane = facts[each["lane"]]
            ahead, why = None, ""
            if each["status"] == WAITING:
                ahead = before(queue_of(each), each["number"])
                why = why_waits(each, ahead, lane, self._why)
            told.append(_Told(each, age(each, lane.executed_block), ahead, why))
        return told

    def _beside(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Read the messages of the same queues, whose ids begin alike."""
        starts = tuple({each["id"].encode()[: each["id"].rindex(".") + 1] for each in messages})
        with _reader(self._config, self._shown) as records:
            last = {each.key: each.value for each in records if each.key is not None and each.key.startswith(starts)}
        return [self._shown.decode(value) for value in last.values()]

    def _why(self, verdict: Any) -> str:
        chain = self._config.chains.get(verdict["lane"])
        protocol = DEFAULT_PROTOCOL if chain is None else chain.protocol
        entry = next((each for each in _errors(protocol) if each.name == verdict["error"]["kind"] and each.says), None)
        said = why_of(entry, verdict)
        return " ".join(filter(None, (said.text, said.then)))


@cache
def _errors(protocol: str) -> list[Any]:
    return [each for page in installed_pages([protocol])[0] for each in page.entries if each.sort is Sort.ERROR]


class _Waits(NamedTuple):
    """How many messages of a queue have which status, and for how many blocks those that ended had waited."""

    statuses: Counter[str]
    blocks: list[int]

    def take(self, message: dict[str, Any]) -> None:
        self.statuses[message["status"]] += 1
        if message["waits_blocks"] is not None:
            self.blocks.append(message["waits_blocks"])


def _queues(queues: dict[QueueName, _Waits]) -> Any:
    table = table_of("lane", "kind", "queue", *_STATUSES, "p50 blocks", "p95 blocks", numbers=len(_STATUSES) + 2)
    merged: dict[tuple[str, str, str], _Waits] = {}
    for queue, waits in queues.items():
        name = queue.lane, queue.kind, ends_of(queue._asdict())
        into = merged.setdefault(name, _Waits(Counter(), []))
        into.statuses.update(waits.statuses)
        into.blocks.extend(waits.blocks)
    for name, waits in sorted(merged.items()):
        numbers = (count(waits.statuses[each]) if waits.statuses[each] else "" for each in _STATUSES)
        table.add_row(
            *cells(
                (
                    *name,
                    *numbers,
                    *(
                        "" if each is None else count(each)
                        for each in (quantile(waits.blocks, 0.5), quantile(waits.blocks, 0.95))
                    ),
                )
            )
        )
    return table


def _list(told: list[_Told]) -> Any:
    table = table_of("message", "status", "holds", "blocks", "why it waits, or how it ended")
    table.columns[3].justify = "right"
    for each in told:
        table.add_row(
            *cells(
                (
                    each.message["id"],
                    each.message["status"],
                    content_of(each.message),
                    count(each.age),
                    each.why or end_of(each.message),
                )
            )
        )
    return table


def _way(told: _Told) -> Any:
    message = told.message
    verb = "waits" if message["status"] == WAITING else message["status"]
    since = (
        ""
        if told.age is None
        else f", {'for' if message['status'] == WAITING else 'after'} {plural(told.age, 'block')}"
    )
    parts: list[Any] = [Text(f"{message['id']}: {verb}{since}")]
    parts.append(Text(f"  {printable(told.why or end_of(message))}"))
    legs = table_of("block", "step", "by", "detail")
    for leg in message["legs"]:
        by = "" if leg["by"] is None else f"{leg['by']} {leg['index']}"
        digest = "" if leg["candidate_hash"] is None else f" {leg['candidate_hash']}"
        legs.add_row(*cells((count(leg["block"]), leg["step"], by + digest, leg["detail"] or "")))
    parts += [Text(""), legs, Text("")]
    content = table_of("", "")
    content.show_header = False
    for name, value in _facts(message):
        content.add_row(*cells((name, value)))
    return Group(*parts, content)


def _facts(message: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is known of a message besides its way, by name."""
    for name in ("payload_hash", "size", "mqc_head", "journey"):
        if message[name] is not None:
            yield name.replace("_", " "), count(message[name]) if name == "size" else str(message[name])
    payload = message["payload"]
    if payload is None:
        return
    yield "form", payload["form"]
    for xcm in payload["messages"]:
        if xcm["instructions"]:
            yield f"XCM V{xcm['version']}", ", ".join(xcm["instructions"])
        if xcm["id"] is not None:
            yield "XCM id", xcm["id"]
        for asset in xcm["assets"]:
            yield "asset", f"{asset['amount']} of {asset['location']}"
        for size in xcm["calls"]:
            yield "call", plural(size, "byte")
    reasons = [*(xcm["reason"] for xcm in payload["messages"]), payload["reason"]]
    for reason in dict.fromkeys(each for each in reasons if each is not None):
        yield "not read", reason
