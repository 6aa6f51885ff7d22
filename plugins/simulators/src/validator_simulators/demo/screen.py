# SPDX-License-Identifier: Apache-2.0
"""The demo's live screen and its summary."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Column, Table
from rich.text import Text

from validator.cli.command_api import ACCEPTED, REJECTED, moved, why

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from validator_simulators import SimulationSettings
    from validator_simulators.demo.comparison import Comparison

PHASES: Final = ("Kafka", "topics", "Spark", "first verdict")

RATE_WINDOW_S: Final = 5.0

_SIDE_BY_SIDE_COLUMNS: Final = 120
_FIXED_ROWS: Final = 10
_BAR_COLUMNS: Final = 6
_SUMMARY_COLUMNS: Final = 100
_REJECTED_COLUMNS: Final = 40 + 4 + _BAR_COLUMNS + 6

_ACCOUNT: Final = (
    ("accepted", ACCEPTED), ("rejected", REJECTED), ("duplicate", "duplicate"), ("dead", "dead"), ("waiting", "waiting")
)  # fmt: skip

_KIND_STYLES: Final = {"candidate": "cyan", "request": "magenta", "downward": "blue"}


@dataclass
class DemoProgress:
    """The demo's progress; hold ``lock`` to change or draw it."""

    settings: SimulationSettings
    comparison: Comparison
    began: float = field(default_factory=time.monotonic)
    lock: Lock = field(default_factory=Lock)
    phases: dict[str, float] = field(default_factory=dict)
    bootstrap: str = ""
    console_url: str = ""
    """The address of the web console, if there is one."""
    ending: str = ""
    blocks_sent: int = 0
    accepted: deque[tuple[int, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=40))
    rejected: deque[tuple[int, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=40))
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=6))
    latencies_s: list[float] = field(default_factory=list)
    title: str | None = None
    """What is streamed; None for a simulated chain."""
    partner: str = "the model"
    """What verdicts are compared with."""
    _arrivals: deque[tuple[float, int]] = field(default_factory=deque)

    def reach(self, phase: str) -> None:
        """Note when a phase was reached."""
        self.phases.setdefault(phase, self.elapsed_s())

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    def take_verdict(self, record: dict[str, Any]) -> None:
        """Keep a verdict for the screen."""
        kept = self.accepted if record["ok"] else self.rejected
        kept.append((self.comparison.verdicts, record))

    def take_arrivals(self, count: int) -> None:
        """Count verdicts that have just arrived."""
        self._arrivals.append((time.monotonic(), count))

    def verdicts_per_s(self) -> float:
        """Return the rate of the last few seconds."""
        now = time.monotonic()
        while self._arrivals and now - self._arrivals[0][0] > RATE_WINDOW_S:
            self._arrivals.popleft()
        return sum(count for _, count in self._arrivals) / RATE_WINDOW_S

    def latency_ms(self, share: float) -> int | None:
        """Return a quantile of the time from a block's last record to its last verdict, for blocks sent at the set rate."""
        ordered = sorted(self.latencies_s)
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000) if ordered else None

    def status(self) -> dict[str, Any]:
        """Return the lane's last status record; empty before the first."""
        return self.comparison.status.get(self.settings.lane, {})

    def line(self) -> str:
        """Describe the progress in one line, for output that is not a terminal."""
        status, compared = self.status(), self.comparison
        parts = [
            f"{self.elapsed_s():6.1f} s",
            f"sent {self.blocks_sent}/{self.settings.blocks} blocks",
            f"executed {status.get('executed_block', 0)}",
            f"{compared.verdicts} verdicts ({compared.disagreed} disagree, {sum(compared.rejected.values())} rejected)",
        ]
        latency = self.latency_ms(0.5)
        return "  ".join([*parts, f"p50 {latency} ms"] if latency is not None else parts)


class DemoScreen:
    """Draws the progress, as tall as the terminal."""

    def __init__(self, progress: DemoProgress) -> None:
        self._progress = progress
        self._spinner = Spinner("dots", style="yellow")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._progress.lock:
            yield self._draw(options.max_width, console.height)

    def _draw(self, width: int, height: int) -> RenderableType:
        progress = self._progress
        wide = width >= _SIDE_BY_SIDE_COLUMNS
        events = min(len(progress.events), height // 8)
        rejected_rows = 0 if wide else height // 8
        console_line = [Text(progress.console_url, style="cyan", no_wrap=True)] if progress.console_url else []
        rows = max(4, height - _FIXED_ROWS - events - rejected_rows - len(console_line))
        verdicts = self._verdicts(rows, width - _REJECTED_COLUMNS - 2 if wide else width)
        rejected = self._rejected(rows if wide else rejected_rows, bar=wide)
        if not progress.comparison.verdicts:
            body: RenderableType = self._waiting(rows)
        elif wide:
            middle = Table.grid(Column(ratio=1), Column(width=_REJECTED_COLUMNS), padding=(0, 2), expand=True)
            middle.add_row(verdicts, rejected)
            body = middle
        else:
            body = Group(verdicts, rejected)
        return Group(
            self._title(),
            self._phases(),
            *console_line,
            self._bars(width),
            self._lane(),
            Text(""),
            body,
            self._events(events),
            self._foot(),
        )

    def _title(self) -> Text:
        settings = self._progress.settings
        title = self._progress.title or f"{settings.lane}, simulated: seed {settings.seed}, {settings.blocks} blocks"
        return Text.assemble(
            ("validator demo", "bold"), f"  {title}  ",
            (f"{self._progress.elapsed_s():.0f} s  ", "dim"), (self._progress.ending, "yellow"),
        )  # fmt: skip

    def _phases(self) -> RenderableType:
        progress = self._progress
        cells: list[RenderableType] = []
        for phase in PHASES:
            name = f"{phase} {progress.bootstrap}" if phase == "Kafka" and progress.bootstrap else phase
            if phase in progress.phases:
                cells.append(
                    Text.assemble((f"{ACCEPTED} ", "green"), name, (f" {progress.phases[phase]:.0f} s  ", "dim"))
                )
            else:
                self._spinner.update(text=Text(f"{name}  ", style="yellow"))
                cells.append(self._spinner)
                break
        grid = Table.grid(padding=(0, 1))
        grid.add_row(*cells)
        return grid

    def _bars(self, width: int) -> RenderableType:
        progress, blocks = self._progress, self._progress.settings.blocks
        first = progress.settings.first_block
        executed = progress.status().get("executed_block")
        done = 0 if executed is None else max(0, executed - first + 1)
        grid = Table.grid(Column(width=9), Column(width=max(10, width - 45)), Column(), padding=(0, 1))
        for name, count, text in (
            ("sent", progress.blocks_sent, f"{progress.comparison.records_sent} records"),
            ("executed", done, f"{progress.comparison.verdicts} verdicts"),
        ):
            grid.add_row(
                Text(name, style="dim"),
                ProgressBar(total=blocks or 1, completed=count),
                Text(f"block {count}/{blocks}, {text}"),
            )
        return grid

    def _lane(self) -> Text:
        status = self._progress.status()
        if not status:
            return Text(f"lane {self._progress.settings.lane}: nothing consumed yet", style="dim")
        session = (status["last_receipt"] or {}).get("session", 0)
        numbers = " + ".join(f"{status[name]} {short}" for name, short in _ACCOUNT)
        return Text.assemble(
            (f"lane {status['lane']}", "bold"), f" session {session}  ", (f"{status['consumed']} records = {numbers}  ", "dim"),
            (status["waiting_for"] or "", "yellow"), no_wrap=True, overflow="ellipsis",
        )  # fmt: skip

    def _waiting(self, rows: int) -> RenderableType:
        """Show how records flow while Spark starts, since there are no results for 20 seconds."""
        progress = self._progress
        sent = progress.comparison.records_sent
        style = {True: "green", False: "dim"}
        kafka, topics, spark, first = (style[phase in progress.phases] for phase in PHASES)
        picture = Text.assemble(
            ("  blocks  candidates  channel-requests  downward-messages", topics), (f"   {sent} records\n", "dim"),
            ("                        │ ", kafka), ("Kafka, Avro\n", "dim"),
            ("          decode, check, hash", spark), ("   in parallel\n", "dim"),
            ("                        │\n", spark),
            (f"        lane {progress.settings.lane}: block by block", spark), ("   the rules, in one order\n", "dim"),
            ("                        │ ", kafka), ("Kafka, Avro\n", "dim"),
            ("  verdicts  dispatches  channel-events  headroom  receipts\n", first),
            (f"\n  {progress.elapsed_s():.0f} s. ", "bold"), ("The first verdicts take about 20 s; then they arrive every second.", "dim"),
        )  # fmt: skip
        table = Table.grid()
        table.add_row(picture)
        for _ in range(rows + 1 - picture.plain.count("\n") - 1):
            table.add_row()
        return table

    def _verdicts(self, rows: int, width: int) -> RenderableType:
        progress = self._progress
        half = rows // 2
        # rejections get more than their share of the rows, since they say more
        kept = sorted(
            [*list(progress.accepted)[-half:], *list(progress.rejected)[-(rows - half) :]], key=lambda item: item[0]
        )
        right = {"justify": "right"}
        table = Table(
            Column("block", **right, style="dim"), Column("kind"), Column("para", **right), "",  # type: ignore[arg-type]
            Column("latest verdicts", no_wrap=True, overflow="ellipsis", ratio=1),
            box=None, expand=True, padding=(0, 1), header_style="bold", width=width,
        )  # fmt: skip
        for _, record in kept:
            kind = Text(f"{record['kind']} {record['index']}", style=_KIND_STYLES.get(record["kind"], ""))
            mark = Text(ACCEPTED, style="green") if record["ok"] else Text(REJECTED, style="bold red")
            table.add_row(str(record["block"]), kind, str(record["para_id"]), mark, self._effect(record))
        for _ in range(rows - len(kept)):
            table.add_row()
        return table

    @staticmethod
    def _effect(record: dict[str, Any]) -> Text:
        if not record["ok"]:
            name, _, fields = why(record["error"]).partition("  ")
            return Text.assemble((name, "red"), "  ", (fields, "dim"))
        queued = [f"{ref['recipient']} #{ref['sequence_number']}" for ref in record["messages"]]
        effect = f"queued to {', '.join(queued)}" if queued else ""
        if record["effective_session"] is not None:
            effect = f"effective from session {record['effective_session']}"
        return Text(effect, style="dim")

    def _rejected(self, rows: int, *, bar: bool) -> RenderableType:
        counts = self._progress.comparison.rejected.most_common(rows)
        table = Table(
            Column("rejected, by rule", no_wrap=True, overflow="ellipsis", max_width=40),
            Column("", justify="right", no_wrap=True, min_width=4),
            *([Column("", min_width=_BAR_COLUMNS)] if bar else []),
            box=None, padding=(0, 1), header_style="bold",
        )  # fmt: skip
        most = counts[0][1] if counts else 1
        for kind, count in counts:
            cells: list[RenderableType] = [Text(kind), Text(str(count))]
            table.add_row(
                *cells, *([Text("▇" * max(1, round(_BAR_COLUMNS * count / most)), style="red")] if bar else [])
            )
        return table

    def _events(self, rows: int) -> RenderableType:
        lines = []
        for event in list(self._progress.events)[-rows:] if rows else ():
            style = {"opened": "bold green", "closed": "bold yellow"}.get(event["event"], "dim")
            details = f"  {moved(event)}" if event["event"] in ("opened", "closed") else ""
            line = Text.assemble(
                (f"{event['block']:>6} ", "dim"), ("channel ", "dim"), f"{event['sender']}→{event['recipient']} ", (event["event"], style),
                (f"  session {event['session']}{details}", "dim"), no_wrap=True, overflow="ellipsis",
            )  # fmt: skip
            lines.append(line)
        return Group(*lines)

    def _foot(self) -> Text:
        progress, compared = self._progress, self._progress.comparison
        latency = progress.latency_ms(0.5)
        good = compared.disagreed == 0
        return Text.assemble(
            (f"{compared.agreed} of {compared.verdicts} verdicts agree with {progress.partner}", "bold green" if good else "bold red"),
            f"  {compared.dispatches_agreed} dispatches agree",
            "" if good else (f"  {compared.disagreed} disagree", "bold red"),
            (f"  {progress.verdicts_per_s():.0f} verdicts/s", "cyan"),
            (f"  block to verdict {latency / 1000:.1f} s (p50)" if latency is not None else "", "cyan"),
            no_wrap=True, overflow="ellipsis",
        )  # fmt: skip


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """Print the summary as tables."""
    left = Table(box=None, show_header=False, padding=(0, 1))
    left.add_column(style="dim", no_wrap=True)
    left.add_column(justify="right", no_wrap=True)
    seconds, latency = summary["seconds"], summary["latency_ms"]
    rows = (
        ("blocks", summary["blocks"]),
        ("records", summary["records"]),
        ("verdicts", summary["verdicts"]),
        ("  agreed", summary["agreed"]),
        ("  disagreed", summary["disagreed"]),
        ("  missing", summary["missing"]),
        ("dispatches agreed", f"{summary['dispatches_agreed']} of {summary['dispatches_expected']}"),
        ("rejected", sum(summary["rejected"].values())),
        ("channels opened", summary["channels_opened"]),
        ("channels closed", summary["channels_closed"]),
        ("time to first verdict", "none" if seconds["first_verdict"] is None else f"{seconds['first_verdict']:.1f} s"),
        ("block to verdict, p50", "not measured" if latency["p50"] is None else f"{latency['p50'] / 1000:.2f} s"),
        ("block to verdict, p99", "not measured" if latency["p99"] is None else f"{latency['p99'] / 1000:.2f} s"),
        ("total time", f"{seconds['total']:.1f} s"),
    )
    for name, value in rows:
        left.add_row(name, str(value))
    right = Table(Column("rejected, by broken rule"), Column("", justify="right"), box=None, padding=(0, 1))
    for kind, count in sorted(summary["rejected"].items(), key=lambda item: (-item[1], item[0])):
        right.add_row(kind, str(count))
    console.print()
    if console.width >= _SUMMARY_COLUMNS:
        both = Table.grid(padding=(0, 4))
        both.add_row(left, right)
        console.print(both)
    else:
        console.print(left, right, sep="\n")
    account = summary["accounting"]
    parts = " + ".join(f"{account[name]} {name}" for name in ("accepted", "rejected", "duplicate", "dead", "waiting"))
    console.print(f"\nconsumed {account['consumed']} = {parts}", highlight=False)
    messages = summary["messages"]
    parts = ", ".join(f"{messages[name]} {name}" for name in ("received", "dropped", "waiting"))
    console.print(
        f"{messages['queued']} messages to paras = {parts}; {messages['dispatched']} upward messages dispatched",
        highlight=False,
        soft_wrap=True,
    )
    if messages["example"] is not None:
        console.print(Text(f"  {messages['example']}"), soft_wrap=True)
    if "chain" in summary:
        console.print(Text(summary["chain"]), soft_wrap=True)
    if summary["ok"]:
        what = "verdict and dispatch" if summary["dispatches_expected"] else "verdict"
        result = f"{ACCEPTED} every {what} agrees with {summary['partner']}: {summary['agreed']} verdicts"
        if summary["dispatches_expected"]:
            result += f", {summary['dispatches_agreed']} dispatches"
        console.print(Text(result, style="bold green"), soft_wrap=True)
    else:
        for problem in summary["problems"]:
            console.print(Text(f"{REJECTED} {problem}", style="red"), soft_wrap=True)
        console.print(
            Text(f"{REJECTED} not as expected; all files are kept in {summary['directory']}", style="bold red"),
            soft_wrap=True,
        )
