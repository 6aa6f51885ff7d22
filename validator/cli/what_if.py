# SPDX-License-Identifier: Apache-2.0
"""`validator what-if`: replays a lane's recorded inputs under another configuration, and shows which verdicts differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from validator.cli.common import Json, say, terminated_as_interrupted
from validator.cli.progress import counting
from validator.cli.recorded_files import inputs_of
from validator.cli.table import print_table
from validator.cli.what_if_tables import difference_documents, summary_documents, tables
from validator.config import load_config
from validator.config.unknown import chain_of
from validator.core.limits import U32_MAX
from validator.errors import UserError
from validator.history.what_if import Replayed, Sweep, case_of, other_cases, read_sweep, replay
from validator.plugin.pack import use_artefacts

if TYPE_CHECKING:
    from validator.config import Config


def what_if(
    lane: Annotated[str, typer.Option(help="The lane.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="OTHER.toml", help="The other configuration. Default: the lane's own."),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            "--own", metavar="OWN.toml", help="The lane's own configuration. Default: ./validator.toml, if it exists."
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="LIMIT=N,N,...", help="Try several values of one limit of the other configuration."),
    ] = None,
    from_block: Annotated[
        int | None,
        typer.Option(min=1, max=U32_MAX, help="The other configuration applies from this block. Default: the first."),
    ] = None,
    to_block: Annotated[
        int, typer.Option(min=1, max=U32_MAX, help="End after this block. Default: the last.")
    ] = U32_MAX,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Read blocks.jsonl, candidates.jsonl and so on from here instead of Kafka."
        ),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw queues and headroom into this folder.")
    ] = None,
    image: Annotated[str, typer.Option(help="Format of the plots: svg, png or both.")] = "svg",
    limit: Annotated[int, typer.Option(min=0, help="Differences to print one by one; 0: none.")] = 20,
    as_json: Json = False,
) -> None:
    """Replay a lane's recorded inputs under another configuration, and show which verdicts differ.

    Limits, handlers, rules by height and modes may differ; the protocol may not. Both configurations execute the inputs in this process;
    the job may run. Without --from-block, each begins with its own first state. With it, the other one begins with the lane's state before
    that block, and limits that both files give alike keep the values in force there.
    """
    if config is None and sweep is None:
        raise UserError("expected --config OTHER.toml, --sweep LIMIT=N,N,... or both, found neither")
    if image not in ("svg", "png", "both"):
        raise UserError(f"--image: expected svg, png or both, found {image!r}")
    if image != "svg" and plots is None:
        raise UserError("--image: expected --plots FOLDER with it, found none")
    if from_block is not None and to_block < from_block:
        raise UserError(f"--to-block: expected a block from {from_block} on, found {to_block}")
    swept = None if sweep is None else read_sweep(sweep)
    mine = load_config(own)
    chain_of(mine.chains, lane)
    draw = None
    if plots is not None:
        from validator.cli.what_if_plots import drawing  # matplotlib is an extra

        draw = drawing(plots, ("svg", "png") if image == "both" else (image,))
    with terminated_as_interrupted():
        replayed = _replay(mine, lane, config, swept, records, from_block, to_block)
    if replayed.blocks == 0:
        raise UserError(f"lane {lane}: no block could be executed: {replayed.waits_for}")
    if as_json:
        for document in difference_documents(replayed, limit):
            sys.stdout.write(json.dumps(document) + "\n")
        for document in summary_documents(replayed):
            sys.stdout.write(json.dumps(document) + "\n")
    else:
        print_table(tables(replayed, limit))
    if replayed.left:
        say(f"{replayed.left:,} records after block {replayed.last_block} were not executed: {replayed.waits_for}")
    if draw is not None:
        for path in draw(replayed):
            say(f"{path} written")


def _replay(
    own: Config,
    lane: str,
    config: Path | None,
    sweep: Sweep | None,
    records: Path | None,
    from_block: int | None,
    to_block: int,
) -> Replayed:
    other = None if config is None else load_config(config)
    for each in (own, other):
        if each is not None:
            use_artefacts(each.plugins.artefacts)
    mine = case_of("own", own, lane)
    cases = other_cases(own, other, "own" if config is None else str(config), lane, sweep)
    with counting(f"lane {lane}: replaying its inputs") as progress:
        inputs = inputs_of(own, mine.definition, records, progress)
        return replay(inputs, mine, cases, from_block=from_block, to_block=to_block)
