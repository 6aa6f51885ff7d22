# SPDX-License-Identifier: Apache-2.0
"""`validator lanes` shows each lane's progress; `validator lanes import` starts a lane from a state at a later block."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from validator.cli.common import ConfigPath, Json, kafka_table, say
from validator.cli.visible import printable
from validator.codec.json_form import to_json
from validator.config import load_config
from validator.document import Node, read_document
from validator.errors import UserError
from validator.kafka.reader import TopicReader
from validator.lanes.configured import chain_runtime, configured_lock, imported_state_path
from validator.plugin.pack import use_artefacts
from validator.service.lag import lags

if TYPE_CHECKING:
    from validator.config import Config

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    help="Show each lane's progress and what it waits for; import a lane's state.",
)

_COUNTS = ("accepted", "rejected", "duplicate", "dead", "waiting")


@app.callback(invoke_without_command=True)
def lanes(context: typer.Context, config_path: ConfigPath = None, as_json: Json = False) -> None:
    """Show each lane's progress: executed block, last receipt, record counts, lag, and what it waits for.

    Configured lanes that have not consumed anything yet are listed too.
    """
    if context.invoked_subcommand is not None:
        return
    config = load_config(config_path)
    found = lane_statuses(config)
    behind = lags(kafka_table(config), config.topics.prefix) if found else {}
    rows = [
        {
            **found.get(lane, {"lane": lane}),
            "configured": lane in config.chains,
            "first_block": _first_block(config, lane),
            "plugins": _plugins(config, lane, found.get(lane, {}).get("executed_block")),
            "lag": behind.get(lane),
        }
        for lane in sorted(config.chains.keys() | found)
    ]
    if as_json:
        sys.stdout.write("".join(json.dumps(row) + "\n" for row in rows))
        return
    width = max((len(row["lane"]) for row in rows), default=0)
    for row in rows:
        first, *others = map(printable, _lines(row))
        sys.stdout.write(
            f"{printable(row['lane']):<{width}}  {first}\n" + "".join(f"{'':<{width}}  {line}\n" for line in others)
        )


def lane_statuses(config: Config) -> dict[str, dict[str, Any]]:
    """Return every lane's last status record in JSON. Raises `UserError` if Kafka or the topic is not available."""
    with TopicReader(kafka_table(config), config.topics.prefix, ["lanes"]) as reader:
        statuses = (to_json("lanes", record.value) for record in reader.read_to_end())
        return {status["lane"]: status for status in statuses}


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


def _plugins(config: Config, lane: str, executed_block: int | None) -> list[str] | None:
    """Return the plugins active in a configured lane's next block; None, with a line on stderr, if that cannot be determined."""
    chain = config.chains.get(lane)
    if chain is None:
        return None
    use_artefacts(config.plugins.artefacts)
    try:
        epochs = chain_runtime(chain, lane, configured_lock(config)).epochs
    except UserError as error:
        say(str(error))
        return None
    block = chain.first_block if executed_block is None else executed_block + 1
    return [epoch for epoch in epochs if epoch.from_block <= block][-1].plugins()


def _lines(row: dict[str, Any]) -> list[str]:
    """Describe a lane's progress. A few lines fit any terminal, while a table of its counts does not."""
    if "consumed" not in row:
        return [f"no records yet; starts with block {row['first_block']}"]
    configured = "" if row["configured"] else " (not configured)"
    executed = "no block executed" if row["executed_block"] is None else f"executed block {row['executed_block']}"
    lines = [f"{executed}{configured}; {row['waiting_for'] or 'waiting for nothing'}"]
    counts = f"consumed {row['consumed']} = {' + '.join(f'{row[name]} {name}' for name in _COUNTS)}"
    lines.append(counts if row["lag"] is None else f"{counts}; lag {row['lag']} offsets of its topics")
    receipt = row["last_receipt"]
    if receipt:
        lines.append(
            f"last receipt: block {receipt['block']} of session {receipt['session']}, {receipt['accepted']} accepted, "
            f"{receipt['rejected']} rejected, {receipt['enacted']} enacted, {receipt['dispatched']} dispatched"
        )
    if row["plugins"]:
        lines.append(f"plugins of the next block: {', '.join(row['plugins'])}")
    return lines


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="STATE.json", help="State keys of the conformance format, alone or under the key `state`."
        ),
    ],
    lane: Annotated[str, typer.Option(help="The configured lane that starts from this state.")],
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
    from validator.service.importing import import_state

    config = load_config(config_path)

    def executed_block(name: str) -> int | None:
        status = lane_statuses(config).get(name)
        return None if status is None else status["executed_block"]

    imported = import_state(config, lane, file, first_block, executed_block)
    if as_json:
        typer.echo(json.dumps(imported.to_json()))
    else:
        counts = ", ".join(f"{number} {name}" for name, number in imported.counts.items())
        typer.echo(f"lane {lane} starts with block {imported.first_block}: {counts}; stored as {imported.file}")
