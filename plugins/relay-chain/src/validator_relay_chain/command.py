# SPDX-License-Identifier: Apache-2.0
"""`validator follow`: from the address of a node to verdicts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from validator.cli.command_api import (
    Config,
    TopicReader,
    UserError,
    VisibleConsole,
    check_lanes,
    executed_blocks,
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
from validator_relay_chain.config import LANE
from validator_relay_chain.errors import FollowError
from validator_relay_chain.metadata_cache import MetadataCache
from validator_relay_chain.oracle import records
from validator_relay_chain.pool import NodePool, RealTime
from validator_relay_chain.prepare import Prepared, configuration, describe, prepare
from validator_relay_chain.source import Chain

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

NAME: Final = "relay-chain"
CONFIG: Final = Path("validator.toml")
JUDGE: Final = f"{NAME}.judge"
LOOK_S: Final = 1.0
"""Seconds between two looks at how far the job is."""
JUDGED_S_MAX: Final = 60.0
"""Seconds that the judge may take for the last block once the lane has executed it."""


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
        int | None, typer.Option("--to-block", min=2, metavar="M", help="Last block to follow. Default: no end.")
    ] = None,
    config_path: Annotated[
        Path, typer.Option("--config", help="Configuration file; it is written if it does not exist.")
    ] = CONFIG,
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
    it was stopped or has reached the last block, 2 if node, chain or configuration has a problem.
    """
    if not LANE.fullmatch(lane):
        raise UserError(f"--lane: expected 1 to 64 of a-z 0-9 . _ -, found {lane[:80]!r}")
    with terminated_as_interrupted():
        if config_path.exists():
            _check_existing(config_path, lane, rpc, from_block)
        else:
            _prepare(config_path, lane, rpc or [], from_block, to_block)
        adopt_rules(config_path, NAME, say)
        if prepare_only:
            say(
                f"next: validator up --config {config_path}, and in another terminal validator follow --config {config_path} --lane {lane}"
            )
            return
        while not _follow(config_path, lane, up=up, judge=judge):
            adopt_rules(config_path, NAME, say)


def _follow(config_path: Path, lane: str, *, up: bool, judge: bool) -> bool:
    """Follow the chains of a configuration; return whether that is all, and not the end of what their rules reach to."""
    if not up:
        _await_rules(config_path)
        with _judging(config_path, is_wanted=judge):
            return _run(config_path)
    with service_running(config_path) as config, _judging(config_path, is_wanted=judge) as judged:
        is_done = _run(config_path)
        last = config.transports[NAME]["chains"][lane].get("to_block")
        if is_done and last is not None:
            _await_executed(config, lane, last)
            if judged is not None:
                _await_judged(config, lane, last, judged)
        return is_done


def _run(config_path: Path) -> bool:
    """Run the transport; return False if it has ended because a lane's configuration lacks the rules of the next block."""
    try:
        run_transport(NAME, config_path)
    except UserError as error:
        if not wanted_rules(load_config(config_path), NAME):
            raise
        say(f"validator: {error}")
        return False
    return True


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


def _check_existing(config_path: Path, lane: str, rpc: list[str] | None, from_block: int | None) -> None:
    """Check that a configuration has the lane already. Raises `UserError`."""
    chains = load_config(config_path).transports.get(NAME, {}).get("chains", {})
    if lane not in chains:
        raise UserError(
            f"{config_path}: expected no such file, or one with [transports.{NAME}.chains.{lane}], found one without: choose another "
            "with --config"
        )
    if from_block is not None:
        raise UserError(f"--from-block: expected only without {config_path}, in which the lane has begun already")
    if rpc and list(rpc) != list(chains[lane].get("rpc", ())):
        raise UserError(
            f"--rpc: expected the nodes of {config_path}, {', '.join(chains[lane].get('rpc', ()))}, found {', '.join(rpc)}: change the file"
        )
    say(f"{config_path}: the lane {lane} has begun already and continues")


def _prepare(config_path: Path, lane: str, rpc: list[str], from_block: int | None, to_block: int | None) -> None:
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
            )
    except FollowError as error:
        raise UserError(str(error)) from error
    finally:
        pool.close()
    _write(config_path, prepared, rpc, folder, to_block)


def _write(config_path: Path, prepared: Prepared, rpc: list[str], folder: Path, to_block: int | None) -> None:
    """Write the configuration once it is known to be usable. Raises `UserError`."""
    new = config_path.with_name(config_path.name + ".new")
    try:
        new.write_text(to_toml(configuration(prepared, rpc, str(folder), to_block)), encoding="utf-8")
        check_lanes(load_config(new))
        new.replace(config_path)
    except OSError as error:
        raise UserError(f"{config_path}: cannot be written: {error.strerror}") from error
    say(describe(prepared))
    say(f"{config_path}: written; the lane begins with block {prepared.header.number + 1}")


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


def _await_judged(config: Config, lane: str, block: int, ended: threading.Event) -> None:
    """Wait until the judge has compared a lane up to a block, and show what it found. A difference in the last block stays unsettled."""
    deadline = time.monotonic() + JUDGED_S_MAX
    line = "nothing is compared with the chain yet"
    with working(f"waiting until block {block} is compared with the chain"):
        while time.monotonic() < deadline and not ended.is_set():
            found = _agreement(config, lane)
            if found is not None:
                line = records.describe(found)
                if found["block"] >= block:
                    break
            time.sleep(LOOK_S)
    say(f"lane {lane}: {line}")


def _agreement(config: Config, lane: str) -> dict[str, Any] | None:
    """Return what the judge said last of a lane, or None. Raises `UserError` if Kafka or the topic is not available."""
    found = None
    with TopicReader(config.kafka, config.topics.prefix, [records.AGREEMENT]) as reader:
        for record in reader.read_to_end():
            if record.key == lane.encode():
                found = records.decode(records.AGREEMENT, record.value)
    return found


def _await_executed(config: Config, lane: str, block: int) -> None:
    with working(f"waiting until the lane has executed block {block}"):
        while executed_blocks(config).get(lane, -1) < block:
            time.sleep(LOOK_S)
