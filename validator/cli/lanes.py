# SPDX-License-Identifier: Apache-2.0
"""`validator lanes` shows each lane's progress; `validator lanes import` starts a lane from a state at a later block."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from validator import exit_codes
from validator.cli.common import ConfigPath, Json, OneLane, connected, kafka_table, lane_of, print_json, say
from validator.cli.progress import working
from validator.config import load_config
from validator.document import Node, read_document
from validator.errors import UserError
from validator.job.lag import Lag, lags, newest_blocks
from validator.job.orders import (
    ORDERED,
    command_of,
    lane_reports,
    lost_inputs,
    place_of,
    remedy_of,
    unread_words,
    without_lane,
)
from validator.job.start_check import refusal_of
from validator.kafka.open_transactions import open_transactions
from validator.lanes.configured import (
    chain_runtime,
    configured_codec,
    configured_lock,
    imported_state_path,
    job_directory,
    started_chain,
)
from validator.lanes.kept_start import LaneStart, StartedEpoch, epoch_at, kept_starts, started_epochs
from validator.plugin.pack import use_artefacts
from validator.topics import INPUT_TOPICS
from validator.transports.lines import fed_lanes, feed_lines, feed_of, transport_lines
from validator.visible import printable

if TYPE_CHECKING:
    from validator.config import Config

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    help="Show each lane's progress and what it waits for; import a lane's state.",
)

_COUNTS = ("accepted", "rejected", "duplicate", "dead", "waiting")


@app.callback(invoke_without_command=True)
def lanes(
    context: typer.Context,
    config_path: ConfigPath = None,
    lag_max: Annotated[
        int | None,
        typer.Option(
            "--lag-max", min=0, metavar="RECORDS", help="Exit with code 1 if a lane is further behind: for alerts."
        ),
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Exit with code 1 if a lane is parked: for alerts.")] = False,
    audit_since: Annotated[
        int | None,
        typer.Option(
            "--audit-since",
            min=0,
            metavar="BLOCK",
            help="Exit with code 1 if the audit in the job has found a fault in this block of a lane or a later one: for alerts.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show each lane's progress: executed block, last receipt, record counts, lag, plugins, what it waits for, why it is parked, what the
    audit in the job has found, and what transports say about it.

    The lag counts the lane's own records that the job has not consumed, and the blocks among them. Configured lanes that have not consumed
    anything yet are listed too.
    """
    if context.invoked_subcommand is not None:
        return
    config = connected(config_path)
    with working("reading the lanes' progress"):
        reports = lane_reports(config)
        found = reports.statuses
        names = sorted({*config.chains, *found, *reports.parked})
        checkpoint = job_directory(config) / "checkpoint"
        use_artefacts(config.plugins.artefacts)
        behind = lags(config.kafka, config.topics.prefix, configured_codec(config), names, checkpoint, reports.parked)
        kept = kept_starts(job_directory(config) / "lanes")
        said = transport_lines(config)
        fed = fed_lanes(config)
        newest = newest_blocks(config.kafka, config.topics.prefix, configured_codec(config)) if fed else {}
        inputs = [config.topics.prefix + name for name in INPUT_TOPICS]
        held_up = [each.words(config.kafka) for each in open_transactions(config.kafka, inputs)]
        rows = [
            {
                **_row(config, lane, found.get(lane), kept.get(lane), behind[lane]),
                **_unread(config, behind[lane], found.get(lane), reports.parked.get(lane)),
                "parked": _parked(config, reports.parked.get(lane), ordered=reports.has_order(lane, behind[lane])),
                "audit": reports.audits.get(lane),
                "audit_share": config.audit.share,
                "transports": said.get(lane, []),
                "feed": feed_of(fed[lane], newest.get(lane), time.time()) if lane in fed else None,
                "open_transactions": held_up,
            }
            for lane in names
        ]
    if as_json:
        print_json(*rows)
    else:
        width = max((len(printable(row["lane"])) for row in rows), default=0)
        for row in rows:
            first, *others = map(printable, _lines(row))
            sys.stdout.write(
                f"{printable(row['lane']):<{width}}  {first}\n" + "".join(f"{'':<{width}}  {line}\n" for line in others)
            )
        for line in held_up:
            sys.stdout.write(f"{printable(line)}\n")
    too_far = lag_max is not None and any(row["lag"] > lag_max for row in rows)
    faulty = audit_since is not None and any(
        row["configured"] and row["audit"] is not None and row["audit"]["block"] >= audit_since for row in rows
    )
    if too_far or faulty or (parked and any(row["configured"] and row["parked"] is not None for row in rows)):
        raise typer.Exit(exit_codes.DISAGREEMENT)


def _row(config: Config, lane: str, status: dict[str, Any] | None, kept: LaneStart | None, lag: Lag) -> dict[str, Any]:
    executed = None if status is None else status["executed_block"]
    first_block = _first_block(config, lane)
    block = first_block if executed is None else executed + 1
    configured = _epochs(config, lane)
    of_file = None if configured is None or block is None else epoch_at(configured, block)
    of_job = None if kept is None or kept.removed or block is None else epoch_at(kept.epochs, block)
    refused = None
    if lane in config.chains and status is not None and kept is not None and not kept.removed:
        refused = refusal_of(config, lane, kept, configured, executed)
    return {
        **(status or {"lane": lane}),
        "configured": lane in config.chains,
        "first_block": first_block,
        "plugins": _plugins_of(of_job or of_file),
        "plugins_configured": _plugins_of(of_file),
        "plugins_differ": of_job is not None and of_file is not None and of_job.digest != of_file.digest,
        "next_start_refuses": refused,
        "lag": lag.records,
        "lag_blocks": lag.blocks,
        "lag_complete": lag.complete,
    }


def _unread(
    config: Config, lag: Lag, status: dict[str, Any] | None, parked: dict[str, Any] | None
) -> dict[str, str | None]:
    """Return what no job has read, and in its place what the lane waits for: the job said that before these records came."""
    unread = unread_words(config, lag)
    stale = unread is not None and status is not None and parked is None
    return {"unread": unread, **({"waiting_for": unread} if stale else {})}


def _plugins_of(epoch: StartedEpoch | None) -> list[str] | None:
    return None if epoch is None else list(epoch.plugins)


def _parked(config: Config, parked: dict[str, Any] | None, *, ordered: bool) -> dict[str, Any] | None:
    if parked is None:
        return None
    shown = {name: value for name, value in parked.items() if name != "lane"}
    return {**shown, "lost": lost_inputs(config, parked), "remedy": remedy_of(parked), "ordered": ordered}


def lane_statuses(config: Config) -> dict[str, dict[str, Any]]:
    """Return every lane's last status record in JSON. Raises `UserError` if Kafka or the topic is not available."""
    return lane_reports(config.model_copy(update={"kafka": kafka_table(config)})).statuses


def _first_block(config: Config, lane: str) -> int | None:
    """Return a configured lane's first block: that of its state, if it has one that names it."""
    chain = config.chains.get(lane)
    if chain is None:
        return None
    imported = imported_state_path(config, lane)
    state = Path(chain.state) if chain.state else imported if imported.exists() else None
    return (
        chain.first_block if state is None else read_document(state).get("first_block", Node.integer, chain.first_block)
    )


def _epochs(config: Config, lane: str) -> tuple[StartedEpoch, ...] | None:
    """Return the plugins by block that the file asks for; None, with a line on stderr, if that cannot be determined."""
    if lane not in config.chains:
        return None
    try:
        return started_epochs(chain_runtime(started_chain(config, lane), lane, configured_lock(config)).epochs)
    except UserError as error:
        say(str(error))
        return None


def _lines(row: dict[str, Any]) -> list[str]:
    """Describe a lane's progress. A few lines fit any terminal, while a table of its counts does not."""
    if "consumed" not in row:
        begins = f"starts with block {row['first_block']}{'; ' + _lag(row) if row['lag'] else ''}"
        parked = _parked_lines(row)
        taken = "no records yet" if row["unread"] is None else row["unread"]
        return [
            *parked,
            *feed_lines(row["feed"]),
            *([begins] if parked else [f"{taken}; {begins}"]),
            *row["transports"],
        ]
    configured = "" if row["configured"] else " (not configured)"
    audit = _audit_lines(row)
    faulty = int(row["audit"] is not None)  # a fault comes first
    executed = "no block executed" if row["executed_block"] is None else f"executed block {row['executed_block']}"
    lines = [
        *_parked_lines(row),
        *feed_lines(row["feed"]),
        *audit[:faulty],
        f"{executed}{configured}; {row['waiting_for'] or 'waiting for nothing'}",
    ]
    counts = f"consumed {row['consumed']} = {' + '.join(f'{row[name]} {name}' for name in _COUNTS)}"
    lines.append(f"{counts}; {_lag(row)}")
    if row["waiting_resident_bytes"] or row["window_bytes"]:
        lines.append(
            f"in memory: {row['waiting_resident_bytes']} bytes of waiting records ({row['waiting_bytes']} raw), "
            f"{row['window_bytes']} bytes to recognise duplicates"
        )
    receipt = row["last_receipt"]
    if receipt:
        lines.append(
            f"last receipt: block {receipt['block']} of session {receipt['session']}, {receipt['accepted']} accepted, "
            f"{receipt['rejected']} rejected, {receipt['enacted']} enacted, {receipt['dispatched']} dispatched"
        )
    if row["plugins"]:
        lines.append(f"plugins of the next block: {', '.join(row['plugins'])}")
    if row["next_start_refuses"] is not None:
        lines.append(f"the next start refuses the configuration: {row['next_start_refuses']}")
    elif row["plugins_differ"]:
        named = ", ".join(row["plugins_configured"])
        same = "the same, with another configuration" if row["plugins_configured"] == row["plugins"] else named
        lines.append(f"the configuration differs from what the job started with; after its next start: {same}")
    return [*lines, *audit[faulty:], *row["transports"]]


def _parked_lines(row: dict[str, Any]) -> list[str]:
    """Describe why a lane is parked, what it holds and what to do."""
    parked = row["parked"]
    if parked is None:
        return []
    since = "" if parked["since_block"] is None else f" since block {parked['since_block']}"
    state = "PARKED" if parked["state"] == "parked" else "resuming; it was parked"
    held = ", ".join(f"{each['topic']}[{each['partition']}] from {each['first']}" for each in parked["held"])
    lines = [
        f"{state}{since} ({parked['fault']}): {without_lane(row['lane'], parked['reason'])}",
        f"to be taken from Kafka again, as long as it keeps them: {held or 'nothing'}",
    ]
    if parked["lost"]:
        lines.append(f"NO LONGER IN KAFKA: inputs of {', '.join(parked['lost'])}")
    if parked["ordered"]:
        lines.append(ORDERED)
    elif parked["state"] == "parked":
        lines.append(
            f"what to do: {parked['remedy']}; then `{command_of(row['lane'], parked['fault'])}`"
            if row["configured"]
            else "what to do: nothing, as the lane is not configured any more"
        )
    return lines


def _audit_lines(row: dict[str, Any]) -> list[str]:
    """Describe the last fault that the audit in the job has found, or that it is on and has found none."""
    fault = row["audit"]
    if fault is not None:
        return [f"AUDIT FAULT in block {fault['block']} ({fault['check']}): {fault['detail']}"]
    if not row["configured"] or not row["audit_share"]:
        return []
    return [f"audit of {row['audit_share'] * 100:g} % of all blocks: no fault found"]


def _lag(row: dict[str, Any]) -> str:
    """Describe a lag in the lane's own records and blocks."""
    least = "" if row["lag_complete"] else "at least "
    return f"lag {least}{_count(row['lag'], 'record')}, {_count(row['lag_blocks'], 'block')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="STATE.json", help="State keys of the conformance format, alone or under the key `state`."
        ),
    ],
    lane: OneLane = None,
    first_block: Annotated[
        int | None, typer.Option(min=1, help="First block to execute, instead of the file's or the chain's.")
    ] = None,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Start a lane from a state at a later block, instead of from its genesis paras.

    The file is an object with `first_block` and `state`, or the state keys alone. Every value, every derived key in the file and every
    invariant is checked. A lane that has executed blocks keeps its own state.
    """
    from validator.job.importing import import_state

    config = load_config(config_path)
    lane = lane_of(config, lane)

    def executed_block(name: str) -> int | None:
        status = lane_statuses(config).get(name)
        return None if status is None else status["executed_block"]

    with working("importing the state"):
        imported = import_state(config, lane, file, first_block, executed_block)
    if as_json:
        print_json(imported.to_json())
    else:
        counts = ", ".join(f"{number} {name}" for name, number in imported.counts.items())
        typer.echo(f"lane {lane} starts with block {imported.first_block}: {counts}; stored as {imported.file}")


@app.command("resume")
def resume_(
    lane: OneLane = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION:OFFSET",
            help="Continue without this record, which becomes a dead letter. May be repeated.",
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Give the lane's state up, and execute all its inputs again: for a state that is damaged."
        ),
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="Seconds to wait for the next answer of the job; 0 waits for none."
        ),
    ] = 60,
    config_path: ConfigPath = None,
    as_json: Json = False,
) -> None:
    """Let a parked lane continue: it takes the inputs that it has not taken, and then all others.

    With `--rebuild` it takes all of them again, as far as the job has read, and emits only what is missing.

    The order is a record of the topic `blocks`, so the job gets it whenever it runs. Exits with code 1 if the lane is parked again, or if
    the job does not answer.
    """
    from validator.job.orders import order_to_resume, resume

    config = connected(config_path)
    name = lane_of(config, lane)
    skips = [place_of(text, config.topics.prefix) for text in skip or ()]
    if not wait:
        with working("looking at the lane"):
            order_to_resume(config, name, skips, rebuild=rebuild)
        typer.echo(
            json.dumps({"lane": name, "state": "ordered"})
            if as_json
            else f"lane {name}: the order to continue is written"
        )
        return

    def tell(shown: dict[str, Any]) -> None:
        left = sum(held["end"] - held["first"] for held in shown["held"])
        detail = {
            "resuming": f": {left} offsets are left",
            "parked": f" again: {without_lane(name, shown['reason'])}",
        }.get(shown["state"], "")
        typer.echo(json.dumps(shown) if as_json else printable(f"lane {name} is {shown['state']}{detail}"))

    def why() -> str:  # the reason of before the order may be outdated
        return f"the order is written, and the job takes it with its next batch, if it runs; until then lane {name} stays parked"

    with working("waiting for the job's answer", why):
        last = resume(config, name, skips, wait, tell, rebuild=rebuild)
    if last is None:
        say(f"lane {name}: the order is written, and the job has not answered within {wait:g} s: is it running?")
    if last is None or last["state"] == "parked":
        raise typer.Exit(exit_codes.DISAGREEMENT)
