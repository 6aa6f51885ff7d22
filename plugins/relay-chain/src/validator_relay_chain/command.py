# SPDX-License-Identifier: Apache-2.0
"""`validator follow`: from the address of a node to verdicts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from validator.cli.command_api import (
    Config,
    UserError,
    VisibleConsole,
    check_lanes,
    connected,
    lanes_to_restart,
    load_config,
    run_transport,
    say,
    service_running,
    terminated_as_interrupted,
    to_toml,
    transport_beside,
    working,
)
from validator_relay_chain.adopt import adopt_rules, wanted_rules
from validator_relay_chain.closing import LOOK_S, Closed, End, begin_of, close, skipped_blocks
from validator_relay_chain.config import LANE
from validator_relay_chain.errors import FollowError, NotKnownHere, StatePruned
from validator_relay_chain.metadata_cache import MetadataCache
from validator_relay_chain.pool import NodePool, RealTime
from validator_relay_chain.prepare import configuration, describe, prepare
from validator_relay_chain.source import Chain
from validator_relay_chain.transport import NAME

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

CONFIG: Final = Path("validator.toml")
JUDGE: Final = f"{NAME}.judge"
STANDS_S_MAX: Final = 120.0
"""Seconds without an executed block after which the job is not waited for at the end; Spark may take half of them to start."""


@app.command()
def follow(
    rpc: Annotated[
        list[str] | None,
        typer.Option("--rpc", metavar="URL", help="Node, ws:// or wss://; may be repeated: the others are spares."),
    ] = None,
    lane: Annotated[
        str, typer.Option("--lane", metavar="NAME", help="Name of the lane, for example polkadot.")
    ] = "polkadot",
    from_block: Annotated[
        int | None,
        typer.Option(
            "--from-block",
            min=2,
            metavar="N",
            help="First block to follow; the node needs the state after the one before. Default: the next finalised one.",
        ),
    ] = None,
    to_block: Annotated[
        int | None,
        typer.Option(
            "--to-block",
            min=2,
            metavar="M",
            help="Last block to follow, after which the command ends. Default: to_block of the configuration, or no end.",
        ),
    ] = None,
    config_path: Annotated[
        Path, typer.Option("--config", help="Configuration file; it is written if it does not exist.")
    ] = CONFIG,
    simulator: Annotated[
        bool,
        typer.Option(
            "--simulator",
            help="The nodes are simulators such as chopsticks: follow blocks without a state root, believe heads of downward queues.",
        ),
    ] = False,
    up: Annotated[
        bool,
        typer.Option("--up", help="Start a broker if none is configured, topics and job, and stop them at the end."),
    ] = False,
    prepare_only: Annotated[
        bool, typer.Option("--prepare", help="Only write configuration and state; nothing is sent to Kafka.")
    ] = False,
    judge: Annotated[
        bool, typer.Option("--judge/--no-judge", help="Also compare the lane with the chain (relay-chain.judge).")
    ] = True,
) -> None:
    """Follow a relay chain: read its state from a node, write a configuration, and send every finalised block to the lane.

    Writes `validator.toml` and a folder NAME with the state that the lane begins with. If they exist, the lane continues after the last
    block that it has, wherever this command or `validator transport run relay-chain` was ended or killed. Every hash that can be computed
    is compared, and what the lane says is compared with what the chain did. Before the first block under other rules of the chain it adds
    these to the configuration, and continues once the job has started with them; with `--up` it starts the job again itself. Exit code 0 if
    it was stopped or has reached the last block and compared every block with the chain (or need not, with `--no-judge`), 1 if blocks are
    left that were not compared, 2 if node, chain or configuration has a problem.
    """
    if not LANE.fullmatch(lane):
        raise UserError(f"--lane: expected 1 to 64 of a-z 0-9 . _ -, found {lane[:80]!r}")
    with terminated_as_interrupted():
        if config_path.exists():
            _check_existing(config_path, lane, rpc, from_block, simulator=simulator)
            _check_end(config_path, lane, to_block, prepare_only=prepare_only)
        else:
            _prepare(config_path, lane, rpc or [], from_block, to_block, simulator=simulator)
        adopt_rules(config_path, NAME, say)
        if prepare_only:
            say(
                f"next: validator up --config {config_path}, and in another terminal validator follow --config {config_path} --lane {lane}"
            )
            return
        ending = partial(_ending, lane, to_block)
        closed = Closed.RULES
        while closed is Closed.RULES:
            closed = _follow(config_path, lane, ending, up=up, judge=judge)
            adopt_rules(config_path, NAME, say)
    if closed is Closed.NOT_COMPARED:
        raise typer.Exit(1)


def _follow(config_path: Path, lane: str, ending: Callable[[Config], Config], *, up: bool, judge: bool) -> Closed:
    """Follow the chains of a configuration until they end, or the rules that the configuration has."""
    if not up:
        _await_rules(config_path)
        with _judging(config_path, is_wanted=judge) as judged:
            skipped = skipped_blocks(connected(config_path), lane)
            end = _run(config_path, ending)
            return close(ending(connected(config_path)), lane, end, judged, skipped, patience_s=STANDS_S_MAX)
    with service_running(config_path) as config:
        with _judging(config_path, is_wanted=judge) as judged:
            skipped = skipped_blocks(config, lane)
            end = _run(config_path, ending)
            # if the job ends, so does this process
            closed = close(ending(config), lane, end, judged, skipped, patience_s=math.inf)
        say("stopping the job after its batch, then the broker")
    return closed


def _run(config_path: Path, ending: Callable[[Config], Config]) -> End:
    """Run the transport, and return what has ended it."""
    try:
        return End.SIGNAL if run_transport(NAME, config_path, ending) else End.LAST_BLOCK
    except UserError as error:
        if not wanted_rules(load_config(config_path), NAME):
            raise
        say(f"validator: {error}")
        return End.RULES


@contextmanager
def _judging(config_path: Path, *, is_wanted: bool) -> Iterator[threading.Event | None]:
    if not is_wanted:
        yield None
        return
    with transport_beside(JUDGE, config_path) as ended:
        yield ended


def _await_rules(config_path: Path) -> None:
    """Wait until the job of this machine has started with the rules that the configuration has."""
    behind = lanes_to_restart(load_config(config_path))
    lanes = behind()
    if not lanes:
        return
    say(f"waiting until the job has started with the rules of {config_path} for {', '.join(lanes)}: start it again")
    with working("waiting until the job has been started again"):
        while behind():
            time.sleep(LOOK_S)


def _check_existing(
    config_path: Path, lane: str, rpc: list[str] | None, from_block: int | None, *, simulator: bool
) -> None:
    """Check that a configuration has the lane already. Raises `UserError`."""
    chains = load_config(config_path).transports.get(NAME, {}).get("chains", {})
    if lane not in chains:
        raise UserError(_no_lane(config_path, lane, sorted(chains)))
    if from_block is not None:
        raise UserError(f"--from-block: expected only without {config_path}, in which the lane has begun already")
    if simulator and not chains[lane].get("simulator"):
        raise UserError(
            f"--simulator: expected only without {config_path}: add simulator = true to [transports.{NAME}.chains.{lane}] there"
        )
    if rpc and list(rpc) != list(chains[lane].get("rpc", ())):
        raise UserError(
            f"--rpc: expected the nodes of {config_path}, {', '.join(chains[lane].get('rpc', ()))}, found {', '.join(rpc)}: change the file"
        )
    say(f"{config_path}: the lane {lane} has begun already and continues")


def _check_end(config_path: Path, lane: str, to_block: int | None, *, prepare_only: bool) -> None:
    """Check the last block that is wanted of a lane that has begun. Raises `UserError`."""
    if to_block is None:
        return
    if prepare_only:
        raise UserError(f"--to-block: expected only without --prepare, which does not change {config_path}")
    config = load_config(config_path)
    chains = config.transports[NAME]["chains"]
    endless = sorted(name for name in chains if name != lane and chains[name].get("to_block") is None)
    if endless:
        raise UserError(
            f"--to-block: expected an end of every other chain, found {', '.join(endless)} without to_block in {config_path}"
        )
    begin = begin_of(config, lane)
    if begin is not None and to_block <= begin:
        raise UserError(f"--to-block: expected a block after {begin}, after which the lane begins, found {to_block}")


def _ending(lane: str, to_block: int | None, config: Config) -> Config:
    """Return a configuration in which a lane has the last block that --to-block names."""
    if to_block is None:
        return config
    table = config.transports[NAME]
    chains = {**table["chains"], lane: {**table["chains"][lane], "to_block": to_block}}
    return config.model_copy(update={"transports": {**config.transports, NAME: {**table, "chains": chains}}})


def _no_lane(config_path: Path, lane: str, lanes: list[str]) -> str:
    close = get_close_matches(lane, lanes, 1)
    if close:
        hint = f"did you mean {close[0]!r}?"
    elif lanes:
        hint = f"it follows {', '.join(lanes)}; for another chain choose another file with --config"
    else:
        hint = "it follows none; choose another file with --config"
    return f"--lane: expected one with [transports.{NAME}.chains.{lane}] in {config_path}, found none: {hint}"


def _prepare(
    config_path: Path,
    lane: str,
    rpc: list[str],
    from_block: int | None,
    to_block: int | None,
    *,
    simulator: bool = False,
) -> None:
    if not rpc:
        raise UserError(f"--rpc: expected the address of a node, since there is no {config_path} yet")
    folder = config_path.parent / lane
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: expected no such folder, or an empty one, since there is no {config_path} yet")
    clock = RealTime(threading.Event())
    try:
        pool = NodePool(rpc, clock, tell=say)
    except ValueError as error:
        raise UserError(f"--rpc: {error}") from None
    try:
        with _progress() as show:
            prepared = prepare(
                Chain(pool, MetadataCache(folder / "metadata")),
                lane,
                folder,
                from_block=from_block,
                to_block=to_block,
                progress=show,
                tell=say,
                simulator=simulator,
            )
    except (StatePruned, NotKnownHere) as error:
        raise UserError(f"{_choice(from_block)}: {error}; {_archive(from_block)}") from error
    except FollowError as error:
        raise UserError(str(error)) from error
    finally:
        pool.close()
    _write(config_path, configuration(prepared, rpc, str(folder), to_block, simulator=simulator))
    say(describe(prepared))
    say(f"{config_path}: written; the lane begins with block {prepared.header.number + 1}")


def _choice(from_block: int | None) -> str:
    """Return the option that chose the first block."""
    return "--rpc" if from_block is None else f"--from-block {from_block}"


def _archive(from_block: int | None) -> str:
    """Return what helps if no node has the state after the block before the first one."""
    if from_block is None:
        return "name a node that keeps the state of finalised blocks"
    return (
        f"a lane that begins there needs the state after block {from_block - 1}: give --rpc of an archive node "
        "(--state-pruning archive), or leave --from-block out"
    )


def _write(config_path: Path, tables: dict[str, Any]) -> None:
    """Write the configuration once it is known to be usable. Raises `UserError`."""
    new = config_path.with_name(config_path.name + ".new")
    try:
        new.write_text(to_toml(tables), encoding="utf-8")
        check_lanes(load_config(new))
        new.replace(config_path)
    except OSError as error:
        raise UserError(f"{config_path}: cannot be written: {error.strerror}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show what is read of the state."""
    console = VisibleConsole(stderr=True)
    columns = (
        TextColumn("reading {task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("the chain", total=None)
        yield lambda title, done, total: bar.update(task, description=title, completed=done, total=total)
