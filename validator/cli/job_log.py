# SPDX-License-Identifier: Apache-2.0
"""Prints the job's log: JSON lines unchanged, or one readable line per event."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from validator.cli.table import VisibleConsole
from validator.job.process import OUTPUT, parse_line
from validator.kafka.broker import FREE_SPACE
from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.job.process import Event

_STYLES = {
    "failed": "bold red",
    "killed": "bold red",
    "job ended": "bold red",
    "ready": "bold green",
    "stopped": "yellow",
    "waiting": "yellow",
    "parked": "bold red",
    "resumed": "bold green",
    "audit fault": "bold red",
    "batch": "cyan",
}

_LEVELS = {
    "killed": "error",
    "broker ended": "warning",
    "job ended": "error",
    "taking over": "warning",
    "restart": "warning",
    "waiting": "warning",
}
"""Levels of what this command logs itself; all else is ``info``."""


def log_printer(*, as_json: bool) -> Callable[[Event], None]:
    """Return a function that prints an event on standard error."""
    console = VisibleConsole(stderr=True, soft_wrap=True)

    def print_event(event: Event) -> None:
        event = _dated(event)
        if as_json:
            console.file.write(json.dumps(event) + "\n")
            console.file.flush()
        elif event["event"] == OUTPUT:
            console.print(Text(printable(event["line"]), style="dim"))
        else:
            time = str(event.get("timestamp", ""))[11:19].ljust(8)
            name = Text(f"{event['event']:<8}", style=_STYLES.get(event["event"], "bold"))
            owner = f"{event['job']}: " if "job" in event else ""
            words = printable_lines(owner + describe({key: event[key] for key in event if key != "job"}))
            console.print(Text.assemble((time, "dim"), "  ", name, "  ", words))

    return print_event


def _dated(event: Event) -> Event:
    """Return an event with level and time, which one of the job itself has already."""
    if "timestamp" in event:
        return event
    level = _LEVELS.get(event["event"], "info")
    return {**event, "level": level, "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z")}


def describe(event: Event) -> str:
    """Describe an event in words, without its name."""
    match event["event"]:
        case "started":
            return f"starting Spark for {', '.join(event['lanes'])}; its log is {event['spark_log']}"
        case "ready":
            return "the query is running"
        case "batch":
            seconds = event["milliseconds"].get("triggerExecution", 0) / 1000
            return f"{event['batch']}: {event['records']} records in {seconds:.1f} s"
        case "lanes unread" | "open transaction":
            return str(event["reason"])
        case "failed":
            return (
                f"{event['reason']}; Spark's log is {event['spark_log']}"
                if "spark_log" in event
                else str(event["reason"])
            )
        case "killed":
            return f"by {event['signal']}, exit code {event['exit_code']}; {_last(event['last_line'])}; Spark's log is {event['spark_log']}"
        case "restart":
            return f"{event['attempt']} of {event['attempts_max']}, in {event['seconds']:.0f} s"
        case "waiting":
            waited = f" after {event['waited']:.0f} s" if event["waited"] >= 1 else ""
            return f"{event['reason']}; tries again in {event['seconds']:.0f} s{waited}, gives up after {event['give_up_after']:g} s"
        case "asking":
            return f"the schema registry has answered for {event['versions']} of {event['of']} versions"
        case "parked":
            return f"{event['reason']}; what to do: {event['to_do']}; then `{event['command']}`"
        case "resumed":
            return f"lane {event['lane']} is no longer parked"
        case "resuming":
            return f"lane {event['lane']} takes the inputs that it held"
        case "audit fault":
            return f"lane {event['lane']}, block {event['block']}: {event['check']}: {event['detail']}"
        case "stopped":
            return (
                f"after batch {event['last_batch']}" if event["last_batch"] >= 0 else "no batch since the query started"
            )
        case "executor added" | "executor lost":
            return f"on {event['host']}; the job has {event['executors'] or 'none'} now"
        case "starting":
            return f"a broker in {event['broker']}; it will answer at {event['bootstrap_servers']}"
        case "taking over":
            return f"the job of a command that was killed still runs (process {event['pid']}); it is stopped first, after its batch"
        case "broker":
            moved = f"; its earlier port {event['moved_from']} is taken" if event.get("moved_from") else ""
            if event.get("stopped_in"):
                moved += (
                    f"; the one that was started in {event['stopped_in']}, before the folder was moved, was stopped"
                )
            return f"{'started' if event['started_here'] else 'was already running'}: bootstrap.servers {event['bootstrap_servers']}{moved}"
        case "broker ended":
            full = f"its disk is full: {FREE_SPACE}; " if event["disk_full"] else ""
            return f"process {event['pid']} is gone; {full}its log is {event['log']}"
        case "job ended":
            return f"exit code {event['exit_code']}: {event['reason']}; the lanes continue without it"
        case "topics":
            created = len(event["created"])
            return f"{created} created" if created else "all exist"
        case _:
            return ", ".join(
                f"{key} {_word(value)}" for key, value in event.items() if key not in ("event", "timestamp", "level")
            )


def _last(line: str) -> str:
    """Describe the job's last line."""
    if not line:
        return "it had logged nothing"
    event = parse_line(line)
    what = event["line"] if event["event"] == OUTPUT else f"{event['event']} {describe(event)}"
    return f"its last line: {what}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
