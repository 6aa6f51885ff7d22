# SPDX-License-Identifier: Apache-2.0
"""`validator follow`: follow a relay chain through a node, from its address to verdicts.

At the end the lane executes the last block, the judge compares it, and it is said what was found. Rules that followed lanes lack are added
to the configuration as text at its end: comments and order stay as they are.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from difflib import get_close_matches
from enum import Enum
from functools import partial
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
    connected,
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
from validator_relay_chain.config import LANE
from validator_relay_chain.errors import FollowError, NotKnownHere, StatePruned
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.oracle import records
from validator_relay_chain.pool import Clock, NodePool
from validator_relay_chain.position import Position
from validator_relay_chain.prepare import configuration, describe, prepare
from validator_relay_chain.rules import KnownRules, RulesEntry, changes, read_rules, write_rules
from validator_relay_chain.source import Chain
from validator_relay_chain.transport import NAME, read_start

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
        adopt_rules(config_path)
        if prepare_only:
            say(
                f"next: validator up --config {config_path}, and in another terminal validator follow --config {config_path} --lane {lane}"
            )
            return
        ending = partial(_ending, lane, to_block)
        closed = Closed.RULES
        while closed is Closed.RULES:
            closed = _follow(config_path, lane, ending, up=up, judge=judge)
            adopt_rules(config_path)
    if closed is Closed.NOT_COMPARED:
        raise typer.Exit(1)


def _follow(config_path: Path, lane: str, ending: Callable[[Config], Config], *, up: bool, judge: bool) -> Closed:
    """Follow the chains of a configuration until they end, or the rules that the configuration has."""
    if not up:
        _await_rules(config_path)
    with service_running(config_path) if up else nullcontext() as running:
        config = running or connected(config_path)
        with transport_beside(JUDGE, config_path) if judge else nullcontext() as judged:
            skipped = skipped_blocks(config, lane)
            end = _run(config_path, ending)
            patience_s = math.inf if up else STANDS_S_MAX  # if the job of --up ends, so does this process
            closed = close(ending(config), lane, end, judged, skipped, patience_s=patience_s)
        if up:
            say("stopping the job after its batch, then the broker")
    return closed


def _run(config_path: Path, ending: Callable[[Config], Config]) -> End:
    """Run the transport, and return what has ended it."""
    try:
        return End.SIGNAL if run_transport(NAME, config_path, ending) else End.LAST_BLOCK
    except UserError as error:
        if not wanted_rules(load_config(config_path)):
            raise
        say(f"validator: {error}")
        return End.RULES


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
    clock = Clock()
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


LOOK_S: Final = 1.0
"""Seconds between two looks at how far the job is."""
JUDGED_S_MAX: Final = 60.0
"""Seconds that the judge may take for another block once the lane has executed the last one."""
KAFKA_S_MAX: Final = 5.0
"""Seconds that Kafka may take to answer at the end: it may be stopped at the same time."""


class Closed(Enum):
    """How following has ended."""

    WHOLE = "all that is wanted was followed, and compared unless nobody wanted that"
    NOT_COMPARED = "blocks are left that were not compared"
    RULES = "the configuration lacks rules"


class End(Enum):
    """What ended the transport."""

    LAST_BLOCK = "the last block that is wanted"
    SIGNAL = "Ctrl-C or SIGTERM"
    RULES = "rules that the configuration lacks"


def close(
    config: Config, lane: str, end: End, judged: threading.Event | None, skipped: int, *, patience_s: float
) -> Closed:
    """Say what the judge found, after the last block that is wanted once the lane has executed it and the judge has compared it.

    A block that was not compared is no success. ``skipped`` are those that an earlier run has left out.
    """
    block = config.transports[NAME]["chains"][lane].get("to_block")
    closed = Closed.RULES if end is End.RULES else Closed.WHOLE
    is_last = end is End.LAST_BLOCK and block is not None
    try:
        if is_last and _await_executed(config, lane, block, patience_s) and judged is not None:
            _await_judged(config, lane, block, judged)
        found = _agreement(config, lane)
    except UserError as error:
        say(f"lane {lane}: what the judge says cannot be read: {error}")
        return Closed.NOT_COMPARED if is_last and judged is not None else closed
    except KeyboardInterrupt:
        return closed
    say(f"lane {lane}: {'nothing is compared with the chain yet' if found is None else records.describe(found)}")
    if not is_last or judged is None:
        return closed
    left = _left(config, lane, block, found, skipped)
    if left is None:
        return closed
    why = (
        "the judge has ended, its lines say why"
        if judged.is_set()
        else "the judge continues after them when it runs again"
    )
    say(f"lane {lane}: {left}; {why}")
    return Closed.NOT_COMPARED


def _left(config: Config, lane: str, block: int, found: Mapping[str, Any] | None, skipped: int) -> str | None:
    """Say which blocks up to the last one that is wanted were not compared with the chain, or return None."""
    if found is not None and found["block"] >= block:
        left_out = found["skipped"] - skipped
        return f"{_blocks(left_out)} left out: the chain's facts of them are missing" if left_out > 0 else None
    compared = begin_of(config, lane) if found is None else found["block"]
    if compared is None:
        return f"no block up to {block} is compared with the chain"
    return f"{_blocks(block - compared)} not compared with the chain, {compared + 1} to {block}"


def skipped_blocks(config: Config, lane: str) -> int:
    """Return how many blocks of a lane the judge has left out so far."""
    try:
        found = _agreement(config, lane)
    except UserError:  # nothing was compared yet, or Kafka says it later
        return 0
    return 0 if found is None else int(found["skipped"])


def begin_of(config: Config, lane: str) -> int | None:
    """Return the block after which a lane has begun; None if its file does not say it, which the transport explains if it needs it."""
    path = Path(config.transports[NAME]["chains"][lane].get("folder", lane)) / "start.json"
    try:
        return Position.decode(read_start(path)[1]).number
    except (FollowError, ValueError):
        return None


def _await_executed(config: Config, lane: str, block: int, patience_s: float) -> bool:
    """Wait until a lane has executed a block; return False if it executes nothing for ``patience_s`` seconds: its job may not run."""
    seen, deadline = None, time.monotonic() + patience_s
    say(f"lane {lane}: waiting until block {block} is executed and compared; Ctrl-C ends this")
    with working(f"waiting until the lane has executed block {block}"):
        while time.monotonic() < deadline:
            executed = executed_blocks(config).get(lane, -1)
            if executed >= block:
                return True
            if executed != seen:
                seen, deadline = executed, time.monotonic() + patience_s
            time.sleep(LOOK_S)
    say(
        f"lane {lane}: no block was executed for {patience_s:.0f} s, so block {block} is not waited for: does the job run?"
    )
    return False


def _await_judged(config: Config, lane: str, block: int, ended: threading.Event) -> None:
    """Wait until the judge has compared a lane up to a block, as long as it continues and compares another one within `JUDGED_S_MAX`."""
    compared, deadline = None, time.monotonic() + JUDGED_S_MAX
    with working(f"waiting until block {block} is compared with the chain"):
        while time.monotonic() < deadline and not ended.is_set():
            found = _agreement(config, lane)
            if found is not None and found["block"] >= block:
                return
            if found is not None and found["block"] != compared:
                compared, deadline = found["block"], time.monotonic() + JUDGED_S_MAX
            time.sleep(LOOK_S)


def _agreement(config: Config, lane: str) -> dict[str, Any] | None:
    """Return what the judge said last of a lane, or None. Raises `UserError` if Kafka or the topic is not available."""
    found = None
    prefix, topics = config.topics.prefix, [records.AGREEMENT]
    with TopicReader(config.kafka, prefix, topics, patience_s=KAFKA_S_MAX, newest=True) as reader:
        for record in reader.read_to_end():
            if record.key == lane.encode():
                found = records.decode(records.AGREEMENT, record.value)
    return found


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"


def wanted_rules(config: Config) -> dict[str, tuple[Path, KnownRules]]:
    """Return, by followed lane whose configuration lacks rules, its folder and its rules. Raises `UserError`."""
    chains: Mapping[str, Any] = config.transports.get(NAME, {}).get("chains", {})
    found = {}
    for lane, source in chains.items():
        folder = Path(source.get("folder", lane))
        try:
            known = read_rules(folder)
        except FollowError as error:
            raise UserError(str(error)) from error
        if known.wanted is not None:
            found[lane] = folder, known
    return found


def adopt_rules(config_path: Path) -> None:
    """Add the rules that lanes lack to the configuration; an entry that is there for the block already counts.

    Features that somebody has changed in the configuration count from then on.

    The configuration is written before the lane's folder, so that a process that is killed in between begins again here. Raises
    `UserError`: a lane without a chain, an entry that the job would refuse, a file that cannot be written.
    """
    _take_over(load_config(config_path))
    for lane, (folder, known) in wanted_rules(load_config(config_path)).items():
        wanted = known.wanted
        assert wanted is not None
        config = load_config(config_path)
        if lane not in config.chains:
            raise UserError(
                f"{config_path}: expected [chains.{lane}], whose rules change with block {wanted.from_block}, found none: add its rules, "
                f"{changes(known.at(wanted.from_block) or (), wanted.features)}, where the job has its configuration"
            )
        if wanted.from_block not in (each.from_block for each in config.chains[lane].rules or ()):
            _append(config_path, lane, wanted)
            say(
                f"{config_path}: rules of lane {lane} from block {wanted.from_block} are added: "
                f"{changes(known.at(wanted.from_block) or (), wanted.features)}"
            )
        try:
            write_rules(folder, known.with_wanted())
        except FollowError as error:
            raise UserError(str(error)) from error


def _take_over(config: Config) -> None:
    """Write the features of a lane's entries as the configuration has them into the lane's folder. Raises `UserError`."""
    for lane, source in config.transports.get(NAME, {}).get("chains", {}).items():
        if lane not in config.chains:
            continue
        folder = Path(source.get("folder", lane))
        listed = {
            each.from_block: tuple(each.features)
            for each in config.chains[lane].rules or ()
            if each.features is not None
        }
        try:
            known = read_rules(folder)
            entries = tuple(
                replace(each, features=listed.get(each.from_block, each.features)) for each in known.entries
            )
            if entries != known.entries:
                write_rules(folder, replace(known, entries=entries))
        except FollowError as error:
            raise UserError(str(error)) from error


def _append(config_path: Path, lane: str, wanted: RulesEntry) -> None:
    path = config_path.resolve()
    new = path.with_name(f"{path.name}.new")
    entry = f"\n[[chains.{json.dumps(lane)}.rules]]\n{to_toml(wanted.to_json())}"
    try:
        shutil.copy(path, new)  # with its mode: it may hold passwords
        with new.open("a", encoding="utf-8") as out:
            out.write(entry)
        try:
            check_lanes(load_config(new))
        except UserError as error:
            new.unlink()
            raise UserError(
                f"{config_path}: cannot take the rules from block {wanted.from_block} on: {error}"
            ) from error
        new.replace(path)
    except OSError as error:
        raise UserError(f"{config_path}: cannot be written: {error.strerror}") from error
